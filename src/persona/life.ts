import { sql } from 'kysely'
import { personaAccess } from '../auth/access.js'
import { isAdmin, visibleAgents } from '../auth/caller.js'
import { anyOf } from '../db/statements/queries.js'
import { Refused } from '../errors.js'
import type { ReleaseTool } from '../tool/life.js'
import { changeAsOperator } from '../updates/engine.js'
import type { VersionedResource } from '../updates/resource.js'
import { type PersonaTypes, personaResource } from './resource.js'
import { decideDeletion, decisionFor, mayUpdate, requireDeletable } from './rules.js'
import type { PersonaState } from './state.js'

/** Creates agents. A name that a live agent of the caller has is refused below `/api`, as the published product does. */
export const personaCreation: VersionedResource<PersonaTypes> = {
  ...personaResource,
  act: 'creation',
  decide: async (db, state, request) => {
    const decision = await personaResource.decide(db, state, request)
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
    const namesake = (await named.orderBy('id').executeTakeFirst())?.id
    if (namesake === undefined) return decision
    if (request.isToday) throw new Refused('BAD_REQUEST', `Agent ${namesake} has this name already: choose another.`)
    return { ...decision, namesake }
  },
}

/** Deletes agents: marks them and removes all their links. */
export const personaDeletion: VersionedResource<PersonaTypes> = {
  ...personaResource,
  act: 'deletion',
  isAlone: () => false,
  decide: async (_, state, { caller }) => {
    requireDeletable(state, caller)
    return decideDeletion(state)
  },
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
    const decide = (state: PersonaState) => {
      const tool_ids = state.tool_ids.filter(tool => tool !== id)
      return decisionFor(state, caller === undefined || mayUpdate(state, caller) ? { ...state, tool_ids } : state)
    }
    const { changes } = await changeAsOperator(trx, personaResource, agent.id, decide, actor, viewer)
    if (changes.length > 0) released.push(agent.id)
  }
  return released
}
