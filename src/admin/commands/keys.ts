import { generateKey } from '../../secrets/key-ring.js'
import { counted } from '../counts.js'
import { addKeyToFile, type KeyStatus, keyStatus, rotateKeys, unopenedText, verifyKeys } from '../keys.js'
import { type Call, type Command, EXIT, JSON_OPTION } from './command.js'

export const keyCommands: Command[] = [
  {
    name: 'keys generate',
    summary: 'Makes a new key for the key ring.',
    positionals: [],
    options: {
      file: { type: 'string', value: 'FILE', description: 'Put it first in this key file instead of printing it.' },
      ...JSON_OPTION,
    },
    details: [
      'Put the new key before the old ones (SECRET_KEYS or SECRET_KEYS_FILE), restart the service, run agentctl keys rotate, and take',
      'the old keys out when agentctl keys status says that they seal nothing.',
    ].join('\n'),
    offline: true,
    run: async call => {
      const file = call.text('file')
      const key = file === undefined ? generateKey() : addKeyToFile(file)
      call.answer(
        file === undefined ? { key } : { added: key, file },
        file === undefined ? key : `added the key ${key} to ${file}`,
      )
    },
  },
  {
    name: 'keys status',
    summary: 'Counts the stored secrets by key, and names keys that are missing or do not open what they should.',
    positionals: [],
    options: JSON_OPTION,
    details:
      'Of each key one header value is tried; agentctl keys verify tries all. Exit status 1 when a key that stored secrets need is missing or opens nothing.',
    run: async call => {
      const ring = await call.ring()
      const status = await keyStatus((await call.database()).db, ring)
      call.answer(status, () => printKeys(call, status))
      return isIncomplete(status) ? EXIT.refused : EXIT.ok
    },
  },
  {
    name: 'keys verify',
    summary: 'Opens every stored secret in its place; finds those that are damaged, swapped or without their key.',
    positionals: [],
    options: JSON_OPTION,
    details: 'Changes nothing and holds up nobody. Exit status 1 when a value does not open.',
    run: verifyCommand,
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
]

async function verifyCommand(call: Call): Promise<number> {
  const ring = await call.ring()
  const { db } = await call.database()
  const verification = await verifyKeys(db, ring, (done, total) =>
    call.progress.at('opening stored secrets', done, total, 'values'),
  )
  call.answer(verification, () => {
    for (const { place, key, problem } of verification.findings) {
      const what = key === null ? `${place}: no value can be compared with its mask` : `${place}, key ${key}`
      call.print({ text: problem, colour: 'red' }, `  ${what}`)
    }
    const { values, opened, findings } = verification
    call.print(`${counted(values, 'value')}, ${opened} opened, ${counted(findings.length, 'finding')}`)
  })
  return verification.findings.length > 0 ? EXIT.refused : EXIT.ok
}

function isIncomplete({ keys, unopened }: KeyStatus): boolean {
  return unopened.length > 0 || keys.some(key => !key.in_ring && (key.values > 0 || key.deployment_key))
}

/** The keys for people. */
export function printKeys(call: Call, { keys, tools_without_key, unopened }: KeyStatus): void {
  const wrong = new Set(unopened.map(({ key }) => key))
  const state = (key: KeyStatus['keys'][number]) => {
    if (!key.in_ring) return { text: 'MISSING', colour: 'red' } as const
    if (wrong.has(key.id)) return { text: 'DOES NOT OPEN', colour: 'red' } as const
    return key.current ? 'encrypts' : 'decrypts'
  }
  const rows = keys.map(key => [key.id, state(key), key.values, key.deployment_key ? 'yes' : ''])
  call.printTable([['KEY', 'STATE', 'VALUES', 'DEPLOYMENT KEY'], ...rows])
  for (const tool of tools_without_key) call.print(`tool ${tool.id} ${tool.name} needs ${tool.keys.join(', ')}`)
  for (const key of unopened) call.print(unopenedText(key))
}

async function rotateCommand(call: Call): Promise<number> {
  const ring = await call.ring()
  const { db } = await call.database()
  const rotation = await rotateKeys(
    db,
    ring,
    (done, total) => {
      call.progress.at('sealing secrets anew', done, total, 'values')
    },
    call.actor,
  )
  call.answer(rotation, () => {
    const deployment = rotation.deployment_key ? ', and the deployment key' : ''
    call.print(
      `${counted(rotation.values, 'value')} of ${counted(rotation.tools, 'tool')}${deployment} sealed by ${ring.currentId}`,
    )
    if (rotation.skipped_tools.length > 0) {
      call.print(`left, as their key is missing: tools ${rotation.skipped_tools.join(', ')}`)
    }
    if (rotation.unopened_tools.length > 0) {
      const tools = rotation.unopened_tools.join(', ')
      call.print(`left, as a value does not open (see agentctl keys status): tools ${tools}`)
    }
  })
  return rotation.skipped_tools.length + rotation.unopened_tools.length > 0 ? EXIT.refused : EXIT.ok
}
