import { type Command, InvalidArgumentError } from 'commander'
import { type Config, misspeltWarning, readConfig } from '../../config.js'
import { CommitUnknown, classifyDatabaseError, rootCause, ServerUnfit } from '../../db/connection/database-error.js'
import type { Database } from '../../db/database.js'
import { schemaAdvice, schemaState } from '../../db/migrate.js'
import { type OpenedDatabase, openConfiguredDatabase } from '../../db/open.js'
import { configuredKeyRing } from '../../secrets/configured-ring.js'
import type { KeyRing } from '../../secrets/key-ring.js'
import { unusableKeys } from '../../secrets/stored-keys.js'
import type { Actor } from '../../updates/audit.js'
import { parseDateTime } from '../../validation/vocabulary.js'
import { VERSION } from '../../version.js'
import { operatorActor } from '../operator.js'
import { EXIT, Refusal, StoredInDoubt } from '../refusal.js'
import { type Cell, harmless, harmlessLines, jsonText, tableLines } from '../terminal.js'

/** The command line is invalid. */
export class UsageError extends Error {}

/** The schema does not fit this program, or no database is configured. */
export class NotConfigured extends Error {}

/** The output of a command. */
export interface Output {
  /** Writes a line to standard output. */
  print(text: string): void
  /** Writes a line to standard error. */
  remark(text: string): void
  /** True if standard output is a terminal. */
  isTerminal: boolean
  /** Asks the user a question; absent without a terminal. */
  ask?: (question: string) => Promise<string>
}

/** The words of a command after `agentctl`: `token create`. */
export function nameOf(command: Command): string {
  return command.parent === null ? '' : `${nameOf(command.parent)} ${command.name()}`.trim()
}

export type Environment = Readonly<Record<string, string | undefined>>

/** Commands that share an environment and an output. */
export class CommandLine {
  /** The exit status of the command that was run. */
  status: number = EXIT.ok

  constructor(
    readonly env: Environment,
    readonly output: Output,
  ) {}

  /**
   * Adds a command. `usage` is its name and arguments, `example` the arguments in its help. `run` receives the parsed options and
   * arguments, and returns the exit status, or undefined for success.
   */
  add<Options extends object, Arguments extends unknown[]>(
    parent: Command,
    usage: string,
    example: string,
    run: (call: Call, options: Options, ...args: Arguments) => Promise<number | undefined>,
  ): Command {
    const command = parent.command(usage)
    command.addHelpText('after', `\nExample:\n  agentctl ${nameOf(command)} ${example}`.trimEnd())
    return command.action(async () => {
      const call = new Call(command, this.env, this.output)
      try {
        const args = command.processedArgs as Arguments // their types follow from `usage` and its parsers
        this.status = (await run(call, command.opts<Options>(), ...args)) ?? EXIT.ok
      } finally {
        await call.close()
      }
    })
  }
}

/** A command such as a migration or an audit verification may take minutes. */
const PATIENCE = { STATEMENT_TIMEOUT_MS: '600000' }

/** One call of a command, with its output and database. */
export class Call {
  #actor: Actor | undefined
  #config: Config | undefined
  #opened: Promise<OpenedDatabase> | undefined

  constructor(
    readonly command: Command,
    readonly env: Environment,
    readonly output: Output,
  ) {}

  /** The configuration, read on first use. Throws `InvalidConfiguration`. */
  get config(): Config {
    const given = Object.entries(this.env).filter(([, value]) => value !== '')
    this.#config ??= readConfig({ ...PATIENCE, ...Object.fromEntries(given) })
    return this.#config
  }

  /** The author of this command for the audit trail: its name with the given options, without their values. */
  get actor(): Actor {
    const given = this.command.options.filter(
      option => this.command.getOptionValueSource(option.attributeName()) === 'cli',
    )
    const words = [nameOf(this.command), ...given.map(option => `--${option.name()}`)]
    this.#actor ??= operatorActor(`agentctl ${words.join(' ')}`)
    return this.#actor
  }

  get json(): boolean {
    return this.command.opts<{ json?: boolean }>().json === true
  }

  /** Prints one line. Control characters, including newlines, are escaped. */
  print(text: string): void {
    this.output.print(harmless(text))
  }

  /** Prints a field with its lines indented, so that they cannot be mistaken for output of the program. */
  printBlock(field: string, lines: readonly string[]): void {
    this.print(`    ${field}:`)
    for (const line of lines) this.print(`      ${line}`)
  }

  /** Prints rows in columns. */
  printTable(rows: readonly (readonly Cell[])[]): void {
    for (const line of tableLines(rows)) this.print(line)
  }

  /** Prints a value as JSON. */
  printJson(value: unknown): void {
    this.output.print(jsonText(value))
  }

  /** Prints the value with `--json`, else `shown`. */
  answer(value: unknown, shown: string | (() => void)): undefined {
    if (this.json) this.printJson(value)
    else if (typeof shown === 'string') this.print(shown)
    else shown()
  }

  /** Prints rows as JSON, or as a table with these columns. */
  list<Row>(rows: readonly Row[], columns: Readonly<Record<string, (row: Row) => Cell>>): undefined {
    const cells = rows.map(row => Object.values(columns).map(cell => cell(row)))
    this.answer(rows, () => this.printTable([Object.keys(columns), ...cells]))
  }

  /** Prints a text unchanged. On a terminal control characters are escaped. */
  printExact(text: string): void {
    this.output.print(this.output.isTerminal ? harmlessLines(text) : text)
  }

  /** Writes a remark to standard error. */
  remark(text: string): void {
    this.output.remark(harmlessLines(text))
  }

  /** The database of DATABASE_URL, or the embedded one of a running service, with any schema. Throws `NoDatabase`. */
  async rawDatabase(): Promise<OpenedDatabase> {
    if (this.#opened === undefined) for (const warning of misspeltWarning(this.env)) this.remark(warning)
    this.#opened ??= openConfiguredDatabase(this.config, {}, () => undefined, 'command')
    return await this.#opened
  }

  /** The database, if it has the schema that this program needs. Throws `NotConfigured`. */
  async database(): Promise<Database> {
    const { database } = await this.rawDatabase()
    const state = await schemaState(database.db, VERSION)
    if (state.kind === 'behind') {
      const { lack, command } = schemaAdvice(state)
      throw new NotConfigured(`${lack}: run ${command}`)
    }
    if (state.kind === 'ahead') throw schemaAhead(state)
    return database
  }

  async db(): Promise<Database['db']> {
    return (await this.database()).db
  }

  /** The key ring. An embedded database is opened first, because its key file is created next to its data. */
  async ring(): Promise<KeyRing> {
    if (this.config.database.url === undefined) await this.rawDatabase()
    return await configuredKeyRing(this.config)
  }

  /** The key ring for a command that stores or compares secrets. Throws `Refusal` or `KeyRingMissing` if it does not open the stored ones. */
  async rightRing(): Promise<KeyRing> {
    const ring = await this.ring()
    const keys = await unusableKeys((await this.database()).db, ring)
    if (keys.length === 0) return ring
    const remedy = 'put them into SECRET_KEYS (or SECRET_KEYS_FILE), or send the values that need them anew'
    throw new Refusal(
      `the key ring lacks the right keys of stored secrets, ${keys.join(', ')}: ${remedy}; see agentctl keys status`,
    )
  }

  /** Runs work of several transactions. Throws `StoredInDoubt` if the connection is lost between them. */
  async inSteps<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work()
    } catch (error) {
      const isLost = classifyDatabaseError(error).kind === 'connection_lost'
      if (!isLost || error instanceof CommitUnknown || error instanceof ServerUnfit) throw error
      throw new StoredInDoubt(
        `the connection was lost (${rootCause(error)}) and a part may be stored: repeat this command`,
      )
    }
  }

  /** Closes the database if it was opened. */
  async close(): Promise<void> {
    const opened = await this.#opened?.catch(() => undefined)
    await opened?.close()
  }
}

export function schemaAhead({ oldestProgram }: { oldestProgram: string }): NotConfigured {
  return new NotConfigured(`the schema needs at least version ${oldestProgram} of this program: update it`)
}

/* Parsers of options and arguments. Commander prefixes their errors with the option. */

/** Collects the values of an option that may be repeated. */
export function collected(value: string, before: string[] = []): string[] {
  return [...before, value]
}

/** Parses an id: a whole number from 1. */
export function wholeNumber(text: string): number {
  if (!/^[1-9]\d{0,9}$/.test(text) || Number(text) > 2_147_483_647)
    throw new InvalidArgumentError('It must be a whole number from 1.')
  return Number(text)
}

/** Parses a time in UTC. */
export function dateTime(text: string): string {
  const date = parseDateTime(text)
  if (date === undefined)
    throw new InvalidArgumentError('It must be a date such as 2026-01-31 or 2026-01-31T12:00:00Z.')
  return date
}

const UNIT_S: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3600, d: 86_400 }

/** Parses a duration such as `90d`, `12h`, `30m` or `45s` to seconds; at most ten years. */
export function durationS(text: string): number {
  const [, count, unit] = /^(\d{1,9})([smhd])$/.exec(text) ?? []
  const seconds = Number(count) * (UNIT_S[unit ?? ''] ?? Number.NaN)
  if (!(seconds > 0 && seconds <= 3653 * 86_400))
    throw new InvalidArgumentError('It must be a length of time such as 90d, 12h or 30m, at most ten years.')
  return seconds
}
