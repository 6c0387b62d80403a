import { type QueryCreator, type RawBuilder, sql } from 'kysely'
import type { Query } from '../connection/session.js'
import type { Tables } from '../tables.js'
import { materialized, queries } from './queries.js'
import { type Built, boundValue, compile, type Executor, type Param, typed } from './statement.js'

/**
 * The SQL type of each value of a row. An array type takes a list, a JSON type takes text. `{ single }` marks a value that may be large: it
 * is a separate parameter, so the statement takes one row at a time.
 */
export type RowTypes<P> = { readonly [K in keyof P & string]-?: string | { readonly single: string } }

/** The rows of a batch. `param` refers to their values; `position` is the index in the list, from 1. */
export interface Input {
  input: { position: number }
}

/**
 * Builds a row statement with `db`, which has the table `input`. It selects from `input` or from rows with its `position`, and returns at
 * most one row per position.
 */
export type BuildRows<P, R> = (param: Param<P>, db: QueryCreator<Tables & Input>) => Built<Positioned<R>>

/** A statement that runs for each row of a list, and returns results by position. */
export interface RowStatement<P, R> {
  readonly name: string
  readonly sql: string
  /** The column that identifies the written row: two rows with equal values must not share a batch. Undefined if the statement only reads. */
  readonly written: (keyof P & string) | undefined
  /** Binds the statement to these rows. Throws if a value is undefined, or if it takes one row and gets several. */
  bind(rows: readonly P[]): Query<Positioned<R>>
  /** Binds the statement to one row, to run it alone or in a batch. */
  for(row: P): RowQuery<Positioned<R>>
}

/** A statement with one row. Both methods resolve to undefined if the statement returned nothing. */
export class RowQuery<Answer> {
  constructor(
    /** Runs it alone, for example in a transaction. */
    readonly single: (executor: Executor) => Promise<Answer | undefined>,
    /** Runs it in a batch with rows of other requests: see `Database.batched`. */
    readonly batched: (database: BatchRunner, onSend?: () => void) => Promise<Answer | undefined>,
  ) {}

  /** The same with its result mapped by `then`. */
  map<Next>(then: (answer: Answer) => Next): RowQuery<Next> {
    const mapped = (answer: Promise<Answer | undefined>) =>
      answer.then(found => (found === undefined ? undefined : then(found)))
    return new RowQuery(
      executor => mapped(this.single(executor)),
      (database, onSend) => mapped(this.batched(database, onSend)),
    )
  }
}

/** The part of `Database` that runs rows in batches. */
export interface BatchRunner {
  batched<P extends object, R>(
    statement: RowStatement<P, R>,
    row: P,
    onSend?: () => void,
  ): Promise<Positioned<R> | undefined>
}

/** A result with the position of its row, from 1. */
export type Positioned<R> = R & { position: number }

/** Compiles a statement over a list of rows, which is one JSON parameter. In `build` each value of a row is a column of `input`. */
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
  over(sql`(select)`) // collects the used values
  const columns = [...listed].map(
    key => sql`${sql.id(key)} ${sql.raw(isJson(types[key]) ? 'text' : String(types[key]))}`,
  )
  const compiled = compile<P & { rows: string }, Positioned<R>>(name, over(inputOf(columns)), written !== undefined)
  const { sql: text, parameterNames, queryOf } = compiled
  const members = [...listed].map(key => [key, `${JSON.stringify(key)}:`] as const)
  // Written by hand: building an object with this many members costs twice as much. The server reads absent members as null.
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
 * SQL: the rows of a batch. The condition is always true. It changes the planner's estimate from a hundred rows to one, so that it looks
 * rows up by key.
 */
function inputOf(columns: readonly RawBuilder<unknown>[]): RawBuilder<{ position: number }> {
  return sql`(
        select ordinality::integer as position, listed.*
        from rows from (json_to_recordset(${typed('rows', 'json')}) as (${sql.join(columns)})) with ordinality listed
        where ordinality = ordinality + 0)`
}

/** JSON columns are passed as text and cast where used: `json_to_recordset` would read the text as a JSON string. */
function isJson(type: unknown): type is 'json' | 'jsonb' {
  return type === 'json' || type === 'jsonb'
}

/** Orders results by position; undefined for rows without a result. */
export function byPosition<R>(answers: readonly Positioned<R>[], count: number): (Positioned<R> | undefined)[] {
  const inOrder = new Array<Positioned<R> | undefined>(count).fill(undefined)
  for (const answer of answers) inOrder[answer.position - 1] = answer
  return inOrder
}

/** The size assumed for short texts, and for values other than texts and lists. */
const SHORT_BYTES = 16
const SHORT_TEXT_LENGTH = 64

/** The approximate size of a row or list in bytes. It runs for each request; `Object.values` would take three times as long. */
export function weightOf(values: object): number {
  let bytes = 0
  for (const name in values) {
    const value = values[name as keyof typeof values] as unknown
    const isLong = typeof value === 'string' && value.length > SHORT_TEXT_LENGTH
    bytes += Array.isArray(value) ? weightOf(value) : isLong ? Buffer.byteLength(value) : SHORT_BYTES
  }
  return bytes
}
