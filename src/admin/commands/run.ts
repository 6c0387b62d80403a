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
import { PartlyApplied } from '../apply.js'
import { withProgramName } from '../program-name.js'
import { placeText, Refusal } from '../refusal.js'
import { OutputLost, UnreadableText } from '../source.js'
import { harmless, harmlessLines } from '../terminal.js'
import { agentCommands } from './agents.js'
import { auditCommands } from './audit.js'
import { Call, type Command, EXIT, NotConfigured, type Output, UsageError } from './command.js'
import { completionCommand } from './completion.js'
import { historyCommands } from './history.js'
import { keyCommands } from './keys.js'
import { organisationCommands } from './organisation.js'
import { peopleCommands } from './people.js'
import { parseCommandLine } from './program.js'
import { setupCommands } from './setup.js'
import { tokenCommands } from './tokens.js'
import { toolCommands } from './tools.js'
import { validateCommand } from './validate.js'

export const COMMANDS: readonly Command[] = [
  ...setupCommands,
  ...organisationCommands,
  ...peopleCommands,
  ...tokenCommands,
  ...agentCommands,
  ...toolCommands,
  validateCommand,
  ...historyCommands,
  ...auditCommands,
  ...keyCommands,
  completionCommand(() => COMMANDS),
]

/** Runs one command line and answers the exit status, as `EXIT` lists them. Never throws. */
export async function run(
  args: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
  output: Output,
): Promise<number> {
  let name = commandWords(args)
  try {
    const parsed = parseCommandLine(COMMANDS, args, output)
    if ('status' in parsed) return parsed.status
    name = parsed.command.name
    const call = new Call(parsed.command, parsed.positionals, parsed.values, env, output)
    try {
      return (await parsed.command.run(call)) ?? EXIT.ok
    } finally {
      await call.close()
    }
  } catch (error) {
    const { message, status } = explained(error, env, name)
    const help = ['agentctl', name, '--help'].filter(Boolean).join(' ')
    if (status === EXIT.usage) output.remark(`See: ${withProgramName(help, env)}`)
    // The reason stands last, where the eye is.
    const hint = withProgramName(message, env)
    output.remark(harmlessLines(`${['agentctl', name].filter(Boolean).join(' ')}: ${hint}`))
    return status
  }
}

/** As many words of the arguments as name a command or a group. */
function commandWords(args: readonly string[]): string {
  for (let count = 3; count > 0; count--) {
    const words = args.slice(0, count).join(' ')
    if (COMMANDS.some(({ name }) => `${name} `.startsWith(`${words} `))) return words
  }
  return ''
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

function explained(
  error: unknown,
  env: Readonly<Record<string, string | undefined>>,
  name: string,
): { message: string; status: number } {
  const message = error instanceof Error ? error.message : String(error)
  if (error instanceof PartlyApplied) {
    const reason = explained(error.cause, env, name)
    return { ...reason, message: `${reason.message.replace('; nothing was changed', '')}; ${message}` }
  }
  if (error instanceof UsageError) return { message: harmless(message), status: EXIT.usage }
  if (error instanceof OutputLost) return { message, status: EXIT.output }
  if (error instanceof UnreadableText) return { message, status: EXIT.refused }
  // One sentence, with names in it that other people chose: none of them ends the line.
  if (error instanceof Refusal || error instanceof Unavailable) {
    return { message: harmless(message), status: EXIT.refused }
  }
  if (error instanceof InvalidRequest) {
    const faults = error.faults.map(({ loc, msg }) => harmless(`${placeText(loc)}: ${msg}`))
    return { message: faults.join('\n  '), status: EXIT.refused }
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
  if (error instanceof EmbeddedUnavailable) return { message, status: EXIT.unreachable }
  if (error instanceof CommitUnknown) return { message: inDoubt(name), status: EXIT.unknown }
  if (isUnreachable(error)) {
    const reason = rootCause(error)
    const advice = connectAdvice(env.DATABASE_URL || env.DATABASE_URL_FILE, error)
    return { message: `the database cannot be reached: ${reason}; ${advice}`, status: EXIT.unreachable }
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
  const stack = error instanceof Error ? error.stack : undefined
  if (stack !== undefined && env.LOG_LEVEL === 'debug') return { message: stack, status: EXIT.refused }
  return { message: `${message} (LOG_LEVEL=debug shows where)`, status: EXIT.refused }
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
  if (SYSTEM_LOSS.has(code) || REFUSED_ENTRY.test(code)) return true
  return ['connection_lost', 'shutting_down', 'too_many_connections'].includes(classifyDatabaseError(error).kind)
}

function codeOf(error: unknown): string {
  return typeof error === 'object' && error !== null && 'code' in error ? String(error.code) : ''
}
