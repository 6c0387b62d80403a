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

/* What statements are built with: Kysely's builder without a connection, and the expressions that it lacks. */

/** Kysely for PostgreSQL, over the connections of a driver. */
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

/** A builder of queries over the tables, and over the common table expressions that the statement around them has. */
export function queries<Parts = unknown>(): Kysely<Tables & Parts> {
  return BUILDER as Kysely<Tables & Parts> // as its caller says
}

/** A common table expression of this name that is computed once. */
export function materialized<Name extends string>(name: Name) {
  return (make: typeof part) => make(name).materialized()
}

/** Kysely does not export this type. */
type PartName = Exclude<Parameters<typeof BUILDER.with<'part', () => RawBuilder<Record<string, unknown>>>>[0], string>
declare const part: Parameters<PartName>[0]

/** Adds to a statement what it does besides: common table expressions whose rows it does not answer. */
export function withParts<DB>(db: QueryCreator<DB>, parts: Record<string, Built<unknown>>): QueryCreator<DB> {
  const add = (all: QueryCreator<DB>, [name, part]: [string, Built<unknown>]) => all.with(name, () => part as never)
  return Object.entries(parts).reduce((all, part) => add(all, part) as unknown as QueryCreator<DB>, db) // with the same tables
}

type RowsOf<Aliases> = { [A in keyof Aliases]: Aliases[A] extends keyof Tables ? Tables[Aliases[A]] : Aliases[A] }

/** A builder of expressions over the rows that the query around them has, by their aliases: `on<{ p: 'persona' }>()`. */
export function on<Aliases>(): ExpressionBuilder<Tables & RowsOf<Aliases>, keyof Aliases> {
  return expressionBuilder<Tables & RowsOf<Aliases>, keyof Aliases>()
}

/** Columns of a table whose alias is known at run time only. */
export function columnsOf<Table>(alias: string) {
  return <C extends keyof Table & string>(column: C) => sql.ref<SelectType<Table[C]>>(`${alias}.${column}`)
}

const { eb, fn } = expressionBuilder<Tables>()
export const { lit, val } = sql
export const { any: anyOf } = fn

/**
 * SQL: that a column has this value, so that the rows are found by it. As a range, which the planner takes for few rows and for a part
 * of the order; with `=` it may read all rows in the order of their ids until it has met a page with the value.
 */
export function isOnly<T>(column: Expression<T>, value: Expression<T>): Expression<SqlBool> {
  return sql`${column} between ${value} and ${value}`
}

/** SQL: bytes as a text in hex. */
export function hexOf(bytes: Expression<Buffer | null>) {
  return fn<string>('encode', [bytes, lit('hex')])
}

/** SQL: the bytes of a text, in hex unless it says another form. */
export function bytesOf(text: Expression<string | null>, form: 'hex' | 'base64' = 'hex') {
  return fn<Buffer>('decode', [text, lit(form)])
}

/** SQL: texts one after the other, copied less often than by `concat`. Null where one of them is. */
export function joined(first: Expression<string>, ...others: Expression<string>[]): Expression<string> {
  return others.reduce((all, text) => eb(all, '||', text), first)
}

/** SQL: an instant as RFC 3339 in UTC, with microseconds or with whole seconds. */
export function instant(value: Expression<string | null>, second: 'SS' | 'SS.US' = 'SS.US') {
  return fn<string>('to_char', [fn('timezone', [lit('UTC'), value]), lit(`YYYY-MM-DD"T"HH24:MI:${second}"Z"`)])
}

/** SQL: the time now, also within a transaction. */
export const NOW = fn<string>('clock_timestamp')

/** SQL: the instant before the time now by this interval. */
export function ago(interval: '1 minute' | '15 minutes'): RawBuilder<string> {
  return sql`(clock_timestamp() - interval ${lit(interval)})`
}

/** SQL: the seconds since 1970, or of an interval. */
export function seconds(value: Expression<string>): RawBuilder<number> {
  return sql`extract(epoch from ${value})`
}

/** SQL: an expression as a column of this name. */
export function named<T, A extends string>(value: Expression<T>, name: A) {
  return new ExpressionWrapper<Tables, never, T>(value.toOperationNode()).as(name)
}

/** SQL: the one column of a query as an array. */
export function arrayOf<DB, TB extends keyof DB, T>(query: SelectQueryBuilder<DB, TB, Record<string, T>>) {
  return sql<T[]>`array${query}`
}

/** SQL: an array of one item. */
export function listOf<T>(item: Expression<T>) {
  return sql<T[]>`array[${item}]`
}

/** SQL: an array without items. */
export function noItems<T>(): Expression<T[]> {
  return lit('{}').$castTo<T[]>()
}

/** SQL: the items of an array as rows with an `id`. */
export function itemsOf<T, A extends string>(list: Expression<T[]>, alias: A): AliasedExpression<{ id: T }, A> {
  return sql<{ id: T }>`unnest(${list})`.as<A>(sql`${sql.id(alias)} (id)`)
}

/** SQL: the elements of a JSON array as rows with a `value` and a `place`. */
export function elementsOf<A extends string>(array: Expression<unknown>, alias: A) {
  const columns = sql`${sql.id(alias)} (value, place)`
  return sql<{ value: string; place: number }>`json_array_elements(${array}) with ordinality`.as<A>(columns)
}

/** SQL: the objects of an array in `jsonb` as rows. */
export function recordsOf<Row, A extends string>(array: Expression<unknown>, alias: A, types: SqlTypes<Row>) {
  const columns = Object.entries<string>(types).map(([name, type]) => sql`${sql.id(name)} ${sql.raw(type)}`)
  return sql<Row>`jsonb_to_recordset(${array})`.as<A>(sql`${sql.id(alias)} (${sql.join(columns)})`)
}

/** SQL: a member of a JSON object. */
export function member(object: Expression<unknown>, name: Expression<string>): RawBuilder<string> {
  return sql`(${object} -> ${name})`
}

/** SQL: a member of a JSON object as a text. */
export function memberText(object: Expression<unknown>, name: Expression<string>): RawBuilder<string> {
  return sql`(${object} ->> ${name})`
}

/** SQL: the rows of a query as a JSON array of objects, in its order, without the blanks of `json_agg`. */
export function jsonRows(query: Expression<unknown>): RawBuilder<unknown> {
  return sql`array_to_json(array(select json_row from ${query} json_row))`
}

/** SQL: the row of a query as a JSON object in a text; null where there is none. */
export function jsonText(query: Expression<unknown>): Expression<string> {
  return sql`${jsonObjectFrom(query)}::text`
}
