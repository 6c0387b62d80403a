import type { Command } from 'commander'
import { nameOf } from './command.js'

/** Commands that change what is stored, and those whose change nothing takes back; all others only read. */
const WRITES = [
  'init',
  'migrate',
  'apply',
  'rollback',
  'user create',
  'user deactivate',
  'token create',
  'token rotate',
]
  .concat('keys rotate')
  .map(name => [name, 'writes'] as const)
const DESTROYS = ['user erase', 'token revoke'].map(name => [name, 'destroys'] as const)
const EFFECTS = new Map<string, 'writes' | 'destroys'>([...WRITES, ...DESTROYS])

/** What `agentctl help --json` answers: each command with its arguments, options and effect, for programs. */
export function describedCommands(commands: readonly Command[]) {
  return commands.map(command => ({
    command: nameOf(command),
    description: command.description(),
    effect: EFFECTS.get(nameOf(command)) ?? 'reads',
    arguments: command.registeredArguments.map(each => ({ name: each.name(), required: each.required })),
    options: command.options.map(({ flags, description, mandatory }) => ({ flags, description, required: mandatory })),
  }))
}
