import {
  type Driver,
  DummyDriver,
  type Expression,
  type ExpressionBuilder,
  ExpressionWrapper,
  expressionBuilder,
  Kysely,
  PostgresAdapter,
  PostgresIntrospector,
  PostgresQueryCompiler,
  type SelectQueryBuilder,
  type SelectType,
  sql,
} from 'kysely'
import { jsonObjectFrom } from 'kysely/helpers/postgres'
import type { Tables } from '../tables.js'

/* Building blocks for statements: a query builder without a connection, and SQL expressions that Kysely lacks. */

export function kyselyOn(driver: Driver): Kysely<Tables> {
  return new Kysely<Tables>({
    dialect: {
      createAdapter: () => new PostgresAdapter(),
      createDriver: () => driver,
      createIntrospector: db => new PostgresIntrospector(db),
      createQueryCompiler: () => new PostgresQueryCompiler(),
    },
  })
}

const BUILDER = kyselyOn(new DummyDriver())

/** Returns a query builder for the tables and for `Parts`, the common table expressions of the statement. */
export function queries<Parts = unknown>(): Kysely<Tables & Parts> {
  return BUILDER as Kysely<Tables & Parts> // the caller declares `Parts`
}

type RowsOf<Aliases> = { [A in keyof Aliases]: Aliases[A] extends keyof Tables ? Tables[Aliases[A]] : Aliases[A] }

/** Returns an expression builder for the enclosing query. `Aliases` names the table of each alias: `on<{ p: 'persona' }>()`. */
export function on<Aliases>(): ExpressionBuilder<Tables & RowsOf<Aliases>, keyof Aliases> {
  return expressionBuilder<Tables & RowsOf<Aliases>, keyof Aliases>()
}

/** Returns a function that refers to columns of a table whose alias is known only at run time. */
export function columnsOf<Table>(alias: string) {
  return <C extends keyof Table & string>(column: C) => sql.ref<SelectType<Table[C]>>(`${alias}.${column}`)
}

const { fn } = expressionBuilder<Tables>()
export const { lit, val } = sql
export const { any: anyOf } = fn

export function hexOf(bytes: Expression<Buffer | null>) {
  return fn<string>('encode', [bytes, lit('hex')])
}

export function bytesOf(hex: Expression<string | null>) {
  return fn<Buffer>('decode', [hex, lit('hex')])
}

/** SQL: a timestamp as RFC 3339 text in UTC with microseconds. */
export function instant(value: Expression<string | null>) {
  return fn<string>('to_char', [fn('timezone', [lit('UTC'), value]), lit('YYYY-MM-DD"T"HH24:MI:SS.US"Z"')])
}

/** SQL: an expression with an alias. */
export function named<T, A extends string>(value: Expression<T>, name: A) {
  return new ExpressionWrapper<Tables, never, T>(value.toOperationNode()).as(name)
}

/** SQL: the values of a one-column query as an array. */
export function arrayOf<DB, TB extends keyof DB, T>(query: SelectQueryBuilder<DB, TB, Record<string, T>>) {
  return sql<T[]>`array${query}`
}

/** SQL: the row of a query as JSON text; null if there is no row. */
export function jsonText(query: Expression<unknown>) {
  return sql<string>`${jsonObjectFrom(query)}::text`
}
