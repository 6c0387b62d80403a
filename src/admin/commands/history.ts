import type { Command } from 'commander'
import { type Kysely, sql, type Transaction } from 'kysely'
import type { Database, ResourceKind } from '../../db/tables.js'
import { inTransaction, type ServiceDatabase } from '../../db/transaction.js'
import { VersionGone, VersionNotFound } from '../../errors.js'
import { pastContent } from '../../persona/past.js'
import type { PersonaState } from '../../persona/state.js'
import { parseExact } from '../../schema/exact-json.js'
import type { Vault } from '../../secrets/vault.js'
import { REQUEST_FIELDS } from '../../tool/fields.js'
import { shownHeaders } from '../../tool/rules.js'
import type { ToolState } from '../../tool/snapshot.js'
import type { Actor } from '../../updates/audit.js'
import { type Past, readPastOf } from '../../updates/past.js'
import { changePersona } from '../apply/personas.js'
import {
  changeNotes,
  changeTool,
  decideAsOperator,
  definitionText,
  type GivenTool,
  giveDefinition,
} from '../apply/tools.js'
import { operatorActor } from '../operator.js'
import { EXIT, Refusal } from '../refusal.js'
import { type Call, type CommandLine, UsageError, wholeNumber } from './command.js'
import { PLAN, printOutcome } from './organisation.js'
import { resourceId } from './resources.js'

export function addHistoryCommands(program: Command, line: CommandLine): void {
  line
    .add(program, 'history <KIND> <ID>', 'tool Weather --limit 5', historyCommand)
    .description('Lists the versions of an agent or tool, newest first.\nKIND is agent or tool, ID an id or a name.')
    .option('--limit <COUNT>', 'at most so many', wholeNumber, 100)
  line
    .add(program, 'rollback <KIND> <ID>', 'tool Weather --to 3 --plan', rollbackCommand)
    .description(
      'Makes a new version with the content of an old one.\n' +
        'It passes the same checks as any change. KIND is agent or tool, ID an id or a name. Secrets (header values) are not rolled back.',
    )
    .requiredOption('--to <VERSION>', 'the old version', wholeNumber)
    .option('--plan', PLAN)
}

async function historyCommand(call: Call, { limit }: { limit: number }, word: string, name: string) {
  const kind = kindOf(word)
  const db = await call.db()
  const id = await resourceId(db, kind, name)
  // One more than is shown tells that there are more.
  const history = await readHistory(db, kind, id, limit + 1)
  const versions = history.versions.slice(0, limit)
  call.answer({ ...history, versions }, () => {
    const rows = versions.map(({ version, at, actor, fields }) => [version, at, actor, fields])
    call.printTable([['VERSION', 'TIME', 'BY', 'FIELDS'], ...rows])
  })
  if (history.kept_from > 1) call.remark(`contents are kept from version ${history.kept_from} on`)
  if (history.versions.length > limit) call.remark(`there are more than ${limit}: see --limit`)
  return undefined
}

function kindOf(word: string): ResourceKind {
  if (word === 'agent') return 'persona'
  if (word === 'tool') return word
  throw new UsageError(`KIND is agent or tool, not ${word}`)
}

async function rollbackCommand(
  call: Call,
  { to: version, plan = false }: { to: number; plan?: boolean },
  word: string,
  name: string,
): Promise<number> {
  const kind = kindOf(word)
  const database = await call.database()
  const id = await resourceId(database.db, kind, name)
  const options = { plan, actor: call.actor }
  const { changes, left, notes, ...result } =
    kind === 'persona'
      ? await rollbackPersona(database, id, version, options)
      : await rollbackTool(database, await call.vault(), id, version, options)
  const fields = changes.map(({ field }) => field)
  const section = kind === 'tool' ? 'tools' : 'agents'
  call.answer({ version: result.version, fields, left, ...(notes.length > 0 && { notes }) }, () => {
    const done = fields.length > 0 ? `set back ${fields.join(', ')}` : 'nothing to set back'
    if (plan && fields.length > 0) {
      printOutcome(call, { section, id, name: result.name, action: 'changed', fields: changes })
    } else call.print(`${word} ${id} is version ${result.version}: ${done}`)
    if (kind === 'tool') call.remark('secrets are not rolled back: the header values are those of now')
    for (const note of notes) call.remark(note)
    if (left.length > 0) call.remark(`left as now: ${left.join(', ')}`)
  })
  return plan && fields.length > 0 ? EXIT.differs : EXIT.ok
}

/**
 * The versions of an agent or tool that are still listed, newest first, and from which on (`kept_from`) contents are kept: it can be
 * rolled back to these. Throws `Refusal` when there is none of this id.
 */
export async function readHistory(db: Kysely<Database>, kind: ResourceKind, id: number, limit = 100) {
  // A tool that was removed and came back was made anew: what it was before is listed, but is not content of this one.
  const { rows } = await sql<{ current: number; kept_from: number }>`
    select r.version as current, greatest(
      coalesce(max(a.version_after) filter (where a.difference is null), r.audit_anchor_version, 1),
      max(a.version_after) filter (where 'removed' = any(a.fields)) + 1, 1) as kept_from
    from ${sql.table(kind)} r
    left join audit a on a.resource_kind = ${kind} and a.resource_id = r.id and a.version_after <= r.version
    where r.id = ${id}::integer group by r.id`.execute(db)
  const [resource] = rows
  if (resource === undefined) throw new Refusal(`there is no ${kind === 'persona' ? 'agent' : 'tool'} ${id}`)
  const versions = db
    .selectFrom('audit')
    .select(['version_after as version', 'at', 'actor', 'request_id', 'fields', 'difference'])
    .where(sql<boolean>`resource_kind = ${kind} and resource_id = ${id} and version_after <= ${resource.current}`)
    .orderBy('version_after', 'desc')
    .limit(limit)
  return { kind, id, ...resource, versions: await versions.execute() }
}

/** How the rows of rollbacks begin to say what made them. */
const ROLLBACK_COMMAND = 'agentctl rollback'

/** `plan`: only decide, nothing is stored. */
interface Options {
  plan?: boolean
  actor?: Actor
}

/**
 * Makes a new version of an agent with the content of an old one, with the same checks and audit row as any change. `left` names
 * fields that were not set back. Throws `Refusal` when the version is not kept, the agent is built in, or something that it
 * referred to is gone.
 */
export async function rollbackPersona(
  database: Pick<ServiceDatabase, 'db'>,
  id: number,
  version: number,
  { plan = false, actor = operatorActor(ROLLBACK_COMMAND) }: Options = {},
) {
  return await inTransaction(database, { rollback: plan }, async trx => {
    let restored: number[] = []
    const decide = async (state: PersonaState) => {
      if (state.builtin_persona) throw new Refusal('this agent is built in')
      const { content, notes } = await pastContent(trx, state, await readThen(trx, 'persona', id, version))
      restored = content.tool_ids.filter(tool => !state.tool_ids.includes(tool))
      const { rows } = await sql<{ id: number }>`
        select id from tool where id = any(${restored}::integer[]) and not enabled order by id`.execute(trx)
      const gone = [...notes, ...rows.map(tool => `disabled: tool ${tool.id}`)]
      if (gone.length > 0) throw new Refusal(`what that version refers to is not usable now: ${gone.join('; ')}`)
      return content
    }
    const result = await changePersona(trx, id, decide, actor)
    await restoreAttachers(trx, id, version, restored)
    return { ...result, left: [] as string[], notes: [] as string[] }
  })
}

/** An earlier version. Throws `Refusal` where it is not kept. */
async function readThen(trx: Transaction<Database>, kind: ResourceKind, id: number, version: number): Promise<Past> {
  try {
    return await readPastOf(trx, kind, id, { version })
  } catch (error) {
    if (error instanceof VersionGone || error instanceof VersionNotFound) throw new Refusal(error.message)
    throw error
  }
}

/**
 * A tool that comes back is attached by whom it was then: the newest row up to that version that attached it, other than a
 * rollback, says so. Otherwise a group manager would get into the scope what they attached themselves.
 */
async function restoreAttachers(
  trx: Transaction<Database>,
  id: number,
  version: number,
  restored: readonly number[],
): Promise<void> {
  await sql`
    update persona_tool l set attached_by = (
      select a.actor_id from audit a
      where a.resource_kind = 'persona' and a.resource_id = ${id}::integer and a.version_after <= ${version}::integer
        and not coalesce(a.command, '') like ${`${ROLLBACK_COMMAND}%`}
        and a.difference::jsonb -> 'tool_ids' -> 'to' @> to_jsonb(l.tool_id)
        and not a.difference::jsonb -> 'tool_ids' -> 'from' @> to_jsonb(l.tool_id)
      order by a.version_after desc limit 1)
    where l.persona_id = ${id}::integer and l.tool_id = any(${restored}::integer[])`.execute(trx)
}

/**
 * Makes a new version of a tool with the content of an old one; the definition comes back text for text and is checked again.
 * Secrets are not rolled back: the headers stay as they are now. Throws `Refusal`, `InvalidRequest` when it breaks a rule of today.
 */
export async function rollbackTool(
  database: Pick<ServiceDatabase, 'db'>,
  vault: Vault,
  id: number,
  version: number,
  { plan = false, actor = operatorActor() }: Options = {},
) {
  return await inTransaction(database, { rollback: plan }, async trx => {
    let left: string[] = []
    let notes: string[] = []
    const decide = async (state: ToolState) => {
      const { custom_headers = null, ...values } = (await readThen(trx, 'tool', id, version)).values
      const now = shownHeaders(state.headers)
      if (JSON.stringify(custom_headers ?? now) !== JSON.stringify(now)) left = ['custom_headers']
      const given = await givenByHistory(trx, state, values)
      notes = await changeNotes(trx, state, given, vault)
      return decideAsOperator(state, given, vault)
    }
    const result = await changeTool(trx, id, decide, actor)
    return { ...result, left, notes }
  })
}

const PLAIN_FIELDS: ReadonlySet<string> = new Set(REQUEST_FIELDS.map(([name]) => name))

async function givenByHistory(
  trx: Transaction<Database>,
  state: ToolState,
  { definition: hash = state.definition_hash, ...values }: Past['values'],
): Promise<GivenTool> {
  const given: GivenTool = { fields: {}, columns: {}, definitionFaults: [] }
  for (const [field, value] of Object.entries(values)) {
    Object.assign(PLAIN_FIELDS.has(field) ? given.fields : given.columns, { [field]: value })
  }
  if (hash !== state.definition_hash) {
    const text = await definitionText(trx, hash === null ? null : String(hash))
    if (text === undefined) throw new Refusal('the definition of that version is no longer kept, or it had none')
    const headerNames = state.headers.map(header => header.name)
    // The stored text, not the one that was checked: nothing about it may change, not even how a number is written.
    giveDefinition(given, parseExact(text), headerNames, ['body', 'definition'], text)
  }
  const id = given.fields.oauth_config_id ?? null
  const isGone =
    id !== null && !(await trx.selectFrom('oauth_config').select('id').where('id', '=', id).executeTakeFirst())
  if (isGone) throw new Refusal(`what that version refers to is gone: oauth_config_id ${id}`)
  return given
}
