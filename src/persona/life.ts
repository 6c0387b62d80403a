import { sql } from 'kysely'
import { type Caller, isAdmin } from '../auth/caller.js'
import { personaAccess, UNKNOWN_ATTACHER } from '../auth/viewer.js'
import { anyOf } from '../db/statements/queries.js'
import { Refused } from '../errors.js'
import type { ReleaseTool } from '../tool/life.js'
import { changeAsOperator, storeLocked } from '../updates/engine.js'
import { sameValue } from '../updates/field-table.js'
import { inVersion, readPast, restored } from '../updates/read.js'
import type { Restoration, UpdateRequest, VersionedResource } from '../updates/resource.js'
import { BLANK_AGENT, CONTENT_FIELDS, idsOf, isRelation, type PersonaContent, REQUEST_FIELDS } from './fields.js'
import { lockRemoved, type PersonaTypes, personaResource } from './resource.js'
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

/** Creates agents. Under `/api`, as in Onyx, the name must be unique among the caller's agents or, for administrators, among all agents. */
export const personaCreation: VersionedResource<PersonaTypes> = {
  ...personaResource,
  act: 'creation',
  decide: async (db, state, request, locks) => {
    const decision = await personaResource.decide(db, state, request, locks)
    const { name = '' } = request.fields
    // The lock lasts until the commit, so the second of two concurrent creations with this name finds the agent of the first.
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
    if (request.isToday)
      throw new Refused('BAD_REQUEST', `Agent ${namesake} already has this name: choose another name.`)
    return { ...decision, namesake }
  },
}

/** Marks agents as deleted and removes all their links. */
export const personaDeletion: VersionedResource<PersonaTypes> = {
  ...personaResource,
  act: 'deletion',
  decide: async (db, state, { caller }, locks) => {
    requireDeletable(state, caller)
    const decision = decideDeletion(state)
    if (locks) await lockRemoved(db, state, decision.after)
    return decision
  },
}

/** The maximum number of agents from which a request detaches a tool. If the caller may update more agents with the tool, the tool is not deleted. */
const RELEASED_MAX = 100

/** Detaches a tool from the agents that the caller may update or, without a `request`, from deleted agents. Returns the ids of the changed agents. */
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
    .orderBy('p.id') // a fixed order, so that row locks cannot deadlock
    .$if(caller !== undefined, query => query.limit(RELEASED_MAX + 1))
    .execute()
  if (caller !== undefined && agents.length > RELEASED_MAX) return []
  const without = (state: PersonaState) =>
    decisionFor(state, { ...state, tool_ids: state.tool_ids.filter(tool => tool !== id) })
  const release = async (agent: number) => {
    if (request === undefined) return await changeAsOperator(trx, personaResource, agent, without, actor)
    const resource: VersionedResource<ReleaseTypes> = {
      ...personaResource,
      act: 'deletion',
      decide: async (_, state, { caller }) => (mayUpdate(state, caller) ? without(state) : decisionFor(state, state)),
    }
    const requireApproval = request.dryRun ? 'none' : request.requireApproval
    const asked = { ...request, requireApproval, kind: 'persona', id: agent, dryRun: false, minimal: true } as const
    const { answer } = await storeLocked(trx, { resource, request: { ...asked, precondition: ANY, ifNoneMatch: NONE } })
    return answer.decision
  }
  const released: number[] = []
  for (const agent of agents) if ((await release(agent.id))?.changes.length) released.push(agent.id)
  return released
}

/** The request's preconditions are for the tool, so they are not applied to the agents. */
const [ANY, NONE] = [{ kind: 'any' }, { kind: 'none' }] as const

interface ReleaseTypes extends Omit<PersonaTypes, 'Request'> {
  Request: UpdateRequest
}

interface RestoreTypes extends Omit<PersonaTypes, 'Request'> {
  Request: Restoration
  /** `left`: the fields that are not restored, each with its description for messages. */
  Decision: PersonaDecision & { left: ReadonlyMap<string, string> }
}

/** Restores an earlier version of an agent as a new version. Requires the same rights as an update. Can also restore a deleted agent. */
export const personaRestoration: VersionedResource<RestoreTypes> = {
  ...personaResource,
  act: 'restoration',
  isVisible: (state, caller) => personaResource.isVisible(state, caller) || (state.deleted && owns(state, caller)),
  decide: async (db, state, request, locks) => {
    const { caller, strict } = request
    const { version } = request.fields
    if (state.deleted) requireVersions(state, caller)
    else requireEditable(state, caller)
    const then: PersonaContent = { ...contentOf(state), ...(await readPast(db, 'persona', state, version)) }
    if (then.deleted)
      throw new Refused(
        'VERSION_NOT_FOUND',
        `At that version, agent ${state.id} was deleted. Choose an earlier version.`,
      )
    const fields = fieldsOf(then, owns(state, caller) || strict)
    const base = state.deleted ? brought(state, caller) : state
    const decision = await personaResource
      .decide(db, base, { ...request, fields, masked: true }, locks)
      .catch(error => Promise.reject(inVersion(error)))
    const { after } = decision
    const differing = CONTENT_FIELDS.filter(field => !sameValue(after[field], then[field]))
    const left = new Map(differing.map(field => [field, leftOf(field, after, then)]))
    const changes = changedFields(state, after)
    // Tools that the restoration attaches count as attached by an unknown user, so that group managers gain no rights to these tools.
    return restored({ ...decision, changes, attacher: UNKNOWN_ATTACHER }, request, left)
  },
}

function leftOf(field: keyof PersonaContent, after: PersonaContent, then: PersonaContent): string {
  const isOfLevels = isRelation(field) && sameValue(idsOf(after, field), idsOf(then, field))
  return isOfLevels ? `${field} (only the operator can set permission levels)` : field
}

function fieldsOf(content: PersonaContent, withOwners: boolean): PersonaUpdateFields {
  const fields = REQUEST_FIELDS.flatMap(([name, { changedBy }]) => {
    if (name === 'remove_image' || (changedBy === 'owner' && !withOwners)) return []
    return [[name, isRelation(name) ? idsOf(content, name) : content[name]]]
  })
  return Object.fromEntries(fields) as PersonaUpdateFields // stored values have the types of the fields
}

/** Returns a deleted agent as not deleted. Unless the caller is an administrator, fields that only administrators can set get their defaults. */
function brought(state: PersonaState, caller: Caller): PersonaState {
  const reserved = isAdmin(caller) ? [] : REQUEST_FIELDS.filter(([, { changedBy }]) => changedBy === 'admin')
  const blank = Object.fromEntries(reserved.map(([name]) => [name, BLANK_AGENT[name as keyof PersonaContent]]))
  return { ...state, ...blank, deleted: false }
}
