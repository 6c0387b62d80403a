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

/** Names a parameter inside a statement's SQL. The same name may stand in several places: it is sent once. */
export type Param<P> = (key: keyof P & string) => RawBuilder<unknown>

/** Whatever runs SQL: the database or a transaction. */
export interface Executor {
  executeQuery<R>(query: CompiledQuery<R>): Promise<{ rows: R[] }>
}

/** A statement compiled once: its SQL, and how its named parameters become positions. */
export interface Statement<P, R> {
  name: string
  sql: string
  bind(parameters: P): CompiledQuery<R>
  run(executor: Executor, parameters: P): Promise<R[]>
}

class Marker {
  constructor(readonly key: string) {}
}

const compiler = new Kysely<never>({
  dialect: {
    createAdapter: () => new PostgresAdapter(),
    createDriver: () => new DummyDriver(),
    createIntrospector: db => new PostgresIntrospector(db),
    createQueryCompiler: () => new PostgresQueryCompiler(),
  },
})

/**
 * Compiles a statement once, at start-up or first use: building the SQL of a large statement costs more than running
 * it. `build` gets a function that names parameters and returns the Kysely query.
 *
 * Kysely gives every occurrence of a value a position of its own; here each named parameter keeps its first position,
 * so that it travels once. Throws at compile time when the SQL holds a value that is not a named parameter.
 */
export function statement<P extends object, R>(
  name: string,
  build: (param: Param<P>) => Compilable | RawBuilder<unknown>,
): Statement<P, R> {
  const query = build(key => sql`${new Marker(key)}`)
  const compiled = query.compile(compiler)
  const keys: string[] = []
  const positions = compiled.parameters.map(value => {
    if (!(value instanceof Marker)) throw new Error(`statement ${name} holds a value that is not a named parameter`)
    if (!keys.includes(value.key)) keys.push(value.key)
    return keys.indexOf(value.key) + 1
  })
  const text = compiled.sql.replace(/\$(\d+)/g, (_, position) => `$${positions[Number(position) - 1]}`)
  const bind = (parameters: P): CompiledQuery<R> =>
    CompiledQuery.raw(
      text,
      keys.map(key => (parameters as Record<string, unknown>)[key]),
    ) as CompiledQuery<R>
  return {
    name,
    sql: text,
    bind,
    run: async (executor, parameters) => (await executor.executeQuery(bind(parameters))).rows,
  }
}
