import type { Duplex } from 'node:stream'
import pg from 'pg'
import { TYPE_PARSERS } from './type-parsers.js'

/** pg's own conversion of a parameter's value to what is sent for it. Not declared in its types. */
export const { prepareValue } = (pg as unknown as { utils: { prepareValue(value: unknown): string | Buffer | null } })
  .utils

/** One statement of a pipeline as it goes over the wire. */
export interface WireStatement {
  sql: string
  /** Prepared under this name; undefined is sent unnamed. */
  name: string | undefined
  values: readonly (string | Buffer | null)[]
}

export interface StatementResult<R = unknown> {
  /** The first word of the command tag: `SELECT`, `UPDATE`, `COMMIT`, ... */
  command: string
  rowCount: number | null
  rows: R[]
}

/** One column of a statement's rows, and how its text becomes a value. */
export interface Column {
  name: string
  parse(text: string): unknown
}

/** What one connection's prepared statements answer, by their names: as long as they live, that does not change. */
export type Descriptions = Map<string, readonly Column[]>

/**
 * A pipeline as libpq's manual calls it: sends one or more statements in one write with one Sync at the end, and collects one
 * result for each.
 *
 * pg's own pipeline mode puts a Sync behind every statement. With one for all, the server skips everything behind an error, so
 * that no statement runs outside the transaction whose BEGIN failed, and it answers in one piece.
 *
 * This is a custom query of pg, the contract that pg-cursor uses: `submit` writes, then pg calls the `handle...` methods
 * with the messages that answer it. `name` and `text` are those of the statement that is being answered: pg notes them as
 * prepared when the server confirms it.
 */
export class Pipeline implements pg.Submittable {
  readonly #statements: readonly WireStatement[]
  readonly #descriptions: Descriptions
  readonly #results: StatementResult[] = []
  readonly #resolve: (results: StatementResult[]) => void
  readonly #reject: (error: unknown) => void
  /** Of the statement that is being answered; undefined before the server has described it. */
  #columns: readonly Column[] | undefined
  #rows: unknown[] = []
  #rowError: unknown

  constructor(
    statements: readonly WireStatement[],
    descriptions: Descriptions,
    resolve: (results: StatementResult[]) => void,
    reject: (error: unknown) => void,
  ) {
    this.#statements = statements
    this.#descriptions = descriptions
    this.#resolve = resolve
    this.#reject = reject
  }

  // pg wants a callback on a custom query; it reports through the handlers.
  callback(): void {}

  get name(): string | undefined {
    return this.#statements[this.#results.length]?.name
  }

  get text(): string | undefined {
    return this.#statements[this.#results.length]?.sql
  }

  submit(connection: pg.Connection): void {
    // pg's declarations know neither `parsedStatements` nor the present form of these methods.
    const wire = connection as unknown as WireConnection
    const parsed = new Set<string>()
    this.#columns = this.#knownColumns(this.#statements[0])
    wire.stream.cork()
    try {
      for (const statement of this.#statements) {
        this.#send(wire, statement, parsed)
      }
      wire.sync()
    } finally {
      wire.stream.uncork()
    }
  }

  #send(wire: WireConnection, statement: WireStatement, parsed: Set<string>): void {
    const { sql, name = '', values } = statement
    const isParsed = name !== '' && (wire.parsedStatements[name] !== undefined || parsed.has(name))
    if (!isParsed) wire.parse({ name, text: sql })
    parsed.add(name)
    wire.bind({ portal: '', statement: name, values })
    if (this.#knownColumns(statement) === undefined) wire.describe({ type: 'P', name: '' })
    wire.execute({ portal: '', rows: 0 })
  }

  handleRowDescription({ fields }: { fields: pg.FieldDef[] }): void {
    this.#columns = fields.map(({ name, dataTypeID }) => ({
      name,
      parse: TYPE_PARSERS.getTypeParser(dataTypeID, 'text'),
    }))
  }

  handleDataRow({ fields }: { fields: (string | null)[] }): void {
    try {
      this.#rows.push(rowOf(this.#columns ?? [], fields))
    } catch (error) {
      this.#rowError ??= error
    }
  }

  handleCommandComplete({ text }: { text: string }): void {
    const [, command = '', count] = COMMAND_TAG.exec(text) ?? []
    const rowCount = count === undefined ? null : Number(count)
    this.#complete({ command, rowCount, rows: this.#rows })
  }

  handleEmptyQuery(): void {
    this.#complete({ command: '', rowCount: null, rows: [] })
  }

  handleError(error: unknown): void {
    this.#reject(error)
  }

  handleReadyForQuery(): void {
    if (this.#rowError === undefined) this.#resolve(this.#results)
    else this.#reject(this.#rowError)
  }

  #complete(result: StatementResult): void {
    const { name } = this
    // A statement that was described and has no columns answers no rows.
    if (name !== undefined) this.#descriptions.set(name, this.#columns ?? [])
    this.#results.push(result)
    this.#columns = this.#knownColumns(this.#statements[this.#results.length])
    this.#rows = []
  }

  #knownColumns(statement: WireStatement | undefined): readonly Column[] | undefined {
    return statement?.name === undefined ? undefined : this.#descriptions.get(statement.name)
  }
}

/** `UPDATE 3`, `INSERT 0 3`, `BEGIN`: the command and the number of rows, when it has one. */
const COMMAND_TAG = /^([A-Za-z]+).*?(\d+)?$/

function rowOf(columns: readonly Column[], texts: readonly (string | null)[]): Record<string, unknown> {
  const row: Record<string, unknown> = {}
  for (let i = 0; i < columns.length; i++) {
    const [column, text] = [columns[i] as Column, texts[i]]
    row[column.name] = text === null || text === undefined ? null : column.parse(text)
  }
  return row
}

/** What the pipeline uses of pg's connection. */
interface WireConnection {
  readonly stream: Duplex
  /** The texts of the statements that are prepared on this connection, by name. */
  readonly parsedStatements: Readonly<Record<string, string>>
  parse(message: { name: string; text: string }): void
  bind(message: { portal: string; statement: string; values: readonly (string | Buffer | null)[] }): void
  describe(message: { type: 'P'; name: string }): void
  execute(message: { portal: string; rows: number }): void
  sync(): void
}
