import { Command, CommanderError } from 'commander'
import { InvalidConfiguration } from '../../config.js'
import { CommitUnknown, classifyDatabaseError, rootOf, ServerUnfit } from '../../db/connection/database-error.js'
import { connectAdvice, NotConfigured } from '../../db/open.js'
import { Refused } from '../../errors.js'
import { KeyRingMissing } from '../../secrets/configured-ring.js'
import { VERSION } from '../../version.js'
import { EXIT, Refusal } from '../refusal.js'
import { harmless, harmlessLines } from '../terminal.js'
import { addAuditCommands } from './audit.js'
import { CommandLine, type Environment, type Output, UsageError } from './command.js'
import { addKeyCommands } from './keys.js'
import { addOrganisationCommands } from './organisation.js'
import { addPeopleCommands } from './people.js'
import { addAgentCommands } from './resources.js'
import { addSetupCommands } from './setup.js'
import { addTokenCommands } from './tokens.js'
import { addValidateCommand } from './validate.js'

const AFTER = `
agentctl uses the database at DATABASE_URL, or the embedded database that the
service created in DATA_DIR. Exit status: 0 done; 1 refused or failed; 2 --plan
found changes; 3 faults were found; 64 wrong usage; 69 database unavailable;
75 outcome unknown: check before you repeat the command; 78 invalid settings.
Cannot be undone: apply --prune, user erase, token revoke.
agentctl COMMAND --help shows an example; agentctl --version shows the version.`

/** Runs one command line and returns an exit status of `EXIT`. Never throws. */
export async function run(args: readonly string[], env: Environment, output: Output): Promise<number> {
  const line = new CommandLine(env, output)
  try {
    await programOf(line).parseAsync(args.length === 0 ? ['--help'] : args, { from: 'user' })
    return line.status
  } catch (error) {
    if (error instanceof CommanderError && error.exitCode === 0) return EXIT.ok // help or version was printed
    const [status, message] = explained(error, line)
    output.remark(`agentctl: ${harmlessLines(message)}${status === EXIT.usage ? ' (see agentctl help)' : ''}`)
    return status
  }
}

/** Returns the program `agentctl` with all its commands. */
export function programOf(line: CommandLine): Command {
  const program = new Command('agentctl')
    .exitOverride()
    .configureOutput({
      writeOut: text => line.output.print(text.trimEnd()),
      writeErr: () => undefined,
      getOutHelpWidth: () => 80,
      getOutHasColors: () => false,
    })
    .configureHelp({
      subcommandTerm: command => command.name(),
      visibleOptions: command => (command.parent === null ? [] : [...command.options]),
    })
    .helpOption('-h, --help', 'show this text')
    .helpCommand('help [COMMAND]', 'shows the help of a command')
    .enablePositionalOptions()
    .version(VERSION, '--version', 'show the version')
    .usage('COMMAND [arguments] [options]')
    .addHelpText('after', AFTER)
  addSetupCommands(program, line)
  addOrganisationCommands(program, line)
  addValidateCommand(program, line)
  addPeopleCommands(program, line)
  addTokenCommands(program, line)
  addAgentCommands(program, line)
  addAuditCommands(program, line)
  addKeyCommands(program, line)
  for (const command of allCommands(program)) {
    const [first = ''] = command.description().split('\n')
    command.summary(first).option('--json', 'print JSON')
  }
  return program
}

/** Returns all commands under `from`, except command groups. */
export function allCommands(from: Command): Command[] {
  return from.commands.flatMap(command => (command.commands.length > 0 ? allCommands(command) : [command]))
}

const MISCONFIGURED = [InvalidConfiguration, KeyRingMissing, NotConfigured, ServerUnfit]
const IN_DOUBT =
  'the connection to the database was lost. If this command changes anything, the change may be stored: look for it with agentctl audit list --limit 5 (for migrate, use agentctl status) before you repeat the command. If the command created a token but did not show it, revoke that token'

function explained(error: unknown, { env, connected }: CommandLine): [status: number, message: string] {
  const message = error instanceof Error ? error.message : String(error)
  if (error instanceof CommanderError) {
    const isGroup = error.code === 'commander.help'
    return [
      EXIT.usage,
      isGroup
        ? 'this is not a command: after a group such as token, give one of its commands, as in agentctl token list'
        : harmless(message.replace(/^error: /, '').replace(/\n/g, ' ')),
    ]
  }
  // A usage message can quote names that contain newlines, so the message is escaped.
  if (error instanceof UsageError) return [EXIT.usage, harmless(message)]
  if (error instanceof Refusal || error instanceof Refused) return [EXIT.error, harmless(message)]
  if (MISCONFIGURED.some(kind => error instanceof kind)) return [EXIT.configuration, message]
  if (error instanceof CommitUnknown) return [EXIT.doubt, IN_DOUBT]
  const { kind, constraint = '(unnamed)' } = classifyDatabaseError(error)
  switch (kind) {
    case 'connection_lost':
    case 'too_many_connections': {
      if (connected) return [EXIT.doubt, IN_DOUBT]
      const advice = connectAdvice(env.DATABASE_URL || env.DATABASE_URL_FILE, error)
      return [EXIT.unavailable, `cannot connect to the database: ${rootOf(error).message}; ${advice}`]
    }
    case 'read_only':
      return [EXIT.unavailable, 'the database is read-only: try again later, or set DATABASE_URL to the primary server']
    case 'constraint':
      return [EXIT.error, `a value violates the constraint ${constraint}, so nothing was changed: correct the value`]
    case 'migrating':
    case 'lock_timeout':
      return [EXIT.error, 'another process held a database lock for too long: try again']
  }
  const stack = error instanceof Error && env.LOG_LEVEL === 'debug' ? error.stack : undefined
  return [EXIT.error, stack ?? `${message} (to see the place in the code, set LOG_LEVEL=debug)`]
}
