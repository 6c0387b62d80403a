import {
  type Compilable,
  CompiledQuery,
  DummyDriver,
  Kysely,
  PostgresAdapter,
  PostgresIntrospector,
  PostgresQueryCompiler,
  type RawBuilder,
  sql,
} from 'kysely'
import type { Database } from '../tables.js'

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
  /** The statement with its values, for an executor or a pipeline. Throws when a parameter is undefined. */
  bind(parameters: P): CompiledQuery<R>
  /** Runs the statement in a round trip of its own and answers its rows. */
  run(executor: Executor, parameters: P): Promise<R[]>
}

/**
 * Compiles a statement once, at start-up or first use: building the SQL of a large statement costs more than sending it.
 * `build` names the parameters and answers a Kysely query or an `sql` fragment; its second argument is a Kysely without
 * a database to build with. Rows are taken to be `R`: the database does not check that.
 *
 * Kysely gives every occurrence of a value a position of its own; here each named parameter keeps its first position, so
 * that it travels once and PostgreSQL finds one type for it. Throws when the SQL holds a value that is not a named
 * parameter: such a value would be frozen at the first use.
 */
export function statement<P extends object, R>(
  name: string,
  build: (param: Param<P>, db: Kysely<Database>) => Compilable | RawBuilder<unknown>,
): Statement<P, R> {
  const compiled = build(key => sql`${new NamedParameter(key)}`, compiler).compile(compiler)
  const parameterNames = compiled.parameters.map(value => {
    if (value instanceof NamedParameter) return value.key as keyof P & string // made above from such a key
    throw new Error(`statement ${name} holds a value that is not a named parameter`)
  })
  const bind = (parameters: P): CompiledQuery<R> =>
    // The rows are what the SQL selects: R is the author's word for it.
    CompiledQuery.raw(
      compiled.sql,
      parameterNames.map(key => boundValue(name, parameters, key)),
    ) as CompiledQuery<R>
  return {
    name,
    sql: compiled.sql,
    parameterNames,
    bind,
    run: async (executor, parameters) => (await executor.executeQuery(bind(parameters))).rows,
  }
}

/**
 * SQL: that a column has this value, so that the rows are found by it. As a range, which the planner takes for few rows and for a part
 * of the order; with `=` it may read all rows in the order of their ids until it has met a page with the value.
 */
export function isOnly(column: RawBuilder<unknown>, value: RawBuilder<unknown>): RawBuilder<boolean> {
  return sql`${column} between ${value} and ${value}`
}

/** Stands in the place of a value until the statement is bound. */
class NamedParameter {
  constructor(readonly key: string) {}
}

/** Writes a named parameter that occurred before as the position it has already. */
class NamedParameterCompiler extends PostgresQueryCompiler {
  #keys: string[] = []

  override compileQuery(...input: Parameters<PostgresQueryCompiler['compileQuery']>) {
    this.#keys = []
    return super.compileQuery(...input)
  }

  protected override appendValue(value: unknown): void {
    const key = value instanceof NamedParameter ? value.key : ''
    const position = key === '' ? -1 : this.#keys.indexOf(key)
    if (position >= 0) {
      this.append(`$${position + 1}`)
    } else {
      this.#keys.push(key)
      super.appendValue(value)
    }
  }
}

const compiler = new Kysely<Database>({
  dialect: {
    createAdapter: () => new PostgresAdapter(),
    createDriver: () => new DummyDriver(),
    createIntrospector: db => new PostgresIntrospector(db),
    createQueryCompiler: () => new NamedParameterCompiler(),
  },
})

/** The value of a named parameter. Throws when it is undefined. */
export function boundValue<P extends object>(name: string, parameters: P, key: keyof P & string): unknown {
  const value = parameters[key]
  if (value === undefined) throw new Error(`statement ${name} lacks its parameter ${key}`)
  return value
}
