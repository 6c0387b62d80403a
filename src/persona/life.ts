import { sql } from 'kysely'
import { personaAccess } from '../auth/access.js'
import { isAdmin, visibleAgents } from '../auth/caller.js'
import { anyOf } from '../db/statements/queries.js'
import { Refused } from '../errors.js'
import type { ReleaseTool } from '../tool/life.js'
import type { VersionedResource } from '../updates/resource.js'
import { lockState, storeDecision } from '../updates/write.js'
import { type PersonaTypes, personaResource } from './resource.js'
import { contentOf, decideDeletion, decisionFor, mayUpdate, requireDeletable } from './rules.js'

/** Creates agents. A name that a live agent of the caller has is refused below `/api`, as the published product does. */
export const personaCreation: VersionedResource<PersonaTypes> = {
  ...personaResource,
  act: 'creation',
  facts: async (db, state, request) => {
    const references = await personaResource.facts(db, state, request)
    const { name = '' } = request.fields
    // Held until the commit: of two creations below `/api` at a time, the second finds the first.
    if (request.isToday) await sql`select pg_advisory_xact_lock(hashtext(${name}))`.execute(db)
    const named = db
      .selectFrom('persona')
      .select('id')
      .where('name', '=', name)
      .where('deleted', '=', false)
      .where('id', '<>', state.id)
      .$if(!isAdmin(request.caller), query => query.where('owner_id', '=', request.caller.userId))
    return { ...references, namesake: (await named.orderBy('id').executeTakeFirst())?.id }
  },
  decide: (state, request, references) => {
    const decision = personaResource.decide(state, request, references)
    const { namesake } = references
    if (namesake === undefined) return decision
    if (request.isToday) throw new Refused('BAD_REQUEST', `Agent ${namesake} has this name already: choose another.`)
    return { ...decision, namesake }
  },
}

/** Deletes agents: marks them and removes all their links. */
export const personaDeletion: VersionedResource<PersonaTypes> = {
  ...personaResource,
  act: 'deletion',
  decide: (state, { caller }) => {
    requireDeletable(state, caller)
    return decideDeletion(state)
  },
  asked: state => decideDeletion(state).changes,
  requireRights: requireDeletable,
}

/** The most agents that one deletion takes a tool off. More keep it, and so the tool stays. */
const RELEASED_MAX = 100

/** Detaches a tool from deleted agents, or from those that the caller may update, each with a new version. Other agents keep it. */
export const releaseTool: ReleaseTool = async (trx, id, actor, viewer, caller) => {
  const bound = caller && visibleAgents(caller.token)
  const agents = await trx
    .selectFrom('persona as p')
    .innerJoin('persona_tool as l', 'l.persona_id', 'p.id')
    .select('p.id')
    .where('l.tool_id', '=', id)
    .where('p.deleted', '=', caller === undefined)
    .$if(bound != null, query => query.where(({ eb, val }) => eb('p.id', '=', anyOf(val(bound ?? [])))))
    .$if(caller !== undefined && !isAdmin(caller), query =>
      query.where(({ cast, val }) => personaAccess(cast(val(viewer.user), 'uuid')), 'in', ['owner', 'editor']),
    )
    .orderBy('p.id') // the order of locks
    .$if(caller !== undefined, query => query.limit(RELEASED_MAX + 1))
    .execute()
  if (caller !== undefined && agents.length > RELEASED_MAX) return []
  const released: number[] = []
  for (const agent of agents) {
    const state = await lockState(trx, personaResource, agent.id, viewer)
    if (state === undefined || (caller !== undefined && !mayUpdate(state, caller))) continue
    const content = contentOf(state)
    const decision = decisionFor(state, { ...content, tool_ids: content.tool_ids.filter(tool => tool !== id) })
    await storeDecision(trx, personaResource, state, decision, actor, viewer)
    released.push(agent.id)
  }
  return released
}
