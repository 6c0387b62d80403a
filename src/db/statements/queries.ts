import {
  type AliasedExpression,
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
  type QueryCreator,
  type RawBuilder,
  type SelectQueryBuilder,
  type SelectType,
  type SqlBool,
  sql,
} from 'kysely'
import { jsonObjectFrom } from 'kysely/helpers/postgres'
import type { Tables } from '../tables.js'
import type { Built, SqlTypes } from './statement.js'

/* Building blocks for statements: Kysely's builder without a connection, and expressions that it lacks. */

/** Kysely for PostgreSQL with this driver. */
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

/** A query builder for the tables and for the common table expressions `Parts` of the enclosing statement. */
export function queries<Parts = unknown>(): Kysely<Tables & Parts> {
  return BUILDER as Kysely<Tables & Parts> // the caller declares `Parts`
}

/** A common table expression with this name that is computed once. */
export function materialized<Name extends string>(name: Name) {
  return (make: typeof part) => make(name).materialized()
}

/** Kysely does not export this type. */
type PartName = Exclude<Parameters<typeof BUILDER.with<'part', () => RawBuilder<Record<string, unknown>>>>[0], string>
declare const part: Parameters<PartName>[0]

/** Adds common table expressions to a statement that run without contributing rows to the result. */
export function withParts<DB>(db: QueryCreator<DB>, parts: Record<string, Built<unknown>>): QueryCreator<DB> {
  const add = (all: QueryCreator<DB>, [name, part]: [string, Built<unknown>]) => all.with(name, () => part as never)
  return Object.entries(parts).reduce((all, part) => add(all, part) as unknown as QueryCreator<DB>, db) // the tables are the same
}

type RowsOf<Aliases> = { [A in keyof Aliases]: Aliases[A] extends keyof Tables ? Tables[Aliases[A]] : Aliases[A] }

/** An expression builder for the rows of the enclosing query, by alias: `on<{ p: 'persona' }>()`. */
export function on<Aliases>(): ExpressionBuilder<Tables & RowsOf<Aliases>, keyof Aliases> {
  return expressionBuilder<Tables & RowsOf<Aliases>, keyof Aliases>()
}

/** The columns of a table whose alias is only known at run time. */
export function columnsOf<Table>(alias: string) {
  return <C extends keyof Table & string>(column: C) => sql.ref<SelectType<Table[C]>>(`${alias}.${column}`)
}

const { eb, fn } = expressionBuilder<Tables>()
export const { lit, val } = sql
export const { any: anyOf } = fn

/**
 * SQL: compares a column with a value as a range. The planner assumes few rows for a range. For `=` it may scan all rows in id order until
 * a page is full.
 */
export function isOnly<T>(column: Expression<T>, value: Expression<T>): Expression<SqlBool> {
  return sql`${column} between ${value} and ${value}`
}

/** SQL: bytes as hex text. */
export function hexOf(bytes: Expression<Buffer | null>) {
  return fn<string>('encode', [bytes, lit('hex')])
}

/** SQL: decodes text to bytes, from hex by default. */
export function bytesOf(text: Expression<string | null>, form: 'hex' | 'base64' = 'hex') {
  return fn<Buffer>('decode', [text, lit(form)])
}

/** SQL: concatenates texts with `||`, which copies less than `concat`. Null if one is null. */
export function joined(first: Expression<string>, ...others: Expression<string>[]): Expression<string> {
  return others.reduce((all, text) => eb(all, '||', text), first)
}

/** SQL: a timestamp as RFC 3339 text in UTC, with microseconds or whole seconds. */
export function instant(value: Expression<string | null>, second: 'SS' | 'SS.US' = 'SS.US') {
  return fn<string>('to_char', [fn('timezone', [lit('UTC'), value]), lit(`YYYY-MM-DD"T"HH24:MI:${second}"Z"`)])
}

/** SQL: the current time, which also advances within a transaction. */
export const NOW = fn<string>('clock_timestamp')

/** SQL: the current time minus an interval. */
export function ago(interval: '1 minute' | '15 minutes'): RawBuilder<string> {
  return sql`(clock_timestamp() - interval ${lit(interval)})`
}

/** SQL: the seconds since 1970, or of an interval. */
export function seconds(value: Expression<string>): RawBuilder<number> {
  return sql`extract(epoch from ${value})`
}

/** SQL: an expression as a column with this name. */
export function named<T, A extends string>(value: Expression<T>, name: A) {
  return new ExpressionWrapper<Tables, never, T>(value.toOperationNode()).as(name)
}

/** SQL: a query with one column as an array. */
export function arrayOf<DB, TB extends keyof DB, T>(query: SelectQueryBuilder<DB, TB, Record<string, T>>) {
  return sql<T[]>`array${query}`
}

/** SQL: an array with one item. */
export function listOf<T>(item: Expression<T>) {
  return sql<T[]>`array[${item}]`
}

/** SQL: an empty array. */
export function noItems<T>(): Expression<T[]> {
  return lit('{}').$castTo<T[]>()
}

/** SQL: the items of an array as rows with an `id`. */
export function itemsOf<T, A extends string>(list: Expression<T[]>, alias: A): AliasedExpression<{ id: T }, A> {
  return sql<{ id: T }>`unnest(${list})`.as<A>(sql`${sql.id(alias)} (id)`)
}

/** SQL: the elements of a JSON array as rows with `value` and `place`. */
export function elementsOf<A extends string>(array: Expression<unknown>, alias: A) {
  const columns = sql`${sql.id(alias)} (value, place)`
  return sql<{ value: string; place: number }>`json_array_elements(${array}) with ordinality`.as<A>(columns)
}

/** SQL: the objects of a `jsonb` array as rows. */
export function recordsOf<Row, A extends string>(array: Expression<unknown>, alias: A, types: SqlTypes<Row>) {
  const columns = Object.entries<string>(types).map(([name, type]) => sql`${sql.id(name)} ${sql.raw(type)}`)
  return sql<Row>`jsonb_to_recordset(${array})`.as<A>(sql`${sql.id(alias)} (${sql.join(columns)})`)
}

/** SQL: a member of a JSON object. */
export function member(object: Expression<unknown>, name: Expression<string>): RawBuilder<string> {
  return sql`(${object} -> ${name})`
}

/** SQL: a member of a JSON object as text. */
export function memberText(object: Expression<unknown>, name: Expression<string>): RawBuilder<string> {
  return sql`(${object} ->> ${name})`
}

/** SQL: the rows of a query as a JSON array in the same order, without the whitespace of `json_agg`. */
export function jsonRows(query: Expression<unknown>): RawBuilder<unknown> {
  return sql`array_to_json(array(select json_row from ${query} json_row))`
}

/** SQL: the row of a query as JSON text; null without a row. */
export function jsonText(query: Expression<unknown>): Expression<string> {
  return sql`${jsonObjectFrom(query)}::text`
}
