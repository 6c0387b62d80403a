import { type QueryCreator, type RawBuilder, sql } from 'kysely'
import type { Query } from '../connection/session.js'
import type { Tables } from '../tables.js'
import { materialized, queries } from './queries.js'
import { type Built, boundValue, compile, type Executor, type Param, typed } from './statement.js'

/**
 * The SQL type of each value of a row. A value of an array type is a list, one of a JSON type its text. `{ single }` is the type of
 * one that may be large: it is a parameter of its own, so its statement takes one row at a time.
 */
export type RowTypes<P> = { readonly [K in keyof P & string]-?: string | { readonly single: string } }

/** The rows of a batch: their values are named by `param`, and `position` is their place in the list, from 1. */
export interface Input {
  input: { position: number }
}

/**
 * Builds a row statement on `db`, which has `input`. It selects from `input`, or from what carries its `position`, and answers at most
 * one row for each position.
 */
export type BuildRows<P, R> = (param: Param<P>, db: QueryCreator<Tables & Input>) => Built<Positioned<R>>

/** A statement that does the same for each row of a list, and answers each by its place. */
export interface RowStatement<P, R> {
  readonly name: string
  readonly sql: string
  /** The column that names the row which it writes: no two rows of a batch may have the same. Undefined where it only reads. */
  readonly written: (keyof P & string) | undefined
  /** The statement with these rows. Throws when a value is undefined, or when it takes one row and gets several. */
  bind(rows: readonly P[]): Query<Positioned<R>>
  /** The statement with one row, to be run in one way or another. */
  for(row: P): RowQuery<Positioned<R>>
}

/** A statement with the one row that somebody asks it for. Each way answers undefined where the statement answers nothing. */
export class RowQuery<Answer> {
  constructor(
    /** Runs it by itself, in a transaction for instance. */
    readonly single: (executor: Executor) => Promise<Answer | undefined>,
    /** Runs it with the rows that others ask for at the same time: see `Database.batched`. */
    readonly batched: (database: BatchRunner, onSend?: () => void) => Promise<Answer | undefined>,
  ) {}

  /** The same with what `then` makes of its answer. */
  map<Next>(then: (answer: Answer) => Next): RowQuery<Next> {
    const mapped = (answer: Promise<Answer | undefined>) =>
      answer.then(found => (found === undefined ? undefined : then(found)))
    return new RowQuery(
      executor => mapped(this.single(executor)),
      (database, onSend) => mapped(this.batched(database, onSend)),
    )
  }
}

/** What of a database runs rows in batches. */
export interface BatchRunner {
  batched<P extends object, R>(
    statement: RowStatement<P, R>,
    row: P,
    onSend?: () => void,
  ): Promise<Positioned<R> | undefined>
}

/** An answer, and which of the rows it belongs to, from 1. */
export type Positioned<R> = R & { position: number }

/**
 * Compiles a statement over a list of rows. `build` names the values of a row, each of which is a column of `input`. The rows are one
 * parameter, a JSON list.
 */
export function rowStatement<P extends object, R>(
  name: string,
  types: RowTypes<P>,
  build: BuildRows<P, R>,
  written?: keyof P & string,
): RowStatement<P, R> {
  const listed = new Set<keyof P & string>()
  const param: Param<P> = key => {
    const type = types[key]
    if (typeof type === 'object') return typed(key, type.single)
    listed.add(key)
    return isJson(type) ? sql`${sql.ref(`input.${key}`)}::${sql.raw(type)}` : sql.ref(`input.${key}`)
  }
  const over = (input: RawBuilder<{ position: number }>) => {
    const db = queries().with(materialized('input'), () => input)
    return build(param, db)
  }
  over(sql`(select)`) // finds the values that are used
  const columns = [...listed].map(
    key => sql`${sql.id(key)} ${sql.raw(isJson(types[key]) ? 'text' : String(types[key]))}`,
  )
  const compiled = compile<P & { rows: string }, Positioned<R>>(name, over(inputOf(columns)), written !== undefined)
  const { sql: text, parameterNames, queryOf } = compiled
  const members = [...listed].map(key => [key, `${JSON.stringify(key)}:`] as const)
  // Put together by hand: an object of this many members costs twice as much. What is absent is null to the server.
  const jsonOf = (row: P) => {
    const texts: string[] = []
    for (const [key, member] of members) {
      const value = boundValue(name, row, key)
      if (value !== null)
        texts.push(member + JSON.stringify(Buffer.isBuffer(value) ? `\\x${value.toString('hex')}` : value))
    }
    return `{${texts.join()}}`
  }
  const bind = (rows: readonly P[]) => {
    if (parameterNames.length > 1 && rows.length > 1) throw new Error(`statement ${name} takes one row at a time`)
    const values = parameterNames.map(key => {
      return key === 'rows' ? `[${rows.map(jsonOf).join()}]` : boundValue(name, rows[0] as P, key)
    })
    return queryOf(values)
  }
  const own: RowStatement<P, R> = {
    name,
    sql: text,
    written,
    bind,
    for: row =>
      new RowQuery(
        async executor => (await executor.executeQuery<Positioned<R>>(own.bind([row]))).rows[0],
        (database, onSend) => database.batched(own, row, onSend),
      ),
  }
  return own
}

/**
 * SQL: the rows of a batch. The condition holds for every row. The planner expects a hundred rows of the list, and by the condition one:
 * each is found by key.
 */
function inputOf(columns: readonly RawBuilder<unknown>[]): RawBuilder<{ position: number }> {
  return sql`(
        select ordinality::integer as position, listed.*
        from rows from (json_to_recordset(${typed('rows', 'json')}) as (${sql.join(columns)})) with ordinality listed
        where ordinality = ordinality + 0)`
}

/** Its text is cast where it is used: a column of the type itself would hold the text as a JSON string. */
function isJson(type: unknown): type is 'json' | 'jsonb' {
  return type === 'json' || type === 'jsonb'
}

/** What a statement answered, by the place of the row that it belongs to; undefined where it answered nothing. */
export function byPosition<R>(answers: readonly Positioned<R>[], count: number): (Positioned<R> | undefined)[] {
  const inOrder = new Array<Positioned<R> | undefined>(count).fill(undefined)
  for (const answer of answers) inOrder[answer.position - 1] = answer
  return inOrder
}

/** What a short text and every value other than a text or a list counts. */
const SHORT_BYTES = 16
const SHORT_TEXT_LENGTH = 64

/** About how many bytes a row or a list sends. Called for each request: to list all values first takes three times as long. */
export function weightOf(values: object): number {
  let bytes = 0
  for (const name in values) {
    const value = values[name as keyof typeof values] as unknown
    const isLong = typeof value === 'string' && value.length > SHORT_TEXT_LENGTH
    bytes += Array.isArray(value) ? weightOf(value) : isLong ? Buffer.byteLength(value) : SHORT_BYTES
  }
  return bytes
}
