import { CommanderError, Option, Command as Parser } from 'commander'
import { VERSION } from '../../version.js'
import { type Command, EXIT, type OptionSpec, type Output, UsageError } from './command.js'

/** A command line that was understood: which command, with what. */
export interface Parsed {
  command: Command
  positionals: string[]
  /** By the names of the options, without the dashes. */
  values: Record<string, unknown>
}

const EMBEDDED: OptionSpec = {
  type: 'boolean',
  description: 'Make an embedded database where there is none yet.',
}

/** The first argument of the commands that take both kinds. */
export const KINDS = 'agent|tool'
const KIND_WORDS = ['agent', 'persona', 'tool']

/** Another word for a group. */
export const GROUP_ALIASES: Readonly<Record<string, string>> = { agent: 'persona' }

/**
 * Reads a command line. Answers what to run, or the exit status where help or version was asked for and printed.
 * Throws `UsageError` with what is wrong, and with what was probably meant.
 */
export function parseCommandLine(
  commands: readonly Command[],
  args: readonly string[],
  output: Output,
): Parsed | { status: number } {
  const asksHelp = args.length === 0 || args[0] === 'help'
  const asked = [...inOrder(commands, asksHelp ? args.slice(1) : args), ...(asksHelp ? ['--help'] : [])]
  let found: Parsed | undefined
  try {
    parserOf(commands, output, parsed => {
      found = parsed
    }).parse(toFirstUnknown(commands, asked), { from: 'user' })
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error
    if (error.code === 'commander.help') throw new UsageError(`name one of ${namesBelow(commands, asked)}`)
    if (error.exitCode === 0) return { status: EXIT.ok }
    throw new UsageError(error.message.replace(/^error: /, '').replace(/\n/g, ' '))
  }
  return found ?? { status: EXIT.ok }
}

/** The words as far as they begin a command, with the first that does not: help of what there is not would be that of something else. */
function toFirstUnknown(commands: readonly Command[], words: readonly string[]): readonly string[] {
  let left = commands.map(({ name }) => name.split(' '))
  for (const [index, word] of words.entries()) {
    if (word.startsWith('-') || left.some(name => name.length === index)) return words
    left = left.filter(name => name[index] === word || GROUP_ALIASES[name[index] ?? ''] === word)
    if (left.length === 0) return words.slice(0, index + 1)
  }
  return words
}

/** What is asked of either kind is asked in either order: `agent history 7` is `history agent 7`. */
function inOrder(commands: readonly Command[], args: readonly string[]): readonly string[] {
  const [kind = '', name, ...rest] = args
  const isOfKinds = commands.some(command => command.name === name && command.positionals[0] === KINDS)
  return isOfKinds && KIND_WORDS.includes(kind) ? [name ?? '', kind, ...rest] : args
}

/** The next words of the commands that begin with these. */
function namesBelow(commands: readonly Command[], words: readonly string[]): string {
  const start = `${words.join(' ')} `
  const below = commands.filter(({ name }) => name.startsWith(start))
  return [...new Set(below.map(({ name }) => name.slice(start.length).split(' ')[0]))].join(', ')
}

function parserOf(commands: readonly Command[], output: Output, found: (parsed: Parsed) => void): Parser {
  const program = new Parser('agentctl')
  program
    .exitOverride()
    .configureOutput({ writeOut: text => output.print(text.trimEnd()), writeErr: () => undefined })
    .configureHelp({ subcommandTerm: group => group.name(), helpWidth: output.columns ?? 80 })
    .helpOption('-h, --help', 'Show this text.')
    .helpCommand(false)
    .enablePositionalOptions() // so that --version after a command is the command's
    .version(VERSION, '--version', 'Show the version.')
    .usage('COMMAND [arguments] [--help]')
    .addHelpText('after', `\n${AFTER}`)
  for (const command of commands) addCommand(program, command, found)
  describeGroups(program)
  return program
}

const AFTER = [
  'The database is that of DATABASE_URL, or the embedded one in DATA_DIR that the',
  'server made. Exit status: 0 done; 1 findings or refused; 2 usage, or --plan',
  'found something to do; 69 database unreachable; 74 output not written;',
  '76 connection lost, not known whether it is stored; 78 configuration.',
].join('\n')

/** What stands for an argument, in the help of every command that takes it. */
const EXPLAINED: Readonly<Record<string, string>> = {
  AGENT: 'AGENT is an id, or a name that only one agent has.',
  TOOL: 'TOOL is an id, or a name that only one tool has.',
  GROUP: 'GROUP is a name or an id.',
}

function addCommand(program: Parser, command: Command, found: (parsed: Parsed) => void): void {
  const words = command.name.split(' ')
  const leaf = words
    .slice(0, -1)
    .reduce(groupOf, program)
    .command(words.at(-1) ?? '')
  const details = [command.details, ...command.positionals.map(place => EXPLAINED[place])].filter(Boolean).join('\n')
  leaf.description([command.summary, details].filter(Boolean).join('\n\n')).summary(command.summary)
  for (const place of placesOf(command)) leaf.argument(place)
  leaf.usage(formOf(command))
  leaf.exitOverride(error => {
    if (error.code === 'commander.excessArguments') throw otherForm(command, tooMany(command))
    if (error.code === 'commander.missingArgument') throw otherForm(command)
    throw error
  })
  const specs = command.offline ? command.options : { ...command.options, embedded: EMBEDDED }
  const options = Object.entries(specs).flatMap(([name, spec]) => addOption(leaf, name, spec))
  leaf.action(() => {
    const values: Record<string, unknown> = {}
    for (const { name, option } of options) {
      const value: unknown = leaf.getOptionValue(option.attributeName())
      if (Array.isArray(value)) values[name] = [...(Array.isArray(values[name]) ? values[name] : []), ...value]
      else if (value !== undefined) values[name] = value
    }
    // Not by the parser: it would tell of the missing one before the mistyped one.
    const isComplete = Object.entries(command.options).every(([name, { required }]) => !required || name in values)
    if (!isComplete) throw otherForm(command)
    found({ command, positionals: leaf.args, values })
  })
}

function otherForm(command: Command, fault = ''): UsageError {
  return new UsageError(`${fault}the form is agentctl ${command.name} ${formOf(command)}`)
}

/** Not what it is: it may be a secret whose option was forgotten. */
function tooMany({ positionals, options }: Command): string {
  const known = positionals.length === 0 ? 'no argument' : `no more than ${positionals.join(' ')}`
  return `it takes ${known}${'name' in options ? ', and a name as --name NAME' : ''}: `
}

function placesOf({ positionals }: Command): string[] {
  return positionals.map(text => (text.startsWith('[') ? text : `<${text}>`))
}

/** What stands behind the words of a command: `<ID> --to <VERSION> [options]`. */
function formOf(command: Command): string {
  const required = Object.entries(command.options).filter(([, { required }]) => required)
  return [...placesOf(command), ...required.map(([name, { value }]) => `--${name} <${value}>`), '[options]'].join(' ')
}

function groupOf(parent: Parser, name: string): Parser {
  const existing = parent.commands.find(command => command.name() === name)
  if (existing) return existing
  const group = parent.command(name).helpCommand(false)
  const alias = GROUP_ALIASES[name]
  return alias === undefined ? group : group.alias(alias)
}

/** The option and its other word, which fill the same value. */
function addOption(leaf: Parser, name: string, spec: OptionSpec): { name: string; option: Option }[] {
  return [name, spec.alias].flatMap((word, index) => {
    if (word === undefined) return []
    const short = index === 0 && spec.short !== undefined ? `-${spec.short}, ` : ''
    const flags = short + (spec.type === 'boolean' ? `--${word}` : `--${word} <${spec.value ?? 'TEXT'}>`)
    const option = new Option(flags, spec.description)
    if (spec.choices) option.choices(spec.choices)
    if (spec.multiple) {
      const one = option.parseArg
      option.argParser((value: string, before: string[] = []) => {
        if (spec.choices) one?.(value, before)
        return [...before, value]
      })
    }
    if (index > 0) option.hideHelp()
    leaf.addOption(option)
    return [{ name, option }]
  })
}

/** What a group holds is what there is to say of it. */
function describeGroups(parent: Parser): void {
  for (const group of parent.commands.filter(command => command.commands.length > 0)) {
    describeGroups(group)
    const names = group.commands.map(command => command.name())
    group.description(names.join(', ')).usage('COMMAND [arguments] [--help]')
    if (KIND_WORDS.includes(group.name())) group.addHelpText('after', '\nhistory, diff and rollback take both kinds.')
  }
}
