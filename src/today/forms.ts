import { type Static, type TSchema, Type } from '@sinclair/typebox'
import type { Kysely } from 'kysely'
import type { Tables } from '../db/tables.js'
import { InvalidRequest } from '../errors.js'
import { NEW_AGENT } from '../persona/fields.js'
import { type PersonaSnapshot, PersonaUpsertRequest } from '../persona/schema.js'
import { words } from '../updates/field-table.js'
import { flag, identifier, list, nullable } from '../validation/vocabulary.js'

/* Converts requests and answers between Onyx's newer API under `/api` and the API without this prefix. */

/** The fields that are required only outside `/api`. Under `/api`, a field that is absent or null keeps its stored value. */
const KEPT = words('num_chunks recency_bias llm_filter_extraction llm_relevance_filter is_public users groups')

const EMPTY = 'an empty list'
const LISTS = { hierarchy_node_ids: EMPTY, document_ids: EMPTY, skill_ids: EMPTY }
/** The fields that Onyx stores but this service does not. Each is mapped to the value to send instead. */
const NOT_KEPT = { ...LISTS, default_model_configuration_id: 'null' }

/** Returns the schema of a field that can be absent or null. */
export const absent = <Schema extends TSchema>(schema: Schema) => Type.Optional(nullable(schema))

export const NewerPersonaRequest = Type.Object({
  ...PersonaUpsertRequest.properties,
  ...Object.fromEntries(KEPT.map(name => [name, absent(PersonaUpsertRequest.properties[name])])),
  ...{ is_featured: absent(flag()), default_model_configuration_id: absent(identifier()) },
  ...Object.fromEntries(Object.keys(LISTS).map(name => [name, absent(list(Type.Unknown()))])),
})

/** Converts a body under `/api` to the form of the API without this prefix. `creates`: adds the default `num_chunks`. Throws like `requireKept`. */
export function rootRequest(
  { is_featured: featured, ...body }: Static<typeof NewerPersonaRequest> & Record<string, unknown>,
  creates: boolean,
): Record<string, unknown> {
  requireKept(body, NOT_KEPT)
  for (const name of Object.keys(NOT_KEPT)) delete body[name]
  for (const name of KEPT) if (body[name] === null) delete body[name]
  const named = typeof featured === 'boolean' ? { is_default_persona: featured } : {}
  return { ...(creates && { num_chunks: NEW_AGENT.num_chunks }), ...body, ...named }
}

/** Throws `InvalidRequest` if the body sets one of `fields`. A field may be null or, if it is mapped to `EMPTY`, an empty list. */
export function requireKept(body: Readonly<Record<string, unknown>>, fields: Readonly<Record<string, string>>): void {
  const faults = Object.entries(fields).flatMap(([name, taken]) => {
    const value = body[name] ?? null
    if (value === null || (taken === EMPTY && Array.isArray(value) && value.length === 0)) return []
    return [{ loc: ['body', name], msg: `This service cannot set ${name}: send ${taken} instead`, type: 'not_kept' }]
  })
  if (faults.length > 0) throw new InvalidRequest(faults)
}

type Shown = Pick<PersonaSnapshot, 'id' | 'is_public' | 'is_visible' | 'is_default_persona' | 'users' | 'groups'>

/**
 * Returns the fields of agents that only the newer API has. `added` is the level to show for shares without a stored level, for example in a dry run.
 * Without `added`, `user_shares` and `group_shares` omit these shares.
 */
export async function newerMembers(
  db: Kysely<Tables>,
  agents: readonly Shown[],
  added?: 'viewer',
): Promise<Record<string, unknown>[]> {
  const ids = [0, ...agents.map(({ id }) => id)]
  const groupIds = [0, ...agents.flatMap(({ groups }) => groups)]
  const toUsers = db.selectFrom('persona_user').select(['persona_id', 'user_id as to', 'level'])
  const toGroups = db.selectFrom('persona_group').select(['persona_id', 'user_group_id as to', 'level'])
  const shares = [
    ...(await toUsers.where('persona_id', 'in', ids).execute()),
    ...(await toGroups.where('persona_id', 'in', ids).execute()),
  ]
  const levels = new Map(shares.map(({ persona_id, to, level }) => [`${persona_id} ${to}`, level]))
  const named = await db.selectFrom('user_group').select(['id', 'name']).where('id', 'in', groupIds).execute()
  const names = new Map(named.map(({ id, name }) => [id, name]))
  return agents.map(({ id, users, groups, is_public, is_visible, is_default_persona }) => {
    const shared = (to: string | number, more: object) => {
      const level = levels.get(`${id} ${to}`) ?? added
      return level === undefined ? [] : [{ ...more, permission: level.toUpperCase() }]
    }
    const isShared = users.length + groups.length > 0
    return {
      ...{ is_listed: is_visible, is_featured: is_default_persona, owner_group: null },
      user_shares: users.flatMap(user => shared(user.id, { user })),
      group_shares: groups.flatMap(group => shared(group, { group_id: group, group_name: names.get(group) })),
      ...{ public_permission: 'VIEWER', sharing_status: is_public ? 'PUBLIC' : isShared ? 'SHARED' : 'PRIVATE' },
      ...{ default_model_configuration_id: null, hierarchy_nodes: [], attached_documents: [], skill_ids: [] },
      ...{ hierarchy_node_count: 0, attached_document_count: 0, knowledge_sources: [] },
    }
  })
}

/** Appends properties to the JSON text of a record. Does not parse the text, so that numbers in definitions keep their form. */
export function withMembers(record: string, members: object = {}): string {
  return `${record.slice(0, -1)},${JSON.stringify(members).slice(1)}`
}
