import { generateKeyPairSync } from 'node:crypto'
import type { Command } from 'commander'
import { generateKey } from '../../secrets/key-ring.js'
import { counted } from '../counts.js'
import { addKeyToFile, type KeyStatus, keyStatus, rotateKeys, unopenedText, verifyKeys } from '../keys.js'
import { writeText } from '../source.js'
import { type Call, type CommandLine, EXIT } from './command.js'

export function addKeyCommands(program: Command, line: CommandLine): void {
  const keys = program.command('keys').description('Keys that encrypt stored secrets, and that sign checkpoints.')
  const generate = {
    effect: 'writes',
    summary: [
      'Makes a key for the key ring, or one that signs checkpoints.',
      'Put a new key before the old ones (SECRET_KEYS or SECRET_KEYS_FILE), restart the service, run agentctl keys rotate,',
      'and take the old keys out when agentctl keys status says that they seal nothing.',
    ].join('\n'),
    example: 'agentctl keys generate --file /etc/agents/keys',
  } as const
  line
    .add(keys, 'generate', generate, generateCommand)
    .option('--file <FILE>', 'put it first in this key file, which keeps its owner and mode, instead of printing it')
    .option('--signing', 'an Ed25519 key pair for audit checkpoint, in PEM; --file then names a new file')
    .option('--json', 'print JSON')
  const status = {
    effect: 'reads',
    summary: [
      'Counts the stored secrets by key, and names missing keys.',
      'One value of each key is tried; with --all every value. Exit status 3 when one does not open.',
    ].join('\n'),
    example: 'agentctl keys status --all',
  } as const
  line
    .add(keys, 'status', status, statusCommand)
    .option('--all', 'open every stored value in its place: finds values that are damaged or swapped')
    .option('--json', 'print JSON')
  const rotate = {
    effect: 'writes',
    summary: [
      "Encrypts all stored secrets anew with the ring's first key.",
      'The service may run meanwhile. May be interrupted and started again. Exit status 3 when secrets were left because their key does not open them.',
    ].join('\n'),
    example: 'agentctl keys rotate',
  } as const
  line.add(keys, 'rotate', rotate, rotateCommand).option('--json', 'print JSON')
}

async function generateCommand(call: Call): Promise<undefined> {
  const file = call.text('file')
  if (call.flag('signing')) return generateSigning(call, file)
  const key = file === undefined ? generateKey() : addKeyToFile(file)
  call.answer(
    file === undefined ? { key } : { added: key, file },
    file === undefined ? key : `added the key ${key} to ${file}`,
  )
}

function generateSigning(call: Call, file: string | undefined): undefined {
  const { privateKey, publicKey } = generateKeyPairSync('ed25519', {
    privateKeyEncoding: { format: 'pem', type: 'pkcs8' },
    publicKeyEncoding: { format: 'pem', type: 'spki' },
  })
  if (file !== undefined) writeText(file, privateKey, { mode: 0o600, flag: 'wx' })
  call.answer({ ...(file === undefined && { private_key: privateKey }), public_key: publicKey }, () => {
    if (file === undefined) call.printExact(privateKey.trimEnd())
    else call.remark(`the private key is in ${file}; the public key, for those who check checkpoints:`)
    call.printExact(publicKey.trimEnd())
  })
}

async function statusCommand(call: Call): Promise<number> {
  const ring = await call.ring()
  const { db } = await call.database()
  const status = await keyStatus(db, ring)
  const all = call.flag('all') ? await verifyKeys(db, ring) : undefined
  call.answer({ ...status, ...all }, () => {
    printKeys(call, status)
    if (all === undefined) return
    for (const { place, key, problem } of all.findings) {
      const what = key === null ? `${place}: no value can be compared with its mask` : `${place}, key ${key}`
      call.print({ text: problem, colour: 'red' }, `  ${what}`)
    }
    call.print(`${counted(all.values, 'value')}, ${all.opened} opened, ${counted(all.findings.length, 'finding')}`)
  })
  const isMissing = status.keys.some(key => !key.in_ring && (key.values > 0 || key.deployment_key))
  return isMissing || status.unopened.length > 0 || (all?.findings.length ?? 0) > 0 ? EXIT.findings : EXIT.ok
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
  const rotation = await rotateKeys(db, ring, call.actor)
  const { values, tools, skipped_tools, unopened_tools } = rotation
  call.answer(rotation, () => {
    const deployment = rotation.deployment_key ? ', and the deployment key' : ''
    call.print(`${counted(values, 'value')} of ${counted(tools, 'tool')}${deployment} sealed by ${ring.currentId}`)
    if (skipped_tools.length > 0) call.print(`left, as their key is missing: tools ${skipped_tools.join(', ')}`)
    if (unopened_tools.length > 0) {
      call.print(`left, as a value does not open (see agentctl keys status): tools ${unopened_tools.join(', ')}`)
    }
  })
  return skipped_tools.length + unopened_tools.length > 0 ? EXIT.findings : EXIT.ok
}
