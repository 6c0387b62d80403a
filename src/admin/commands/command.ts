import { type ParseArgsConfig, parseArgs } from 'node:util'
import { type Config, readConfig } from '../../config.js'
import { migrate, schemaState } from '../../db/migrate.js'
import { type OpenedDatabase, openConfiguredDatabase } from '../../db/open.js'
import type { ServiceDatabase } from '../../db/transaction.js'
import { configuredKeyRing } from '../../secrets/configured-ring.js'
import type { KeyRing } from '../../secrets/key-ring.js'
import { openVault, type Vault } from '../../secrets/vault.js'
import { VERSION } from '../../version.js'

export const EXIT = { ok: 0, refused: 1, usage: 2, unreachable: 69, configuration: 78 } as const

/** The command line is not one of ours. Exit status 2. */
export class UsageError extends Error {}

/** The schema does not fit this program. Exit status 78. */
export class SchemaUnfit extends Error {}

export interface OptionSpec {
  type: 'string' | 'boolean'
  multiple?: boolean
  /** What stands for the value in the help. */
  value?: string
  description: string
}

/** One subcommand of `agentctl`. */
export interface Command {
  /** With its group: `token create`. */
  name: string
  summary: string
  /** The positional arguments: `EMAIL`, `[FILE]`, `FILE...`. */
  positionals: readonly string[]
  options: Readonly<Record<string, OptionSpec>>
  /** More for the help, whole sentences. */
  details?: string
  /** Answers the exit status; nothing is success. */
  run(call: Call): Promise<number | undefined>
}

export interface Output {
  /** A line, or several, to standard output. */
  print(text: string): void
  /** A remark to standard error. */
  remark(text: string): void
  /** Whether standard output shows colours. */
  colours: boolean
}

/** The options of every subcommand that prints results. */
export const JSON_OPTION = { json: { type: 'boolean', description: 'Print JSON.' } } as const

/** Nobody waits for a command as for a request: a migration, a check of the whole audit trail or a large document may take minutes. */
const PATIENCE = { STATEMENT_TIMEOUT_MS: '600000', IDLE_IN_TRANSACTION_TIMEOUT_MS: '600000' }

/** One call of a subcommand: its arguments, and the way to the database. */
export class Call {
  readonly config: Config
  #opened: Promise<OpenedDatabase> | undefined
  readonly #values: Readonly<Record<string, unknown>>

  constructor(
    readonly command: Command,
    readonly positionals: readonly string[],
    values: Readonly<Record<string, unknown>>,
    readonly env: Readonly<Record<string, string | undefined>>,
    readonly output: Output,
  ) {
    this.#values = values
    this.config = readConfig({ ...PATIENCE, ...env })
  }

  get json(): boolean {
    return this.flag('json')
  }

  flag(name: string): boolean {
    return this.#values[name] === true
  }

  text(name: string): string | undefined {
    const value = this.#values[name]
    return typeof value === 'string' ? value : undefined
  }

  texts(name: string): string[] {
    const value = this.#values[name]
    return Array.isArray(value) ? value.map(String) : []
  }

  /** A positional argument that the command demands. */
  argument(index: number): string {
    return this.positionals[index] ?? ''
  }

  /** A positional argument that is an id. Throws `UsageError`. */
  id(index: number): number {
    return wholeNumber(this.argument(index), this.command.positionals[index] ?? 'ID')
  }

  print(text: string): void {
    this.output.print(text)
  }

  /** Prints a value as JSON. */
  printJson(value: unknown): void {
    this.output.print(JSON.stringify(value, null, 2))
  }

  /** The database as the configuration names it, whatever its schema. */
  async rawDatabase(): Promise<OpenedDatabase> {
    this.#opened ??= openConfiguredDatabase(this.config, {}, line => this.output.remark(line))
    return await this.#opened
  }

  /** The database with the schema that this program needs; the embedded one is migrated. Throws `SchemaUnfit`. */
  async database(): Promise<ServiceDatabase> {
    const { database, embedded } = await this.rawDatabase()
    let state = await schemaState(database.db, VERSION)
    if (state.kind === 'behind' && embedded !== null) {
      await migrate(database.db)
      state = await schemaState(database.db, VERSION)
    }
    if (state.kind === 'behind')
      throw new SchemaUnfit(`the schema lacks ${state.pending.join(', ')}: run agentctl migrate`)
    if (state.kind === 'ahead')
      throw new SchemaUnfit(`the schema needs at least version ${state.oldestProgram} of this program: update it`)
    return database
  }

  async ring(): Promise<KeyRing> {
    return await configuredKeyRing(this.config)
  }

  async vault(): Promise<Vault> {
    const ring = await this.ring()
    return await openVault((await this.database()).db, ring)
  }

  /** Closes what was opened. */
  async close(): Promise<void> {
    const opened = await this.#opened?.catch(() => undefined)
    await opened?.close()
  }
}

/** Reads the arguments of one subcommand. Throws `UsageError` with what is wrong with them. */
export function parseCall(
  command: Command,
  args: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
  output: Output,
): Call | 'help' {
  const options = Object.fromEntries(
    Object.entries(command.options).map(([name, { type, multiple = false }]) => [name, { type, multiple }]),
  )
  const config = {
    args: [...args],
    options: { ...options, help: { type: 'boolean', short: 'h' } },
    allowPositionals: true,
  } satisfies ParseArgsConfig
  const { values, positionals } = parsed(config)
  if (values.help === true) return 'help'
  requirePositionals(command, positionals)
  return new Call(command, positionals, values, env, output)
}

function parsed(config: ParseArgsConfig) {
  try {
    const { values, positionals } = parseArgs(config)
    return { values: values as Record<string, unknown>, positionals }
  } catch (error) {
    if (error instanceof TypeError) throw new UsageError(error.message)
    throw error
  }
}

function requirePositionals(command: Command, given: readonly string[]): void {
  const needed = command.positionals.filter(name => !name.startsWith('[')).length
  if (given.length < needed) throw new UsageError(`${command.positionals[given.length] ?? 'an argument'} is missing`)
  if (given.length > command.positionals.length && command.positionals.at(-1)?.endsWith('...') !== true) {
    throw new UsageError(`unexpected argument: ${given[command.positionals.length]}`)
  }
}

/** A whole number from 1 that is an id. Throws `UsageError`. */
export function wholeNumber(text: string, what: string): number {
  if (!/^[1-9]\d{0,9}$/.test(text) || Number(text) > 2_147_483_647)
    throw new UsageError(`${what} must be a whole number from 1, not ${text}`)
  return Number(text)
}

const UNIT_S: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3600, d: 86_400 }

/** Seconds of a length of time such as `90d`, `12h`, `30m`, `45s`; at most ten years. Throws `UsageError`. */
export function durationS(text: string, what: string): number {
  const [, count, unit] = /^(\d{1,9})([smhd])$/.exec(text) ?? []
  const seconds = Number(count) * (UNIT_S[unit ?? ''] ?? Number.NaN)
  if (!(seconds > 0 && seconds <= 3653 * 86_400))
    throw new UsageError(`${what} must be a length of time such as 90d, 12h or 30m, at most ten years`)
  return seconds
}

/** The help of one subcommand. */
export function helpOf(command: Command): string {
  const options = { ...command.options, help: { type: 'boolean', description: 'Show this text.' } as OptionSpec }
  const rows = Object.entries(options).map(([name, { value, type, description }]) => [
    `  --${name}${type === 'string' ? ` ${value ?? 'TEXT'}` : ''}`,
    description,
  ])
  const usage = `Usage: agentctl ${[command.name, ...command.positionals, '[options]'].join(' ')}`
  return [usage, '', command.summary, ...(command.details ? ['', command.details] : []), '', table(rows)].join('\n')
}

/** Rows in columns, as wide as their longest cell. */
export function table(rows: readonly (readonly unknown[])[]): string {
  const cells = rows.map(row => row.map(cell => (cell === null || cell === undefined ? '-' : String(cell))))
  const widths: number[] = []
  for (const row of cells)
    for (const [index, cell] of row.entries()) widths[index] = Math.max(widths[index] ?? 0, cell.length)
  return cells
    .map(row =>
      row
        .map((cell, index) => cell.padEnd(widths[index] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n')
}

const COLOUR = { red: 31, green: 32, yellow: 33, dim: 2, bold: 1 } as const

/** A text in a colour, where the output shows colours. */
export function coloured(output: Output, colour: keyof typeof COLOUR, text: string): string {
  return output.colours ? `\u001b[${COLOUR[colour]}m${text}\u001b[0m` : text
}
