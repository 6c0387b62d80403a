import { type RawBuilder, sql } from 'kysely'
import type { Query } from '../connection/session.js'
import { boundValue, type Executor, type Param, query as queryOf, statement } from './statement.js'
import { TextArray } from './text-array.js'

/**
 * The SQL type of each value of a row. A value of an array type is a list. `{ single }` is the type of one that may be large:
 * it travels by itself, without the copies that a list costs, and its statement takes one row at a time.
 */
export type RowTypes<P> = { readonly [K in keyof P & string]-?: string | { readonly single: string } }

/** What a row statement does: the common table expressions behind `input`, and the query that answers. */
export interface RowBody {
  parts?: readonly RawBuilder<unknown>[]
  /** Selects from `input`, or from what carries its `position`; answers at most one row for each position. */
  query: RawBuilder<unknown>
}

/** A statement that does the same for each row of a list, and answers each by its place. */
export interface RowStatement<P, R> {
  readonly name: string
  readonly sql: string
  /** The names of the parameters by position: the first is `$1`. Each is a list with one value for each row, or one value. */
  readonly parameterNames: readonly (keyof P & string)[]
  /** Whether it takes one row at a time. */
  readonly isSingle: boolean
  /** The column that names the row which it writes: no two rows of a batch may have the same. Undefined where it only reads. */
  readonly written: (keyof P & string) | undefined
  /** The statement with these rows. Throws when a value is undefined, or when it takes one row and gets several. */
  bind(rows: readonly P[]): Query<Positioned<R>>
  /** The statement with one row, to be run in one way or another. */
  for(row: P): RowQuery<Positioned<R>>
}

/** A statement with the one row that somebody asks it for. Each way answers undefined where the statement answers nothing. */
export interface RowQuery<Answer> {
  /** Runs it by itself, in a transaction for instance. */
  single(executor: Executor): Promise<Answer | undefined>
  /** Runs it with the rows that others ask for at the same time: see `Database.batched`. */
  batched(database: BatchRunner, onSend?: () => void): Promise<Answer | undefined>
  /** The same with what `then` makes of its answer. */
  map<Next>(then: (answer: Answer) => Next): RowQuery<Next>
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
 * Compiles a statement over a list of rows. `build` names the values of a row and answers SQL in which each is a column of
 * `input`, which also has the row's `position`. All values travel as lists of texts and get their types once.
 */
export function rowStatement<P extends object, R>(
  name: string,
  types: RowTypes<P>,
  build: (param: Param<P>) => RowBody,
  written?: keyof P & string,
): RowStatement<P, R> {
  const singleType = (key: keyof P & string) => {
    const type = types[key]
    return typeof type === 'string' ? undefined : type.single
  }
  const compiled = statement<Record<keyof P & string, unknown>, Positioned<R>>(name, param => {
    const keys = new Set<keyof P & string>()
    const { parts = [], query } = build(key => {
      const single = singleType(key)
      if (single !== undefined) return sql`${param(key)}::${sql.raw(single)}`
      keys.add(key)
      return sql.ref(`input.${key}`)
    })
    const lists = [...keys].map(key => sql`${param(key)}::text[]`)
    const columns = [...keys].map((key, i) => {
      return sql`(${lists[i]})[position]::${sql.raw(String(types[key]))} as ${sql.id(key)}`
    })
    // Unnested is one list alone: of each the server makes a table of its own first.
    // The condition holds for every row. The planner, which takes an equality with the unknown for rare, plans for one row by
    // it: each is found by its key. For the ten rows that it expects of a list it reads whole tables of some thousand rows.
    const input = sql`input as materialized (
        select position::integer, ${sql.join(columns)}
        from unnest(${lists[0]}) with ordinality listed (value, position)
        where position = position + 0)`
    return sql`with ${sql.join([input, ...parts])} ${query}`
  })
  const { parameterNames } = compiled
  const isSingle = parameterNames.some(key => singleType(key) !== undefined)
  const bind = (rows: readonly P[]) => {
    if (isSingle && rows.length > 1) throw new Error(`statement ${name} takes one row at a time`)
    const values = parameterNames.map(key => {
      const list = rows.map(row => boundValue(name, row, key))
      return singleType(key) === undefined ? new TextArray(list) : list[0]
    })
    return queryOf<Positioned<R>>(compiled.sql, values, written !== undefined)
  }
  const own: RowStatement<P, R> = {
    name,
    sql: compiled.sql,
    parameterNames,
    isSingle,
    written,
    bind,
    for: row =>
      rowQuery(
        async executor => (await executor.executeQuery<Positioned<R>>(own.bind([row]))).rows[0],
        (database, onSend) => database.batched(own, row, onSend),
      ),
  }
  return own
}

/** A query of these two ways to run it. */
export function rowQuery<Answer>(
  single: RowQuery<Answer>['single'],
  batched: RowQuery<Answer>['batched'],
): RowQuery<Answer> {
  return {
    single,
    batched,
    map: then => {
      const mapped = async (answer: Promise<Answer | undefined>) => {
        const found = await answer
        return found === undefined ? undefined : then(found)
      }
      return rowQuery(
        executor => mapped(single(executor)),
        (database, onSend) => mapped(batched(database, onSend)),
      )
    },
  }
}

/** What a statement answered, by the place of the row that it belongs to; undefined where it answered nothing. */
export function byPosition<R>(answers: readonly Positioned<R>[], count: number): (Positioned<R> | undefined)[] {
  const inOrder = new Array<Positioned<R> | undefined>(count).fill(undefined)
  for (const answer of answers) inOrder[answer.position - 1] = answer
  return inOrder
}

/** About how many bytes a row sends. */
export function weightOf(row: object): number {
  let weight = 0
  const values = row as Record<string, unknown> // of a list, its items
  for (const name in values) {
    const value = values[name]
    weight += Array.isArray(value) ? weightOf(value) : bytesOf(value)
  }
  return weight
}

function bytesOf(value: unknown): number {
  return typeof value === 'string' && value.length > SHORT_TEXT_LENGTH ? Buffer.byteLength(value) : SHORT_BYTES
}

/** What is neither a long text nor a list counts as so many bytes. */
const SHORT_BYTES = 16
const SHORT_TEXT_LENGTH = 64
