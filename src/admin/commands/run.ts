import { InvalidConfiguration } from '../../config.js'
import { ConnectionLost, DatabaseClosed, PoolExhausted, rootCause } from '../../db/connection/database-error.js'
import { classifyDatabaseError, SQLSTATE } from '../../db/connection/sqlstate.js'
import { EmbeddedUnavailable } from '../../db/embedded/embedded.js'
import { connectAdvice } from '../../db/open.js'
import { InvalidRequest, Unavailable } from '../../errors.js'
import { SecretCorrupt } from '../../secrets/cipher.js'
import { KeyRingMissing } from '../../secrets/configured-ring.js'
import { VERSION } from '../../version.js'
import { placeText, Refusal } from '../refusal.js'
import { type Command, EXIT, helpOf, type Output, parseCall, SchemaUnfit, table, UsageError } from './command.js'
import { historyCommands } from './history.js'
import { operationCommands } from './operation.js'
import { organisationCommands } from './organisation.js'
import { peopleCommands } from './people.js'
import { resourceCommands } from './resources.js'
import { tokenCommands } from './tokens.js'

export const COMMANDS: readonly Command[] = [
  ...organisationCommands,
  ...peopleCommands,
  ...tokenCommands,
  ...resourceCommands,
  ...historyCommands,
  ...operationCommands,
]

/**
 * Runs one command line and answers the exit status: 0 done, 1 findings or refused, 2 usage, 69 the database cannot be reached,
 * 78 configuration. Never throws.
 */
export async function run(
  args: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
  output: Output,
): Promise<number> {
  if (args[0] === '--version') {
    output.print(VERSION)
    return EXIT.ok
  }
  const found = commandOf(args)
  if (found === undefined) return overview(args, output)
  try {
    const call = parseCall(found.command, found.rest, env, output)
    if (call === 'help') {
      output.print(helpOf(found.command))
      return EXIT.ok
    }
    try {
      return (await found.command.run(call)) ?? EXIT.ok
    } finally {
      await call.close()
    }
  } catch (error) {
    const { message, status } = explained(error, env.DATABASE_URL)
    output.remark(`agentctl ${found.command.name}: ${message}`)
    if (status === EXIT.usage) output.remark(`See: agentctl ${found.command.name} --help`)
    return status
  }
}

/** The command whose name is the longest that the arguments start with. */
function commandOf(args: readonly string[]): { command: Command; rest: readonly string[] } | undefined {
  for (let words = 3; words > 0; words--) {
    const name = args.slice(0, words).join(' ')
    const command = COMMANDS.find(known => known.name === name)
    if (command !== undefined && args.length >= words) return { command, rest: args.slice(words) }
  }
  return undefined
}

function overview(args: readonly string[], output: Output): number {
  const words = args.filter(word => !word.startsWith('-'))
  const group = COMMANDS.filter(command => command.name.startsWith(`${words[0]} `))
  const asksHelp = words.length < args.length || args.length === 0
  const isKnown = words.length === 0 || COMMANDS.some(command => command.name.startsWith(`${words.join(' ')} `))
  const shown = group.length > 0 ? group : COMMANDS
  const lines = [
    'Usage: agentctl COMMAND [arguments] [--help]',
    '',
    table(shown.map(({ name, summary }) => [`  ${name}`, summary])),
  ]
  const help = [
    ...lines,
    '',
    'The database is that of DATABASE_URL, or the embedded one in DATA_DIR, as for the server.',
    'Exit status: 0 done, 1 findings or refused, 2 usage, 69 database unreachable, 78 configuration.',
  ].join('\n')
  if (isKnown && asksHelp) {
    output.print(help)
    return EXIT.ok
  }
  if (!isKnown) output.remark(`agentctl: there is no command "${words.join(' ')}"`)
  output.remark(help)
  return EXIT.usage
}

const SYSTEM_LOSS = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'ENOTFOUND',
  'EAI_AGAIN',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'EPIPE',
  'ENOENT',
])
/** PostgreSQL refuses to let us in: wrong password, no such role or database. */
const REFUSED_ENTRY = /^(28|3D)/

function explained(error: unknown, url: string | undefined): { message: string; status: number } {
  const message = error instanceof Error ? error.message : String(error)
  if (error instanceof UsageError) return { message, status: EXIT.usage }
  if (error instanceof Refusal || error instanceof Unavailable) return { message, status: EXIT.refused }
  if (error instanceof InvalidRequest) {
    const faults = error.faults.map(({ loc, msg }) => `${placeText(loc)}: ${msg}`)
    return { message: faults.join('\n  '), status: EXIT.refused }
  }
  if (error instanceof InvalidConfiguration || error instanceof KeyRingMissing || error instanceof SchemaUnfit) {
    return { message, status: EXIT.configuration }
  }
  if (error instanceof SecretCorrupt) return { message: `${message}: agentctl keys status`, status: EXIT.configuration }
  if (error instanceof EmbeddedUnavailable) return { message, status: EXIT.unreachable }
  if (isUnreachable(error)) {
    return {
      message: `the database cannot be reached: ${rootCause(error)}; ${connectAdvice(url)}`,
      status: EXIT.unreachable,
    }
  }
  if (classifyDatabaseError(error).kind === 'read_only') {
    const message = 'the database accepts no changes at present, as while it fails over: try again'
    return { message, status: EXIT.unreachable }
  }
  if (codeOf(error) === SQLSTATE.insufficientPrivilege) {
    return { message: `the role of DATABASE_URL lacks a right: ${message}`, status: EXIT.refused }
  }
  const { kind, constraint } = classifyDatabaseError(error)
  if (kind === 'constraint') {
    const rule = constraint ?? 'one of its rules'
    return { message: `this would break the database's rule ${rule}; nothing was changed`, status: EXIT.refused }
  }
  if (kind === 'lock_timeout') {
    return {
      message: 'another process holds a lock for too long; nothing was changed, try again',
      status: EXIT.refused,
    }
  }
  return { message: error instanceof Error ? (error.stack ?? message) : message, status: EXIT.refused }
}

function isUnreachable(error: unknown): boolean {
  if (error instanceof ConnectionLost || error instanceof PoolExhausted || error instanceof DatabaseClosed) {
    return true
  }
  const code = codeOf(error)
  if (SYSTEM_LOSS.has(code) || REFUSED_ENTRY.test(code)) return true
  return ['connection_lost', 'shutting_down', 'too_many_connections'].includes(classifyDatabaseError(error).kind)
}

function codeOf(error: unknown): string {
  return typeof error === 'object' && error !== null && 'code' in error ? String(error.code) : ''
}
