import { type Kysely, sql } from 'kysely'
import type { Tables } from '../../db/tables.js'
import type { AccessKind } from '../../updates/access-events.js'
import type { SectionName } from '../document.js'

type Id = number | string

/** A list of the document in the database. */
interface List {
  table: keyof Tables
  access: AccessKind | undefined
}

/** The origin of a row's name. An entry matches by name only rows that the operator named, or that the entry's owner owns. */
export interface Origin {
  isOperators: boolean
  owner_id: string | null
  /** Owner and shares of the row in words, for the message to the operator. */
  described: string
}

/**
 * Reads the origins of the rows with one of these names. Programs can rename agents and tools, so the newest audit row that changed the
 * name decides. Other rows are the operator's if they have an access event; without one they were inserted by SQL. People, labels and
 * connections need no origin: an email identifies the person, and the others neither grant access nor hold secrets.
 */
export async function readOrigins(
  db: Kysely<Tables>,
  section: SectionName,
  list: List,
  rows: readonly Readonly<Record<string, unknown> & { id: Id }>[],
  names: ReadonlySet<string>,
): Promise<ReadonlyMap<Id, Origin>> {
  const query = queryOf(section, list)
  const ids = rows.filter(row => row.deleted !== true && names.has(String(row.name))).map(({ id }) => id)
  if (query === undefined || ids.length === 0) return new Map()
  const { rows: origins } = await sql<Origin & { id: Id }>`
    select found.id, found.is_operators as "isOperators", found.owner_id,
      coalesce('it belongs to ' || o.email, 'it has no owner') || ', ' || found.sharing as described
    from (${query}) found left join user_account o on o.id = found.owner_id
    where found.id = any(${ids}::integer[])`.execute(db)
  return new Map(origins.map(origin => [origin.id, origin]))
}

function queryOf(section: SectionName, { table, access }: List) {
  if (section === 'agents') {
    return sql`
      select p.id, p.owner_id, ${namedByOperator('persona', 'owner_id')} as is_operators,
        concat_ws(' and ', case when p.is_public then 'is public' else 'is private' end, 'is shared with ' || nullif(array_to_string(
          array(select u.email || ' (' || s.level || ')' from persona_user s join user_account u on u.id = s.user_id
                where s.persona_id = p.id order by 1)
          || array(select 'group ' || g.name || ' (' || s.level || ')' from persona_group s
                   join user_group g on g.id = s.user_group_id where s.persona_id = p.id order by 1), ', '), '')) as sharing
      from persona p`
  }
  if (section === 'tools') {
    return sql`
      select p.id, p.user_id as owner_id, ${namedByOperator('tool', 'user_id')} as is_operators,
        coalesce('is used by agent ' || nullif(array_to_string(
          array(select l.persona_id from persona_tool l where l.tool_id = p.id order by 1), ', '), ''),
          'is used by no agent') as sharing
      from tool p`
  }
  if (section === 'users' || section === 'user_files' || access === undefined) return undefined
  const owner = section === 'oauth_configs' || section === 'mcp_servers' ? sql`owner_id` : sql`null::uuid`
  return sql`
    select r.id, ${owner} as owner_id, 'no access event records who made it' as sharing, exists (
      select from access_event c where c.kind = ${access} and c.subject = r.id::text) as is_operators
    from ${sql.table(table)} r`
}

/** SQL: true if the operator gave the name. If that audit row is pruned: true if the row has no owner and its name never changed. */
function namedByOperator(kind: 'persona' | 'tool', owner: string) {
  return sql`coalesce((
    select a.actor_id is null from audit a
    where a.resource_kind = ${kind} and a.resource_id = p.id and 'name' = any(a.fields)
    order by a.version_after desc limit 1), p.${sql.ref(owner)} is null and not p.field_versions ? 'name')`
}
