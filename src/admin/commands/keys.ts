import type { Command } from 'commander'
import { generateKey } from '../../secrets/key-ring.js'
import { keyStatus, rotateKeys } from '../keys.js'
import { counted, EXIT } from '../refusal.js'
import type { CommandLine } from './command.js'

export function addKeyCommands(program: Command, line: CommandLine): void {
  const keys = program.command('keys').description('Keys that encrypt stored secrets.')
  line
    .add(keys, 'generate', '', generateCommand)
    .description(
      'Prints a new key for the key ring (SECRET_KEYS, SECRET_KEYS_FILE, or the file secret-keys in DATA_DIR).\n' +
        'Put the new key before the old keys, restart the service and run agentctl keys rotate. ' +
        'Remove an old key when agentctl keys status shows 0 values for it. If several instances run, see ops/operating.md.',
    )
  line
    .add(keys, 'status', '', statusCommand)
    .description(
      'Counts the stored secrets that each key encrypted, and tries to decrypt all secrets.\n' +
        'Exit status 3 if a secret cannot be decrypted.',
    )
  line
    .add(keys, 'rotate', '', rotateCommand)
    .description(
      'Encrypts all stored secrets with the first key of the key ring.\n' +
        'The service can run meanwhile, and the command can be interrupted and repeated. ' +
        'Skips a tool if one of its secrets cannot be decrypted. Exit status 3 if a tool was skipped.',
    )
}

async function generateCommand(call: CommandLine): Promise<undefined> {
  const key = generateKey()
  return call.answer({ key }, key)
}

async function statusCommand(call: CommandLine): Promise<number> {
  const status = await keyStatus(await call.db(), await call.ring())
  const { values, findings } = status
  call.answer(status, () => {
    const wrong = new Set(findings.filter(({ problem }) => problem === 'does_not_open').map(({ key }) => key))
    const rows = status.keys.map(({ id, in_ring, current, values }) => {
      const state = wrong.has(id) ? 'CANNOT DECRYPT' : current ? 'encrypts' : 'decrypts'
      return [id, in_ring ? state : 'MISSING', values]
    })
    call.printTable([['KEY', 'STATE', 'VALUES'], ...rows])
    call.printTable(findings.map(({ place, key, problem }) => [problem, place, `key ${key}`]))
    if (findings.length > 0)
      call.print('add the right keys to the key ring; if a key is lost or a value is damaged, set the header again')
    call.print(`${counted(values, 'value')}, ${counted(findings.length, 'finding')}`)
  })
  return findings.length > 0 ? EXIT.findings : EXIT.ok
}

async function rotateCommand(call: CommandLine): Promise<number> {
  const ring = await call.ring()
  const rotation = await rotateKeys(await call.db(), ring, call.actor)
  const { values, tools, left_tools: left } = rotation
  call.answer(rotation, () => {
    call.print(`encrypted again with key ${ring.currentId}: ${counted(values, 'value')} of ${counted(tools, 'tool')}`)
    if (left.length > 0)
      call.print(`skipped tools ${left.join(', ')}, because values cannot be decrypted: run agentctl keys status`)
  })
  return left.length > 0 ? EXIT.findings : EXIT.ok
}
