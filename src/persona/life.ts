import { sql } from 'kysely'
import { personaAccess, UNKNOWN_ATTACHER } from '../auth/access.js'
import { type Caller, isAdmin } from '../auth/caller.js'
import { anyOf } from '../db/statements/queries.js'
import { Refused } from '../errors.js'
import type { ReleaseTool } from '../tool/life.js'
import { changeAsOperator, storeLocked } from '../updates/engine.js'
import { sameValue } from '../updates/field-table.js'
import { inVersion, readPast, restored } from '../updates/read.js'
import type { RestoreRequest, UpdateRequest, VersionedResource } from '../updates/resource.js'
import { BLANK_AGENT, CONTENT_FIELDS, idsOf, isRelation, type PersonaContent, REQUEST_FIELDS } from './fields.js'
import { type PersonaTypes, personaResource } from './resource.js'
import {
  changedFields,
  contentOf,
  decideDeletion,
  decisionFor,
  mayUpdate,
  owns,
  type PersonaDecision,
  type PersonaUpdateFields,
  requireDeletable,
  requireEditable,
  requireVersions,
} from './rules.js'
import type { PersonaState } from './state.js'

/* Creations, deletions and restorations: updates with decisions of their own. */

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
export const releaseTool: ReleaseTool = async (trx, id, actor, request) => {
  const caller = request?.caller
  const bound = caller?.token.bound?.persona
  const agents = await trx
    .selectFrom('persona as p')
    .innerJoin('persona_tool as l', 'l.persona_id', 'p.id')
    .select('p.id')
    .where('l.tool_id', '=', id)
    .where('p.deleted', '=', caller === undefined)
    .$if(bound !== undefined, query => query.where(({ eb, val }) => eb('p.id', '=', anyOf(val(bound ?? [])))))
    .$if(caller !== undefined && !isAdmin(caller), query =>
      query.where(({ cast, val }) => personaAccess(cast(val(caller?.userId), 'uuid')), 'in', ['owner', 'editor']),
    )
    .orderBy('p.id') // the order of locks
    .$if(caller !== undefined, query => query.limit(RELEASED_MAX + 1))
    .execute()
  if (caller !== undefined && agents.length > RELEASED_MAX) return []
  const without = (state: PersonaState) =>
    decisionFor(state, { ...state, tool_ids: state.tool_ids.filter(tool => tool !== id) })
  const release = async (agent: number) => {
    if (request === undefined) return await changeAsOperator(trx, personaResource, agent, without, actor)
    const resource: VersionedResource<ReleaseTypes> = {
      ...personaResource,
      decide: async (_, state, { caller }) => (mayUpdate(state, caller) ? without(state) : decisionFor(state, state)),
    }
    const asked = { ...request, kind: 'persona', id: agent, dryRun: false, minimal: true } as const
    const { answer } = await storeLocked(trx, { resource, request: { ...asked, precondition: ANY, ifNoneMatch: NONE } })
    return answer.decision
  }
  const released: number[] = []
  for (const agent of agents) if ((await release(agent.id))?.changes.length) released.push(agent.id)
  return released
}

/** The preconditions of the request are those of the tool. */
const [ANY, NONE] = [{ kind: 'any' }, { kind: 'none' }] as const

interface ReleaseTypes extends Omit<PersonaTypes, 'Request'> {
  Request: UpdateRequest
}

interface RestoreTypes extends Omit<PersonaTypes, 'Request'> {
  Request: RestoreRequest
  /** `left`: the fields that are not restored, because the caller cannot set them, each in words. */
  Decision: PersonaDecision & { left: ReadonlyMap<string, string> }
}

/** Restores earlier versions of agents, also of deleted ones, as new versions: with the rights and rules of an update. */
export const personaRestoration: VersionedResource<RestoreTypes> = {
  ...personaResource,
  act: 'restoration',
  isVisible: (state, caller) => personaResource.isVisible(state, caller) || (state.deleted && owns(state, caller)),
  isAlone: (_, { dryRun }) => dryRun,
  decide: async (db, state, request) => {
    const { caller, strict } = request
    const { version } = request.fields
    if (state.deleted) requireVersions(state, caller)
    else requireEditable(state, caller)
    const then: PersonaContent = { ...contentOf(state), ...(await readPast(db, 'persona', state.id, version)) }
    if (then.deleted)
      throw new Refused(
        'VERSION_NOT_FOUND',
        `In version ${version} agent ${state.id} was deleted: name an earlier one.`,
      )
    const fields = fieldsOf(then, owns(state, caller) || strict)
    const base = state.deleted ? brought(state, caller) : state
    const decision = await personaResource
      .decide(db, base, { ...request, fields, masked: true })
      .catch(error => Promise.reject(inVersion(error)))
    const { after } = decision
    const differing = CONTENT_FIELDS.filter(field => !sameValue(after[field], then[field]))
    const left = new Map(differing.map(field => [field, leftOf(field, after, then)]))
    const changes = changedFields(state, after)
    // Otherwise a group manager could bring a tool that they attached themselves into their scope.
    return restored({ ...decision, changes, attacher: UNKNOWN_ATTACHER }, request, left)
  },
}

function leftOf(field: keyof PersonaContent, after: PersonaContent, then: PersonaContent): string {
  const isOfLevels = isRelation(field) && sameValue(idsOf(after, field), idsOf(then, field))
  return isOfLevels ? `${field} (its levels, which agentctl apply sets)` : field
}

function fieldsOf(content: PersonaContent, withOwners: boolean): PersonaUpdateFields {
  const fields = REQUEST_FIELDS.flatMap(([name, { changedBy }]) => {
    if (name === 'remove_image' || (changedBy === 'owner' && !withOwners)) return []
    return [[name, isRelation(name) ? idsOf(content, name) : content[name]]]
  })
  return Object.fromEntries(fields) as PersonaUpdateFields // the values have their stored types
}

/** The agent that a restoration brings back. Fields that only administrators set come back only with an administrator. */
function brought(state: PersonaState, caller: Caller): PersonaState {
  const reserved = isAdmin(caller) ? [] : REQUEST_FIELDS.filter(([, { changedBy }]) => changedBy === 'admin')
  const blank = Object.fromEntries(reserved.map(([name]) => [name, BLANK_AGENT[name as keyof PersonaContent]]))
  return { ...state, ...blank, deleted: false }
}
