import { describeSettings } from '../../config.js'
import { generateKey } from '../../secrets/key-ring.js'
import { metricsUrl, readFailures } from '../failures.js'
import { addKeyToFile, type KeyStatus, keyStatus, rotateKeys, unopenedText } from '../keys.js'
import { readStatus } from '../status.js'
import { type Call, type Command, coloured, EXIT, JSON_OPTION, table } from './command.js'

export const operationCommands: Command[] = [
  {
    name: 'keys generate',
    summary: 'Makes a new key for the key ring.',
    positionals: [],
    options: {
      file: { type: 'string', value: 'FILE', description: 'Put it first in this key file instead of printing it.' },
    },
    details: [
      'Put the new key before the old ones (SECRET_KEYS or SECRET_KEYS_FILE), restart the service, run agentctl keys rotate, and take',
      'the old keys out when agentctl keys status says that they seal nothing.',
    ].join('\n'),
    run: async call => {
      const file = call.text('file')
      call.print(file === undefined ? generateKey() : `added the key ${addKeyToFile(file)} to ${file}`)
      return undefined
    },
  },
  {
    name: 'keys status',
    summary: 'Counts the stored secrets by key, and names keys that are missing or do not open what they should.',
    positionals: [],
    options: JSON_OPTION,
    details:
      'Of each key one header value is tried. Exit status 1 when a key that stored secrets need is missing or opens nothing.',
    run: async call => {
      const ring = await call.ring()
      const status = await keyStatus((await call.database()).db, ring)
      if (call.json) call.printJson(status)
      else printKeys(call, status)
      return isIncomplete(status) ? EXIT.refused : EXIT.ok
    },
  },
  {
    name: 'keys rotate',
    summary: "Encrypts all stored secrets anew with the ring's first key, while the service runs.",
    positionals: [],
    options: JSON_OPTION,
    details:
      'May be interrupted and started again. Exit status 1 when secrets were left because their key is missing or does not open them.',
    run: rotateCommand,
  },
  {
    name: 'status',
    summary: 'Says how things stand: version, schema, counts, keys, recent errors and changes.',
    positionals: [],
    options: JSON_OPTION,
    details:
      'Errors are read from the metrics of the service that HOST, PORT, METRICS_PORT and METRICS_TOKEN describe: run it where that service runs.',
    run: statusCommand,
  },
  {
    name: 'config',
    summary: 'Lists every setting of the environment with its default.',
    positionals: [],
    options: JSON_OPTION,
    run: async call => {
      const settings = describeSettings()
      if (call.json) call.printJson(settings)
      else call.print(table([['NAME', 'DEFAULT', 'MEANING'], ...settings.map(s => [s.name, s.default, s.description])]))
      return undefined
    },
  },
]

function isIncomplete({ keys, unopened }: KeyStatus): boolean {
  return unopened.length > 0 || keys.some(key => !key.in_ring && (key.values > 0 || key.deployment_key))
}

function printKeys(call: Call, { keys, tools_without_key, unopened }: KeyStatus): void {
  const wrong = new Set(unopened.map(({ key }) => key))
  const state = (key: KeyStatus['keys'][number]) => {
    if (!key.in_ring) return coloured(call.output, 'red', 'MISSING')
    if (wrong.has(key.id)) return coloured(call.output, 'red', 'DOES NOT OPEN')
    return key.current ? 'encrypts' : 'decrypts'
  }
  const rows = keys.map(key => [key.id, state(key), key.values, key.deployment_key ? 'yes' : ''])
  call.print(table([['KEY', 'STATE', 'VALUES', 'DEPLOYMENT KEY'], ...rows]))
  for (const tool of tools_without_key) call.print(`tool ${tool.id} ${tool.name} needs ${tool.keys.join(', ')}`)
  for (const key of unopened) call.print(unopenedText(key))
}

async function rotateCommand(call: Call): Promise<number> {
  const ring = await call.ring()
  const { db } = await call.database()
  let shownAt = 0
  const rotation = await rotateKeys(db, ring, (done, total) => {
    if (performance.now() - shownAt < 500 && done < total) return
    shownAt = performance.now()
    call.output.remark(`${done} of ${total} values`)
  })
  if (call.json) call.printJson(rotation)
  else {
    const deployment = rotation.deployment_key ? ', and the deployment key' : ''
    call.print(`${rotation.values} values of ${rotation.tools} tools${deployment} are now sealed by ${ring.currentId}`)
    if (rotation.skipped_tools.length > 0) {
      call.print(`left, as their key is missing: tools ${rotation.skipped_tools.join(', ')}`)
    }
    if (rotation.unopened_tools.length > 0) {
      const tools = rotation.unopened_tools.join(', ')
      call.print(`left, as a value does not open (see agentctl keys status): tools ${tools}`)
    }
  }
  return rotation.skipped_tools.length + rotation.unopened_tools.length > 0 ? EXIT.refused : EXIT.ok
}

async function statusCommand(call: Call): Promise<undefined> {
  const ring = await call.ring()
  const { description } = await call.rawDatabase()
  const url = metricsUrl(call.config)
  const errors = url === undefined ? undefined : await readFailures(url, call.config.server.metricsToken)
  const status = { ...(await readStatus((await call.database()).db, ring)), recent_errors: errors ?? null }
  if (call.json) {
    call.printJson(status)
    return undefined
  }
  const { server, size, read_only } = status.database
  call.print(`version   ${status.version}`)
  call.print(`database  ${description}: PostgreSQL ${server}, ${size}${read_only ? ', read only' : ''}`)
  call.print(`schema    ${status.schema.kind}\n`)
  call.print(table(Object.entries(status.counts).map(([what, count]) => [what.replaceAll('_', ' '), count])))
  call.print('')
  printKeys(call, status.keys)
  call.print('\nrecent errors')
  if (status.recent_errors === null) {
    call.print(`unknown: no service shows its metrics at ${url ?? 'a port known here'}`)
  } else if (status.recent_errors.length === 0) {
    call.print('none since the service started')
  } else {
    call.print(table(status.recent_errors.map(({ last_at, reason, count }) => [last_at, reason, `${count} times`])))
  }
  call.print('\nrecent changes')
  const rows = status.recent_changes.map(({ at, resource, version, actor, fields }) => [
    at,
    resource,
    `version ${version}`,
    actor,
    fields.join(', '),
  ])
  call.print(rows.length === 0 ? 'none' : table(rows))
  return undefined
}
