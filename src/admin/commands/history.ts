import type { ResourceKind } from '../../db/tables.js'
import { parseDateTime } from '../../schema/date-time.js'
import { definitionLimitsOf } from '../../tool/definition/index.js'
import { pruneHistory } from '../../updates/prune.js'
import { type AuditFilter, listAudit, verifyAudit } from '../audit.js'
import { definitionTexts, differenceBetween, type FieldDifference, readHistory } from '../history.js'
import { compareLines } from '../lines.js'
import { rollbackPersona, rollbackTool } from '../rollback.js'
import { type Call, type Command, coloured, EXIT, JSON_OPTION, table, UsageError, wholeNumber } from './command.js'
import { shortened } from './organisation.js'

export const historyCommands: Command[] = [
  {
    name: 'history',
    summary: 'Lists the versions of an agent or tool, newest first.',
    positionals: ['persona|tool', 'ID'],
    options: JSON_OPTION,
    run: historyCommand,
  },
  {
    name: 'diff',
    summary: 'Shows what differs between two versions of an agent or tool.',
    positionals: ['persona|tool', 'ID', 'FROM', 'TO'],
    options: JSON_OPTION,
    run: diffCommand,
  },
  {
    name: 'rollback',
    summary: 'Makes a new version with the content of an old one.',
    positionals: ['persona|tool', 'ID'],
    options: { to: { type: 'string', value: 'VERSION', description: 'The old version. Required.' }, ...JSON_OPTION },
    details:
      'By the same checks as any change. Secrets (header values) are not rolled back: they stay as they are now.',
    run: rollbackCommand,
  },
  {
    name: 'prune',
    summary: 'Removes history beyond the retention; the server does it by itself.',
    positionals: [],
    options: JSON_OPTION,
    details: 'The limits are AUDIT_RETENTION_DAYS, HISTORY_VERSIONS_MAX and HISTORY_BYTES_MAX.',
    run: async call => {
      const pruned = await pruneHistory((await call.database()).db, call.config.history)
      if (call.json) call.printJson(pruned)
      else {
        const { auditRows, differences, definitions } = pruned
        call.print(`removed ${auditRows} audit rows, ${differences} old contents, ${definitions} definitions`)
      }
      return undefined
    },
  },
  {
    name: 'audit list',
    summary: 'Lists the audit trail, newest first.',
    positionals: [],
    options: {
      resource: { type: 'string', value: 'persona:12', description: 'Only this agent or tool.' },
      actor: { type: 'string', value: 'EMAIL', description: 'Only changes by this user (agentctl: the operator).' },
      since: { type: 'string', value: 'DATE', description: 'From this time on (RFC 3339, UTC without an offset).' },
      until: { type: 'string', value: 'DATE', description: 'Before this time.' },
      limit: { type: 'string', value: 'COUNT', description: 'At most so many rows. Default 100.' },
      ...JSON_OPTION,
    },
    run: auditListCommand,
  },
  {
    name: 'audit verify',
    summary: 'Recomputes the audit trail; finds edited, deleted and reordered rows.',
    positionals: [],
    options: {
      resource: { type: 'string', value: 'persona:12', description: 'Only this agent or tool.' },
      'expect-head': { type: 'string', value: 'HASH', description: 'Compare with a head that was printed before.' },
      ...JSON_OPTION,
    },
    details: [
      'Exit status 1 when something is wrong. The head changes with every change of an agent or tool: export it with --resource for one',
      'that should not have changed, or compare it in quiet times.',
    ].join('\n'),
    run: verifyCommand,
  },
]

function kindOf(call: Call): ResourceKind {
  const kind = call.argument(0)
  if (kind === 'persona' || kind === 'tool') return kind
  throw new UsageError(`the first argument is persona or tool, not ${kind}`)
}

async function historyCommand(call: Call): Promise<undefined> {
  const kind = kindOf(call)
  const history = await readHistory((await call.database()).db, kind, call.id(1))
  if (call.json) {
    call.printJson(history)
    return undefined
  }
  const rows = history.versions.map(({ version, at, actor, fields }) => [version, at, actor, fields.join(', ')])
  call.print(table([['VERSION', 'TIME', 'BY', 'FIELDS'], ...rows]))
  if (history.kept_from > 1) call.output.remark(`contents are kept from version ${history.kept_from} on`)
  return undefined
}

async function diffCommand(call: Call): Promise<undefined> {
  const kind = kindOf(call)
  const [from, to] = [wholeNumber(call.argument(2), 'FROM'), wholeNumber(call.argument(3), 'TO')]
  const { db } = await call.database()
  const differences = differenceBetween(await readHistory(db, kind, call.id(1)), from, to)
  const hashes = differences.filter(({ field }) => field === 'definition').flatMap(change => [change.from, change.to])
  const texts = await definitionTexts(db, hashes)
  const shown = differences.map(change => (change.field === 'definition' ? withTexts(change, texts) : change))
  if (call.json) call.printJson({ kind, id: call.id(1), from, to, differences: shown })
  else if (shown.length === 0) call.print('The versions have the same content.')
  else for (const change of shown) printDifference(call, change)
  return undefined
}

/** A definition is kept by its hash: what is compared is its text. */
function withTexts(change: FieldDifference, texts: ReadonlyMap<string, string>): FieldDifference {
  const parsed = (hash: unknown): unknown => {
    const text = texts.get(String(hash))
    return text === undefined ? hash : JSON.parse(text)
  }
  return { field: change.field, from: parsed(change.from), to: parsed(change.to) }
}

function printDifference(call: Call, { field, from, to }: FieldDifference): void {
  call.print(coloured(call.output, 'bold', field))
  const [before, after] = [textOf(from), textOf(to)]
  if (!before.includes('\n') && !after.includes('\n')) {
    call.print(coloured(call.output, 'red', `- ${before}`))
    call.print(coloured(call.output, 'green', `+ ${after}`))
    return
  }
  for (const { sign, text } of compareLines(before, after)) {
    const line = `${sign} ${text}`
    call.print(
      sign === ' ' ? coloured(call.output, 'dim', line) : coloured(call.output, sign === '-' ? 'red' : 'green', line),
    )
  }
}

function textOf(value: unknown): string {
  if (typeof value === 'string') return value
  return typeof value === 'object' && value !== null ? JSON.stringify(value, null, 2) : shortened(value)
}

async function rollbackCommand(call: Call): Promise<undefined> {
  const kind = kindOf(call)
  const to = call.text('to')
  if (to === undefined) throw new UsageError('--to VERSION is missing')
  const target = wholeNumber(to, '--to')
  const database = await call.database()
  const result =
    kind === 'persona'
      ? await rollbackPersona(database, call.id(1), target)
      : await rollbackTool(database, await call.vault(), call.id(1), target, definitionLimitsOf(call.config.limits))
  if (call.json) {
    call.printJson(result)
    return undefined
  }
  const done = result.fields.length === 0 ? 'nothing to set back' : `set back ${result.fields.join(', ')}`
  call.print(`${kind} ${call.id(1)} is version ${result.version}: ${done}`)
  if (kind === 'tool') call.output.remark('secrets are not rolled back: the header values are those of now')
  if (result.left.length > 0) call.output.remark(`left as now: ${result.left.join(', ')}`)
  return undefined
}

function resourceOf(call: Call): { kind: ResourceKind; id: number } | undefined {
  const text = call.text('resource')
  if (text === undefined) return undefined
  const [, kind, id] = /^(persona|tool):(\d+)$/.exec(text) ?? []
  if (kind === undefined || id === undefined)
    throw new UsageError(`--resource has the form persona:12 or tool:7, not ${text}`)
  return { kind: kind === 'persona' ? 'persona' : 'tool', id: wholeNumber(id, '--resource') }
}

async function auditListCommand(call: Call): Promise<undefined> {
  const [resource, actor, since, until] = [
    resourceOf(call),
    call.text('actor'),
    dateOf(call, 'since'),
    dateOf(call, 'until'),
  ]
  const filter: AuditFilter = {
    limit: wholeNumber(call.text('limit') ?? '100', '--limit'),
    ...(resource && { resource }),
    ...(actor !== undefined && { actor }),
    ...(since !== undefined && { since }),
    ...(until !== undefined && { until }),
  }
  const rows = await listAudit((await call.database()).db, filter)
  if (call.json) {
    call.printJson(rows)
    return undefined
  }
  const shown = rows.map(row => [
    row.at,
    `${row.resource_kind}:${row.resource_id}`,
    row.version_after,
    row.actor,
    row.token_id,
    row.client_address,
    row.fields.join(','),
  ])
  call.print(table([['TIME', 'RESOURCE', 'VERSION', 'BY', 'TOKEN', 'FROM', 'FIELDS'], ...shown]))
  return undefined
}

function dateOf(call: Call, option: 'since' | 'until'): string | undefined {
  const text = call.text(option)
  if (text === undefined) return undefined
  const date = parseDateTime(text)
  if (date === undefined) throw new UsageError(`--${option} must be a date such as 2026-01-31 or 2026-01-31T12:00:00Z`)
  return date
}

async function verifyCommand(call: Call): Promise<number | undefined> {
  const expected = call.text('expect-head')
  const result = await verifyAudit((await call.database()).db, resourceOf(call))
  const headDiffers = expected !== undefined && expected.toLowerCase() !== result.head
  if (call.json) call.printJson({ ...result, ...(expected !== undefined && { head_as_expected: !headDiffers }) })
  else {
    for (const { resource_kind, resource_id, version, problem, msg } of result.findings) {
      call.print(`${coloured(call.output, 'red', problem)}  ${resource_kind}:${resource_id} version ${version}: ${msg}`)
    }
    if (headDiffers) call.print(coloured(call.output, 'red', 'the head is not the expected one'))
    call.print(`${result.resources} chains, ${result.rows} rows, ${result.findings.length} findings`)
    call.print(`head ${result.head}`)
  }
  return result.findings.length > 0 || headDiffers ? EXIT.refused : EXIT.ok
}
