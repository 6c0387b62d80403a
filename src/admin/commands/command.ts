import { type Config, readConfig } from '../../config.js'
import { migrate, schemaAdvice, schemaState } from '../../db/migrate.js'
import { type OpenedDatabase, openConfiguredDatabase } from '../../db/open.js'
import type { ServiceDatabase } from '../../db/transaction.js'
import { parseDateTime } from '../../schema/date-time.js'
import { configuredKeyRing } from '../../secrets/configured-ring.js'
import type { KeyRing } from '../../secrets/key-ring.js'
import { openVault, type Vault } from '../../secrets/vault.js'
import type { Actor } from '../../updates/audit.js'
import type { AsOf } from '../../updates/past.js'
import { VERSION } from '../../version.js'
import { operatorActor } from '../operator.js'
import { withProgramName } from '../program-name.js'
import { Progress } from '../progress.js'
import { Refusal } from '../refusal.js'
import { type Cell, harmlessLines, jsonText, type Piece, rendered, tableLines } from '../terminal.js'

/**
 * How a command ends. 2 also says, after `--plan`, that something would change. From 64 on they are those of sysexits.h.
 */
export const EXIT = {
  ok: 0,
  refused: 1,
  usage: 2,
  planned: 2,
  unreachable: 69,
  output: 74,
  /** The connection was lost at the commit: what was asked for may be stored. */
  unknown: 76,
  configuration: 78,
} as const

/** The command line is not one of ours. */
export class UsageError extends Error {}

/** The schema does not fit this program, or no database is named. */
export class NotConfigured extends Error {}

export interface OptionSpec {
  type: 'string' | 'boolean'
  multiple?: boolean
  /** What stands for the value in the help. */
  value?: string
  choices?: readonly string[]
  /** The command does not run without it. */
  required?: true
  /** Another word for it, which the help does not show. */
  alias?: string
  /** One letter for it. */
  short?: string
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
  /** It needs no database. */
  offline?: boolean
  /** Answers the exit status; nothing is success. */
  run(call: Call): Promise<number | undefined>
}

/** Where a command writes to, and what is known of the person who reads it. */
export interface Output {
  /** Text to standard output, which ends its line. */
  print(text: string): void
  /** The same to standard error. */
  remark(text: string): void
  /** Whether standard output shows colours. */
  colours: boolean
  /** How many columns the terminal has; absent where standard output is not a terminal. */
  columns?: number
  /** Asks the person at the terminal; absent where nobody is there. */
  ask?(question: string): Promise<string>
}

/** The option of every subcommand that prints results. */
export const JSON_OPTION = { json: { type: 'boolean', description: 'Print JSON.' } } as const

/** The options of every subcommand that shows an agent or a tool. */
export const SHOW_OPTIONS = {
  at: {
    type: 'string',
    value: 'VERSION|DATE',
    alias: 'version',
    description:
      'As it was in this version, or at this time (RFC 3339, UTC without an offset). --version is the same word.',
  },
  ...JSON_OPTION,
} as const satisfies Record<string, OptionSpec>

/** The options of every subcommand that can say what it would do. */
export const PLAN_OPTIONS = {
  plan: { type: 'boolean', description: 'Only show what would change. Exit status 2 where something would.' },
  ...JSON_OPTION,
} as const

/** The options of every subcommand that asks before it does something that cannot be undone. */
export const DELETE_OPTIONS = { yes: { type: 'boolean', description: 'Do not ask.' }, ...PLAN_OPTIONS } as const

/** Nobody waits for a command as for a request: a migration, a check of the whole audit trail or a large document may take minutes. */
const PATIENCE = { STATEMENT_TIMEOUT_MS: '600000', IDLE_IN_TRANSACTION_TIMEOUT_MS: '600000' }

/** One call of a subcommand: its arguments, its output, and the way to the database. */
export class Call {
  readonly progress: Progress
  #actor: Actor | undefined
  #config: Config | undefined
  #opened: Promise<OpenedDatabase> | undefined

  constructor(
    readonly command: Command,
    readonly positionals: readonly string[],
    readonly values: Readonly<Record<string, unknown>>,
    readonly env: Readonly<Record<string, string | undefined>>,
    readonly output: Output,
  ) {
    this.progress = new Progress(text => this.remark(text))
  }

  /** The configuration, read when it is first needed. Throws `InvalidConfiguration`. */
  get config(): Config {
    const patience = Object.entries(PATIENCE).map(([name, value]) => [name, this.env[name] || value])
    this.#config ??= readConfig({ ...this.env, ...Object.fromEntries(patience) })
    return this.#config
  }

  /** Who gives this command, for the audit trail: its name with the options that were given, without their values. */
  get actor(): Actor {
    const options = Object.keys(this.values).map(name => ` --${name}`)
    this.#actor ??= operatorActor(`agentctl ${this.command.name}${options.join('')}`)
    return this.#actor
  }

  get json(): boolean {
    return this.flag('json')
  }

  flag(name: string): boolean {
    return this.values[name] === true
  }

  text(name: string): string | undefined {
    const value = this.values[name]
    return typeof value === 'string' ? value : undefined
  }

  texts(name: string): string[] {
    const value = this.values[name]
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

  /** One line for people. A control character in it shows as an escape, an end of line too. */
  print(...pieces: readonly Piece[]): void {
    this.output.print(rendered(pieces, this.output.colours))
  }

  /** A text of several lines for people, indented so that none of them can pass for one of ours. */
  printIndented(text: string): void {
    this.output.print(harmlessLines(text).replace(/^/gm, '    '))
  }

  /** Rows for people, fitted to the terminal. `whole`: columns that are never cut. */
  printTable(rows: readonly (readonly Cell[])[], whole: readonly number[] = []): void {
    for (const line of tableLines(rows, this.output.columns, whole)) this.print(...line)
  }

  /** A value as JSON: exactly that value. */
  printJson(value: unknown): void {
    this.output.print(jsonText(value))
  }

  /** What a command found or did: the value where JSON is asked for, else what people are shown. */
  answer(value: unknown, shown: string | (() => void)): void {
    if (this.json) this.printJson(value)
    else if (typeof shown === 'string') this.print(shown)
    else shown()
  }

  /** A text for a program: exactly as it is, but on a terminal, where a person reads it. */
  printExact(text: string): void {
    this.output.print(this.output.columns === undefined ? text : harmlessLines(text))
  }

  /** A remark to standard error. */
  remark(text: string): void {
    this.output.remark(harmlessLines(withProgramName(text, this.env)))
  }

  /**
   * Asks whether to go on, unless `--yes` was given. Answers false for anything but yes.
   * Throws `Refusal` where nobody can be asked: nothing is done by accident.
   */
  async confirmed(question: string): Promise<boolean> {
    if (this.flag('yes')) return true
    if (this.output.ask === undefined) throw new Refusal('nobody is there to be asked: add --yes, or see --plan')
    const answer = await this.output.ask(`${question} [y/N] `)
    return /^y(es)?$/i.test(answer.trim())
  }

  /**
   * The database as the configuration names it, whatever its schema: that of DATABASE_URL, or an embedded one that is there.
   * A new embedded one is made with `--embedded` only. Throws `NotConfigured`.
   */
  async rawDatabase(): Promise<OpenedDatabase> {
    const embedded = this.flag('embedded') ? 'make' : 'join'
    this.#opened ??= openConfiguredDatabase(
      this.config,
      {},
      (line, level) => {
        if (embedded === 'make' || level === 'warn') this.remark(line)
      },
      embedded,
    )
    return await this.#opened
  }

  /** The database with the schema that this program needs; the embedded one is migrated. Throws `NotConfigured`. */
  async database(): Promise<ServiceDatabase> {
    const { database, embedded } = await this.rawDatabase()
    let state = await schemaState(database.db, VERSION)
    if (state.kind === 'behind' && embedded !== null) {
      await migrate(database.db)
      state = await schemaState(database.db, VERSION)
    }
    if (state.kind === 'behind') {
      const { lack, command } = schemaAdvice(state)
      throw new NotConfigured(`${lack}: run ${command}`)
    }
    if (state.kind === 'ahead')
      throw new NotConfigured(`the schema needs at least version ${state.oldestProgram} of this program: update it`)
    return database
  }

  /** The key ring. An embedded database comes first: its key file is made beside it, never without it. */
  async ring(): Promise<KeyRing> {
    if (this.config.database.url === undefined) await this.rawDatabase()
    return await configuredKeyRing(this.config)
  }

  async vault(): Promise<Vault> {
    const ring = await this.ring()
    return await openVault((await this.database()).db, ring)
  }

  /** Closes what was opened. */
  async close(): Promise<void> {
    this.progress.end()
    const opened = await this.#opened?.catch(() => undefined)
    await opened?.close()
  }
}

/** A whole number from 1 that is an id. Throws `UsageError`. */
export function wholeNumber(text: string, what: string): number {
  if (!/^[1-9]\d{0,9}$/.test(text) || Number(text) > 2_147_483_647)
    throw new UsageError(`${what} must be a whole number from 1, not ${text}`)
  return Number(text)
}

/** The earlier state that `--at` asks for; undefined without it. Throws `UsageError`. */
export function asOfOption(call: Call): AsOf | undefined {
  const text = call.text('at') ?? ''
  if (/^\d+$/.test(text)) return { version: wholeNumber(text, '--at') }
  const at = dateOf(call, 'at')
  return at === undefined ? undefined : { at }
}

/** The time that an option names, in UTC; undefined without the option. Throws `UsageError`. */
export function dateOf(call: Call, option: string): string | undefined {
  const text = call.text(option)
  if (text === undefined) return undefined
  const date = parseDateTime(text)
  if (date === undefined) throw new UsageError(`--${option} must be a date such as 2026-01-31 or 2026-01-31T12:00:00Z`)
  return date
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
