import type { Duplex } from 'node:stream'
import pg from 'pg'

/** One statement of a batch as it goes over the wire. */
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

/**
 * Sends several statements in one write with one Sync at the end, and collects one result for each.
 *
 * pg's own pipeline mode puts a Sync behind every statement. Here there is one for all, for two reasons. After an error the
 * server skips everything up to the Sync, so no statement can run outside its transaction because the BEGIN before it
 * failed. And the server answers in one piece.
 *
 * This is a custom query of pg, the contract that pg-cursor uses: `submit` writes, then pg calls the `handle...` methods
 * with the messages that answer it. `name` and `text` are those of the statement that is being answered: pg notes them as
 * prepared when the server confirms it.
 */
export class Batch implements pg.Submittable {
  readonly #statements: readonly WireStatement[]
  readonly #types: pg.CustomTypesConfig
  readonly #results: Result[] = []
  readonly #done: (error: unknown, results: Result[]) => void
  #result: Result
  #rowError: unknown

  constructor(
    statements: readonly WireStatement[],
    types: pg.CustomTypesConfig,
    done: (error: unknown, results: StatementResult[]) => void,
  ) {
    this.#statements = statements
    this.#types = types
    this.#done = done
    this.#result = newResult(types)
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
    wire.stream.cork()
    try {
      for (const statement of this.#statements) {
        send(wire, statement, parsed)
      }
      wire.sync()
    } finally {
      wire.stream.uncork()
    }
  }

  handleRowDescription(message: { fields: pg.FieldDef[] }): void {
    this.#result.addFields(message.fields)
  }

  handleDataRow(message: { fields: (string | null)[] }): void {
    try {
      this.#result.addRow(this.#result.parseRow(message.fields))
    } catch (error) {
      this.#rowError ??= error
    }
  }

  handleCommandComplete(message: { text: string }): void {
    this.#result.addCommandComplete(message)
    this.#complete()
  }

  handleEmptyQuery(): void {
    this.#complete()
  }

  handleError(error: unknown): void {
    this.#done(error, this.#results)
  }

  handleReadyForQuery(): void {
    this.#done(this.#rowError, this.#results)
  }

  handlePortalSuspended(): void {}

  handleCopyInResponse(connection: { sendCopyFail(reason: string): void }): void {
    connection.sendCopyFail('COPY is not supported in a batch')
  }

  handleCopyData(): void {}

  #complete(): void {
    this.#results.push(this.#result)
    this.#result = newResult(this.#types)
  }
}

/** What the batch uses of pg's connection. */
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

/** What the batch uses of pg's result. */
interface Result extends StatementResult {
  addFields(fields: pg.FieldDef[]): void
  parseRow(fields: (string | null)[]): unknown
  addRow(row: unknown): void
  addCommandComplete(message: { text: string }): void
}

function newResult(types: pg.CustomTypesConfig): Result {
  // Declared with the parser registry as the second parameter, of which pg only uses `getTypeParser`; its methods are not declared.
  return new pg.Result('', types as typeof pg.types) as unknown as Result
}

function send(wire: WireConnection, { sql, name = '', values }: WireStatement, parsed: Set<string>): void {
  const isParsed = name !== '' && (wire.parsedStatements[name] !== undefined || parsed.has(name))
  if (!isParsed) wire.parse({ name, text: sql })
  parsed.add(name)
  wire.bind({ portal: '', statement: name, values })
  wire.describe({ type: 'P', name: '' })
  wire.execute({ portal: '', rows: 0 })
}
