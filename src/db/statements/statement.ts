import { createHash } from 'node:crypto'
import { CompiledQuery, createQueryId, PostgresQueryCompiler, type RawBuilder, sql } from 'kysely'
import type { Query } from '../connection/session.js'

/** Names a parameter inside a statement's SQL. The same name may stand in several places: it is sent once. */
export type Param<P> = <K extends keyof P & string>(key: K) => RawBuilder<P[K]>

/** Whatever runs SQL: the database or a transaction. */
export interface Executor {
  executeQuery<R>(query: CompiledQuery<R>): Promise<{ rows: R[] }>
}

/** A statement compiled once: its SQL, and how its named parameters become positions. */
export interface Statement<P, R> {
  readonly name: string
  readonly sql: string
  /** The names of the parameters by position: the first is `$1`. */
  readonly parameterNames: readonly (keyof P & string)[]
  /** The statement with these values, in the order of the names. */
  queryOf(values: unknown[]): Query<R>
  /** The statement with its values, for an executor. Throws when a parameter is undefined. */
  bind(parameters: P): Query<R>
  /** Runs the statement in a round trip of its own and answers its rows. */
  run(executor: Executor, parameters: P): Promise<R[]>
}

/**
 * Compiles a statement once, at start-up or first use: building the SQL of a large statement costs more than sending it.
 * `build` names the parameters. Rows are taken to be `R`: the database does not check that. `writes`: it changes something.
 *
 * Each named parameter has one position, so that it travels once and PostgreSQL finds one type for it. Throws when the SQL
 * holds a value that is not a named parameter: such a value would be frozen at the first use.
 */
export function statement<P extends object, R>(
  name: string,
  build: (param: Param<P>) => RawBuilder<unknown>,
  writes = false,
): Statement<P, R> {
  const names = new Set<keyof P & string>()
  const node = build(key => sql.raw(`$<${key}>`)).toOperationNode()
  const compiled = new PostgresQueryCompiler().compileQuery(node, createQueryId())
  const text = compiled.sql.replaceAll(
    /\$<(\w+)>/g,
    (_, key: keyof P & string) => `$${[...names.add(key)].indexOf(key) + 1}`,
  )
  if (compiled.parameters.length > 0) throw new Error(`statement ${name} holds a value that is not a named parameter`)
  const parameterNames = [...names]
  const queryOf = (values: unknown[]): Query<R> => {
    return { ...(CompiledQuery.raw(text, values) as CompiledQuery<R>), name: textName, writes } // the author says what its rows are
  }
  const textName = `q_${createHash('sha256').update(text).digest('hex').slice(0, 24)}`
  const bind = (parameters: P) => queryOf(parameterNames.map(key => boundValue(name, parameters, key)))
  return {
    name,
    sql: text,
    parameterNames,
    queryOf,
    bind,
    run: async (executor, parameters) => (await executor.executeQuery<R>(bind(parameters))).rows,
  }
}

/**
 * SQL: that a column has this value, so that the rows are found by it. As a range, which the planner takes for few rows and for a part
 * of the order; with `=` it may read all rows in the order of their ids until it has met a page with the value.
 */
export function isOnly(column: RawBuilder<unknown>, value: RawBuilder<unknown>): RawBuilder<boolean> {
  return sql`${column} between ${value} and ${value}`
}

/** The value of a named parameter. Throws when it is undefined. */
export function boundValue<P extends object>(name: string, parameters: P, key: keyof P & string): unknown {
  const value = parameters[key]
  if (value === undefined) throw new Error(`statement ${name} lacks its parameter ${key}`)
  return value
}
