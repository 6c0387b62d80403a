import type { Command } from 'commander'
import { generateKey } from '../../secrets/key-ring.js'
import { keyStatus, rotateKeys, type SecretFinding } from '../keys.js'
import { counted, EXIT } from '../refusal.js'
import type { Call, CommandLine } from './command.js'

export function addKeyCommands(program: Command, line: CommandLine): void {
  const keys = program.command('keys').description('Keys that encrypt stored secrets.')
  line
    .add(keys, 'generate', '', generateCommand)
    .description(
      'Makes a key for the key ring.\n' +
        'Put a new key before the old ones (SECRET_KEYS or SECRET_KEYS_FILE), restart the service, run agentctl keys rotate, ' +
        'and take the old keys out when agentctl keys status says that they seal nothing.',
    )
  line
    .add(keys, 'status', '', statusCommand)
    .description(
      'Counts the stored secrets by key, and opens every one of them.\n' +
        'Exit status 3 when a key is missing, or a value is damaged or was moved.',
    )
  line
    .add(keys, 'rotate', '', rotateCommand)
    .description(
      "Encrypts all stored secrets anew with the ring's first key.\n" +
        'The service may run meanwhile. May be interrupted and started again. ' +
        'Exit status 3 when secrets were left because their key does not open them.',
    )
}

async function generateCommand(call: Call): Promise<undefined> {
  const key = generateKey()
  return call.answer({ key }, key)
}

const ADVICE: Readonly<Record<SecretFinding['problem'], string>> = {
  key_missing: 'put the key back into the ring',
  does_not_open: 'put the right key under this id; a secret that is damaged or whose key is lost has to be sent anew',
}

async function statusCommand(call: Call): Promise<number> {
  const ring = await call.ring()
  const status = await keyStatus(await call.db(), ring)
  const { values, opened, findings } = status
  call.answer(status, () => {
    const wrong = new Set(findings.filter(({ problem }) => problem === 'does_not_open').map(({ key }) => key))
    const rows = status.keys.map(({ id, in_ring, current, values }) => {
      const state = wrong.has(id) ? 'DOES NOT OPEN' : current ? 'encrypts' : 'decrypts'
      return [id, in_ring ? state : 'MISSING', values]
    })
    call.printTable([['KEY', 'STATE', 'VALUES'], ...rows])
    call.printTable(findings.map(({ place, key, problem }) => [problem, place, `key ${key}`]))
    for (const problem of new Set(findings.map(finding => finding.problem)))
      call.print(`${problem}: ${ADVICE[problem]}`)
    call.print(`${counted(values, 'value')}, ${opened} opened, ${counted(findings.length, 'finding')}`)
  })
  return findings.length > 0 ? EXIT.findings : EXIT.ok
}

async function rotateCommand(call: Call): Promise<number> {
  const ring = await call.ring()
  const db = await call.db()
  const rotation = await call.inSteps(() => rotateKeys(db, ring, call.actor))
  const { values, tools, skipped_tools, unopened_tools } = rotation
  call.answer(rotation, () => {
    call.print(`${counted(values, 'value')} of ${counted(tools, 'tool')} sealed by ${ring.currentId}`)
    if (skipped_tools.length > 0) call.print(`left, as their key is missing: tools ${skipped_tools.join(', ')}`)
    if (unopened_tools.length > 0) {
      call.print(`left, as a value does not open (see agentctl keys status): tools ${unopened_tools.join(', ')}`)
    }
  })
  return skipped_tools.length + unopened_tools.length > 0 ? EXIT.findings : EXIT.ok
}
