import { Command, CommanderError } from 'commander'
import { InvalidConfiguration } from '../../config.js'
import {
  CommitUnknown,
  ConnectionLost,
  DatabaseClosed,
  PoolExhausted,
  rootCause,
  ServerUnfit,
} from '../../db/connection/database-error.js'
import { classifyDatabaseError, SQLSTATE } from '../../db/connection/sqlstate.js'
import { EmbeddedUnavailable } from '../../db/embedded/embedded.js'
import { connectAdvice, NoDatabase } from '../../db/open.js'
import { InvalidRequest, Unavailable } from '../../errors.js'
import { SecretCorrupt } from '../../secrets/cipher.js'
import { KeyRingMissing } from '../../secrets/configured-ring.js'
import { DefinitionRefused } from '../../tool/definition/index.js'
import { VERSION } from '../../version.js'
import { placeText, Refusal } from '../refusal.js'
import { UnreadableText } from '../source.js'
import { harmless, harmlessLines } from '../terminal.js'
import { addAuditCommands } from './audit.js'
import { type Call, CommandLine, EXIT, effectOf, NotConfigured, nameOf, type Output, UsageError } from './command.js'
import { addHistoryCommands } from './history.js'
import { addKeyCommands } from './keys.js'
import { addOrganisationCommands } from './organisation.js'
import { addPeopleCommands } from './people.js'
import { addAgentCommands, addToolCommands } from './resources.js'
import { addSetupCommands } from './setup.js'
import { addTokenCommands } from './tokens.js'
import { addValidateCommand } from './validate.js'

const AFTER = `
The database is that of DATABASE_URL, or the embedded one in DATA_DIR that the
server made. Exit status: 0 done; 1 refused or failed; 2 --plan found something
to do; 3 a check found faults; 64 usage; 69 database unavailable; 78 settings.
agentctl COMMAND --help has an example of each; agentctl --version.`

/** Runs one command line and answers the exit status, as `EXIT` lists them. Never throws. */
export async function run(
  args: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
  output: Output,
): Promise<number> {
  const line = new CommandLine(env, output)
  const program = programOf(line)
  const words = wordsOf(program, args)
  try {
    await program.parseAsync(args.length === 0 ? ['--help'] : args, { from: 'user' })
    return line.status
  } catch (error) {
    if (error instanceof CommanderError && error.exitCode === 0) return EXIT.ok // help or version was printed
    const { message, status } = explained(error, env, words)
    const name = ['agentctl', words].filter(Boolean).join(' ')
    if (status === EXIT.usage) output.remark(`See: ${name} --help`)
    // The reason stands last, where the eye is.
    output.remark(harmlessLines(`${name}: ${message}`))
    return status
  }
}

/** All commands of `agentctl`. */
export function programOf(line: CommandLine): Command {
  const { output } = line
  const program = new Command('agentctl')
    .exitOverride()
    .configureOutput({
      writeOut: text => output.print(text.trimEnd()),
      writeErr: () => undefined,
      getOutHelpWidth: () => 80,
      getErrHelpWidth: () => 80,
      getOutHasColors: () => false,
    })
    .configureHelp({
      subcommandTerm: command => command.name(),
      visibleOptions: command => (command.parent === null ? [] : [...command.options]),
    })
    .helpOption('-h, --help', 'show this text')
    .helpCommand(false)
    .enablePositionalOptions()
    .version(VERSION, '--version', 'show the version')
    .usage('COMMAND [arguments] [options]')
    .addHelpText('after', AFTER)
  addSetupCommands(program, line)
  addOrganisationCommands(program, line)
  addValidateCommand(program, line)
  addHistoryCommands(program, line)
  addPeopleCommands(program, line)
  addTokenCommands(program, line)
  addAgentCommands(program, line)
  addToolCommands(program, line)
  addAuditCommands(program, line)
  addKeyCommands(program, line)
  const help = {
    effect: 'reads',
    summary: 'Shows the help of a command.\nWith --json: all commands with their options and effects, for programs.',
    example: 'agentctl help token create',
  } as const
  line.add(program, 'help [COMMAND...]', help, async call => helpCommand(call, program)).option('--json', 'print JSON')
  return program
}

/** All commands that can be run. */
export function allCommands(from: Command): Command[] {
  return from.commands.flatMap(command => (command.commands.length > 0 ? allCommands(command) : [command]))
}

function helpCommand(call: Call, program: Command): undefined {
  if (!call.json) {
    let shown = program
    for (const word of call.command.args) {
      const next = shown.commands.find(command => command.name() === word)
      if (next === undefined) throw new UsageError(`there is no command ${call.command.args.join(' ')}`)
      shown = next
    }
    shown.outputHelp()
    return
  }
  const commands = allCommands(program).map(command => ({
    name: nameOf(command),
    summary: command.description(),
    effect: effectOf(command),
    arguments: command.registeredArguments.map(one => ({ name: one.name(), required: one.required })),
    options: command.options.map(({ flags, description, mandatory }) => ({ flags, description, required: mandatory })),
  }))
  call.printJson({ version: VERSION, commands, exit_statuses: EXIT })
}

/** As many words of the arguments as name a command or a group. */
function wordsOf(program: Command, args: readonly string[]): string {
  const words: string[] = []
  let command: Command | undefined = program
  for (const word of args) {
    command = command.commands.find(each => each.name() === word)
    if (command === undefined) break
    words.push(word)
  }
  return words.join(' ')
}

const SYSTEM_LOSS = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'ENOTFOUND',
  'EAI_AGAIN',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'ENETUNREACH',
])
/** PostgreSQL refuses to let us in: wrong password, no such role or database. */
const REFUSED_ENTRY = /^(28|3D)/

function explained(
  error: unknown,
  env: Readonly<Record<string, string | undefined>>,
  name: string,
): { message: string; status: number } {
  const message = error instanceof Error ? error.message : String(error)
  if (error instanceof CommanderError) {
    if (error.code === 'commander.help') return { message: 'name one of its commands', status: EXIT.usage }
    return { message: harmless(message.replace(/^error: /, '').replace(/\n/g, ' ')), status: EXIT.usage }
  }
  if (error instanceof UsageError) return { message: harmless(message), status: EXIT.usage }
  if (error instanceof UnreadableText) return { message, status: EXIT.error }
  // One sentence, with names in it that other people chose: none of them ends the line.
  if (error instanceof Refusal || error instanceof Unavailable) {
    return { message: harmless(message), status: EXIT.error }
  }
  if (error instanceof InvalidRequest || error instanceof DefinitionRefused) {
    const faults = error.faults.map(({ loc, msg }) => harmless(`${placeText(loc)}: ${msg}`))
    return { message: faults.join('\n  '), status: EXIT.error }
  }
  if (
    error instanceof InvalidConfiguration ||
    error instanceof KeyRingMissing ||
    error instanceof NotConfigured ||
    error instanceof NoDatabase ||
    error instanceof ServerUnfit
  ) {
    return { message, status: EXIT.configuration }
  }
  if (error instanceof SecretCorrupt) return { message: `${message}: agentctl keys status`, status: EXIT.configuration }
  if (error instanceof EmbeddedUnavailable) return { message, status: EXIT.unavailable }
  if (error instanceof CommitUnknown) return { message: inDoubt(name), status: EXIT.error }
  if (isUnreachable(error)) {
    const reason = rootCause(error)
    const advice = connectAdvice(env.DATABASE_URL || env.DATABASE_URL_FILE, error)
    return { message: `the database cannot be reached: ${reason}; ${advice}`, status: EXIT.unavailable }
  }
  if (classifyDatabaseError(error).kind === 'read_only') {
    const message = 'the database accepts no changes at present, as while it fails over: try again'
    return { message, status: EXIT.unavailable }
  }
  if (codeOf(error) === SQLSTATE.insufficientPrivilege) {
    return { message: `the role of DATABASE_URL lacks a right: ${message}`, status: EXIT.error }
  }
  const { kind, constraint } = classifyDatabaseError(error)
  if (kind === 'constraint') {
    const rule = constraint ?? 'one of its rules'
    return { message: `this would break the database's rule ${rule}; nothing was changed`, status: EXIT.error }
  }
  if (kind === 'lock_timeout') {
    return {
      message: 'another process holds a lock for too long; nothing was changed, try again',
      status: EXIT.error,
    }
  }
  const stack = error instanceof Error ? error.stack : undefined
  if (stack !== undefined && env.LOG_LEVEL === 'debug') return { message: stack, status: EXIT.error }
  return { message: `${message} (LOG_LEVEL=debug shows where)`, status: EXIT.error }
}

/** What to do about a change of which nobody knows whether it was stored. */
function inDoubt(name: string): string {
  const [group] = name.split(' ')
  const makes = `look before you repeat it, for that may make a second one: agentctl ${group} list`
  const next: Readonly<Record<string, string>> = {
    'token create':
      'agentctl token list shows it if it is: revoke it, for nobody was shown its secret, and create another',
    'token rotate':
      'agentctl token list shows the new one if it is: revoke it, for nobody was shown its secret, and rotate again',
    'agent create': makes,
    'tool create': makes,
    apply: 'apply the document again: what is stored already is left as it is',
  }
  const remedy = next[name] ?? 'look at what is stored before you repeat it'
  return `the connection to the database was lost as it stored the change, and whether it is stored is not known; ${remedy}`
}

function isUnreachable(error: unknown): boolean {
  if (error instanceof ConnectionLost || error instanceof PoolExhausted || error instanceof DatabaseClosed) {
    return true
  }
  const code = codeOf(error)
  if (code === 'ENOENT') return error instanceof Error && 'syscall' in error && error.syscall === 'connect' // no socket there
  if (SYSTEM_LOSS.has(code) || REFUSED_ENTRY.test(code)) return true
  return ['connection_lost', 'shutting_down', 'too_many_connections'].includes(classifyDatabaseError(error).kind)
}

function codeOf(error: unknown): string {
  return typeof error === 'object' && error !== null && 'code' in error ? String(error.code) : ''
}
