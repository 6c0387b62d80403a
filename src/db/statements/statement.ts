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

/** Refers to a parameter of a statement. A parameter that is used several times is sent once. The value can be null. */
export type Param<P> = <K extends keyof P & string>(key: K) => Expression<NonNullable<P[K]>>

/** The SQL type of each parameter. The value of a parameter with an array type is a list. */
export type SqlTypes<P> = { readonly [K in keyof P & string]-?: string }

/** The database or a transaction. */
export interface Executor {
  executeQuery<R>(query: CompiledQuery<R>): Promise<{ rows: R[] }>
}

export interface Statement<P, R> {
  readonly sql: string
  /** Binds values to the parameters. Throws if a value is undefined. */
  bind(parameters: P): Query<R>
  run(executor: Executor, parameters: P): Promise<R[]>
  first(executor: Executor, parameters: P): Promise<R | undefined>
}

/**
 * Compiles a statement once at startup, because building a large statement takes longer than sending it. Each connection prepares the statement once.
 * `effect`: whether the statement changes data. Throws if the statement contains a value that is not a named parameter.
 */
export function statement<P extends object, R>(
  name: string,
  types: SqlTypes<P>,
  build: (param: Param<P>) => (Expression<R> | Compilable<R>) & OperationNodeSource,
  effect: 'reads' | 'writes' = 'reads',
): Statement<P, R> {
  const built = build(key => sql`${sql.val(new Named(key))}::${sql.raw(types[key])}`)
  const compiler = new NamedParameters(name)
  const { sql: text } = compiler.compileQuery(built.toOperationNode() as RootOperationNode, createQueryId()) // `build` returns a whole query
  const names = [...compiler.names] as (keyof P & string)[] // `Param<P>` restricts the names
  const textName = `q_${createHash('sha256').update(text).digest('hex').slice(0, 24)}`
  const bind = (parameters: P): Query<R> => {
    const values = names.map(key => {
      const value = parameters[key]
      if (value === undefined) throw new Error(`statement ${name} lacks its parameter ${key}`)
      return value
    })
    return { name: textName, writes: effect === 'writes', ...(CompiledQuery.raw(text, values) as CompiledQuery<R>) } // `build` declares the type of its rows
  }
  const run = async (executor: Executor, parameters: P) => (await executor.executeQuery<R>(bind(parameters))).rows
  const first = async (executor: Executor, parameters: P) => (await run(executor, parameters))[0]
  return { sql: text, bind, run, first }
}

class Named {
  constructor(readonly key: string) {}
}

/** Gives each named parameter one number, so that a value that is used several times is sent once and has one type. */
class NamedParameters extends PostgresQueryCompiler {
  readonly names = new Set<string>()

  constructor(private readonly statementName: string) {
    super()
  }

  /** Refuses literal values, because every call would send the same value. */
  protected override appendValue(value: unknown): void {
    if (!(value instanceof Named))
      throw new Error(`statement ${this.statementName} holds a value that is not a named parameter`)
    this.append(`$${[...this.names.add(value.key)].indexOf(value.key) + 1}`)
  }
}
