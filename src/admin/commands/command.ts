import { type Command, InvalidArgumentError } from 'commander'
import { type Config, misspeltWarning, readConfig } from '../../config.js'
import type { Database } from '../../db/database.js'
import { type SchemaState, schemaAdvice, schemaState } from '../../db/migrate.js'
import { NotConfigured, type OpenedDatabase, openConfiguredDatabase } from '../../db/open.js'
import { configuredKeyRing } from '../../secrets/configured-ring.js'
import type { KeyRing } from '../../secrets/key-ring.js'
import type { Actor } from '../../updates/resource.js'
import { parseDateTime } from '../../validation/vocabulary.js'
import { VERSION } from '../../version.js'
import { jsonText } from '../document-text.js'
import { operatorActor } from '../operator.js'
import { EXIT } from '../refusal.js'
import { type Cell, harmless, harmlessLines, tableLines } from '../terminal.js'

export class UsageError extends Error {}

export interface Output {
  /** Writes a line to standard output. */
  print(text: string): void
  /** Writes a line to standard error. */
  remark(text: string): void
}

/** Returns the name of a command without `agentctl`, for example `token create`. */
export function nameOf(command: Command): string {
  return command.parent === null ? '' : `${nameOf(command.parent)} ${command.name()}`.trim()
}

export type Environment = Readonly<Record<string, string | undefined>>

/** The statement timeout of commands. Migrations and audit verification can take minutes. */
const PATIENCE = { STATEMENT_TIMEOUT_MS: '600000' }

/** One run of `agentctl`, with its environment, output and database. */
export class CommandLine {
  status: number = EXIT.ok
  /** True once the database has answered. If the connection is lost later, a change may have been stored. */
  connected = false
  #command: Command | undefined
  #actor: Actor | undefined
  #opened: Promise<OpenedDatabase> | undefined

  constructor(
    readonly env: Environment,
    readonly output: Output,
  ) {}

  /**
   * Adds a command. `usage` is its name and arguments. `example` contains the arguments that the help shows as an example. `run` returns the exit
   * status, or undefined for success.
   */
  add<Options extends object, Arguments extends unknown[]>(
    parent: Command,
    usage: string,
    example: string,
    run: (call: CommandLine, options: Options, ...args: Arguments) => Promise<number | undefined>,
  ): Command {
    const command = parent.command(usage)
    command.addHelpText('after', `\nExample:\n  agentctl ${nameOf(command)} ${example}`.trimEnd())
    return command.action(async () => {
      this.#command = command
      try {
        const args = command.processedArgs as Arguments // `usage` and its parsers determine the types
        this.status = (await run(this, command.opts<Options>(), ...args)) ?? EXIT.ok
      } finally {
        await (await this.#opened?.catch(() => undefined))?.close()
      }
    })
  }

  /** Reads the configuration. Throws `InvalidConfiguration`. */
  get config(): Config {
    const given = Object.entries(this.env).filter(([, value]) => value !== '')
    return readConfig({ ...PATIENCE, ...Object.fromEntries(given) })
  }

  /** The operator as the author in the audit trail, with the name of this command and its options. Option values are omitted. */
  get actor(): Actor {
    const command = this.#command
    const isGiven = (name: string) => command?.getOptionValueSource(name) === 'cli'
    const given = command?.options.filter(option => isGiven(option.attributeName())) ?? []
    const words = [command && nameOf(command), ...given.map(option => `--${option.name()}`)]
    this.#actor ??= operatorActor(`agentctl ${words.join(' ')}`)
    return this.#actor
  }

  get json(): boolean {
    return this.#command?.opts<{ json?: boolean }>().json === true
  }

  /** Prints one line. Control characters, including newlines, are escaped. */
  print(text: string): void {
    this.output.print(harmless(text))
  }

  printTable(rows: readonly (readonly Cell[])[]): void {
    for (const line of tableLines(rows)) this.print(line)
  }

  /** With `--json`, prints `value` as JSON. Otherwise prints `shown`, or calls `shown` if it is a function. */
  answer(value: unknown, shown: string | (() => void)): undefined {
    if (this.json) this.output.print(jsonText(value))
    else if (typeof shown === 'string') this.print(shown)
    else shown()
  }

  /** With `--json`, prints `rows` as JSON. Otherwise prints a table with `columns`. */
  list<Row>(rows: readonly Row[], columns: Readonly<Record<string, (row: Row) => Cell>>): undefined {
    const cells = rows.map(row => Object.values(columns).map(cell => cell(row)))
    this.answer(rows, () => this.printTable([Object.keys(columns), ...cells]))
  }

  remark(text: string): void {
    this.output.remark(harmlessLines(text))
  }

  async #open(): Promise<OpenedDatabase> {
    if (this.#opened === undefined) for (const warning of misspeltWarning(this.env)) this.remark(warning)
    this.#opened ??= openConfiguredDatabase(this.config, () => undefined, undefined, 'command')
    return await this.#opened
  }

  /**
   * Opens the database at DATABASE_URL, or the embedded one, and reads the state of its schema. Throws `NotConfigured` if there is no database or
   * its schema requires a newer program.
   */
  async rawDatabase(): Promise<OpenedDatabase & { schema: Exclude<SchemaState, { kind: 'ahead' }> }> {
    const opened = await this.#open()
    const schema = await schemaState(opened.database.db, VERSION)
    this.connected = true
    if (schema.kind === 'ahead')
      throw new NotConfigured(`the database schema needs agentctl ${schema.oldestProgram} or later: update agentctl`)
    return { ...opened, schema }
  }

  /** Opens the database. Throws `NotConfigured` unless its schema is current. */
  async database(): Promise<Database> {
    const { database, schema } = await this.rawDatabase()
    if (schema.kind === 'current') return database
    const { lack, command } = schemaAdvice(schema)
    throw new NotConfigured(`${lack}: run ${command}`)
  }

  async db(): Promise<Database['db']> {
    return (await this.database()).db
  }

  /** Reads the key ring. Opens an embedded database first, because its key file must not be created if the database does not exist. */
  async ring(): Promise<KeyRing> {
    if (this.config.database.url === undefined) await this.#open()
    return configuredKeyRing(this.config)
  }
}

/* Parsers of options and arguments. Commander adds the option's name to their error messages. */

/** Parses a whole number from 1 to 2,147,483,647. */
export function wholeNumber(text: string): number {
  if (!/^[1-9]\d{0,9}$/.test(text) || Number(text) > 2_147_483_647)
    throw new InvalidArgumentError('It must be a whole number from 1 to 2147483647.')
  return Number(text)
}

/** Parses a date or time, in UTC if it has no offset. Returns ISO 8601. */
export function dateTime(text: string): string {
  const date = parseDateTime(text)
  if (date === undefined)
    throw new InvalidArgumentError('It must be a date or time such as 2026-01-31 or 2026-01-31T12:00:00Z.')
  return date
}

const UNIT_S: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3600, d: 86_400 }

/** Parses a duration of at most ten years, such as `90d`, `12h`, `30m` or `45s`. Returns seconds. */
export function durationS(text: string): number {
  const [, count, unit] = /^(\d{1,9})([smhd])$/.exec(text) ?? []
  const seconds = Number(count) * (UNIT_S[unit ?? ''] ?? Number.NaN)
  if (!(seconds > 0 && seconds <= 3653 * 86_400))
    throw new InvalidArgumentError('It must be "never", or a duration such as 90d, 12h or 30m, at most ten years.')
  return seconds
}
