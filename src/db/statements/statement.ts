import { createHash } from 'node:crypto'
import {
  type Compilable,
  CompiledQuery,
  createQueryId,
  type Expression,
  type OperationNodeSource,
  PostgresQueryCompiler,
  type RootOperationNode,
  sql,
} from 'kysely'
import type { Query } from '../connection/session.js'

/** Refers to a parameter within a statement. A name may be used several times and is sent once. Any parameter may be null. */
export type Param<P> = <K extends keyof P & string>(key: K) => Expression<NonNullable<P[K]>>

/** The SQL type of each parameter. An array type takes a list. */
export type SqlTypes<P> = { readonly [K in keyof P & string]-?: string }

/** A query that was built but not run, with rows of this type. */
export type Built<R> = (Expression<R> | Compilable<R>) & OperationNodeSource

/** Runs SQL: the database or a transaction. */
export interface Executor {
  executeQuery<R>(query: CompiledQuery<R>): Promise<{ rows: R[] }>
}

/** A statement compiled once, with its SQL and the order of its named parameters. */
export interface Statement<P, R> {
  readonly name: string
  readonly sql: string
  /** The parameter names by position: the first is `$1`. */
  readonly parameterNames: readonly (keyof P & string)[]
  /** The statement with values in the order of the names. */
  queryOf(values: unknown[]): Query<R>
  /** The statement with named values. Throws if a parameter is undefined. */
  bind(parameters: P): Query<R>
  /** Runs the statement in its own round trip and returns its rows. */
  run(executor: Executor, parameters: P): Promise<R[]>
  /** Runs it and returns the first row, if any. */
  first(executor: Executor, parameters: P): Promise<R | undefined>
}

/** Runs a statement with one row. Its parameters are read when it is sent. */
export type Ask<Row> = (executor: Executor) => Promise<Row | undefined>

/**
 * Compiles a statement once, at start-up or first use, because building a large statement costs more than sending it. `build` builds it
 * with `queries` and named parameters. `writes`: it changes data. Throws if it contains a value that is not a named parameter.
 */
export function statement<P extends object, R>(
  name: string,
  types: SqlTypes<P>,
  build: (param: Param<P>) => Built<R>,
  writes = false,
): Statement<P, R> {
  const built = build(key => typed(key, types[key]))
  const compiled = compile<P, R>(name, built, writes)
  const bind = (parameters: P) =>
    compiled.queryOf(compiled.parameterNames.map(key => boundValue(name, parameters, key)))
  const run = async (executor: Executor, parameters: P) => (await executor.executeQuery<R>(bind(parameters))).rows
  const first = async (executor: Executor, parameters: P) => (await run(executor, parameters))[0]
  return { name, ...compiled, bind, run, first }
}

/** The SQL of a built statement, and its parameter names by position. */
export function compile<P, R>(
  name: string,
  built: OperationNodeSource,
  writes: boolean,
): Pick<Statement<P, R>, 'sql' | 'parameterNames' | 'queryOf'> {
  const compiler = new NamedParameters(name)
  const { sql } = compiler.compileQuery(built.toOperationNode() as RootOperationNode, createQueryId()) // a whole query
  const textName = `q_${createHash('sha256').update(sql).digest('hex').slice(0, 24)}`
  return {
    sql,
    parameterNames: [...compiler.names] as (keyof P & string)[], // named by `Param<P>`
    queryOf: values => ({ ...(CompiledQuery.raw(sql, values) as CompiledQuery<R>), name: textName, writes }), // `build` declares the type of its rows
  }
}

/** SQL: a named parameter with its type. */
export function typed<T>(key: string, type: string): Expression<T> {
  return sql<T>`${sql.val(new Named(key))}::${sql.raw(type)}`
}

class Named {
  constructor(readonly key: string) {}
}

/** Numbers each named parameter once, so that it is sent once and has one type. */
class NamedParameters extends PostgresQueryCompiler {
  readonly names = new Set<string>()

  constructor(private readonly statementName: string) {
    super()
  }

  /** A value that is not a parameter would keep its first value for ever. */
  protected override appendValue(value: unknown): void {
    if (!(value instanceof Named))
      throw new Error(`statement ${this.statementName} holds a value that is not a named parameter`)
    this.append(`$${[...this.names.add(value.key)].indexOf(value.key) + 1}`)
  }
}

/** The value of a named parameter. Throws if it is undefined. */
export function boundValue<P extends object>(name: string, parameters: P, key: keyof P & string): unknown {
  const value = parameters[key]
  if (value === undefined) throw new Error(`statement ${name} lacks its parameter ${key}`)
  return value
}
