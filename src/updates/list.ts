import type { TObject } from '@sinclair/typebox'
import type { Expression, Kysely, SqlBool } from 'kysely'
import { jsonObjectFrom } from 'kysely/helpers/postgres'
import type { Caller } from '../auth/caller.js'
import { anyOf, columnsOf, instant, jsonText, lit, named, on, queries, val } from '../db/statements/queries.js'
import type { ResourceKind, Tables } from '../db/tables.js'

/* Reads lists of agents and tools in pages. In the SQL expressions, `r` is the row of the agent or tool. */

interface AskedPage {
  name?: string
  deleted?: boolean
  after: number
  rows: number
}

/** Reads a page of records that the caller can see. Each record is JSON text. */
export type ReadPage = (
  db: Kysely<Tables>,
  caller: Caller,
  asked: AskedPage,
) => Promise<{ id: number; record: string }[]>

const column = columnsOf<Record<string, unknown>>('r')

/**
 * Returns a function that reads up to `rows` visible records with ids larger than `after`, sorted by id. `schema` has the properties of a record, and
 * `computed` has the SQL for those that are not columns. `ids` are the resources that the token is bound to; null for an unbound token.
 */
export function pagesOf(
  kind: ResourceKind,
  schema: TObject,
  owner: string,
  computed: Record<string, Expression<unknown>> = {},
) {
  const person = queries().selectFrom('user_account as u').select(['u.id', 'u.email'])
  const made: typeof computed = {
    ...computed,
    owner: jsonObjectFrom(person.where('u.id', '=', column(owner) as Expression<string>)),
    updated_at: on<object>()
      .selectFrom('audit as a')
      .select(({ ref }) => instant(ref('a.at')).as('at')) // null if the audit row was pruned
      .where('a.resource_kind', '=', lit(kind))
      .where('a.resource_id', '=', column('id') as Expression<number>)
      .where('a.version_after', '=', column('version') as Expression<number>),
    etag: on().fn('format', [lit(`"${kind}-%s-%s"`), column('id'), column('version')]),
  }
  const members = Object.keys(schema.properties).map(name => named(made[name] ?? column(name), name))
  const record = jsonText(queries().selectNoFrom(members)).as('record')
  return async (
    db: Kysely<Tables>,
    { name, after, rows }: AskedPage,
    ids: number[] | null,
    isSeen: Expression<SqlBool> = lit(true),
  ) =>
    await db
      .selectFrom(`${kind as 'tool'} as r`) // `persona` also has the columns used here
      .select(['r.id', record])
      .where('r.id', '>', after)
      .$if(name !== undefined, query => query.where('r.name', '=', name ?? '').orderBy('r.name'))
      .$if(ids !== null, query => query.where('r.id', '=', anyOf(val(ids ?? []))))
      .where(isSeen)
      .orderBy('r.id')
      .limit(lit(rows)) // a constant tells the planner that the page is short
      .execute()
}
