import { UNKNOWN_ATTACHER } from '../auth/access.js'
import { type Caller, isAdmin } from '../auth/caller.js'
import { Forbidden, InvalidRequest, VersionNotFound, VersionUnusable } from '../errors.js'
import { sameValue } from '../updates/field-table.js'
import { readPast } from '../updates/read.js'
import type { UpdateRequest, VersionedResource } from '../updates/resource.js'
import {
  BLANK_AGENT,
  CONTENT_FIELDS,
  idsOf,
  isRelation,
  linkOf,
  type PersonaContent,
  REQUEST_FIELDS,
} from './fields.js'
import { type PersonaTypes, personaResource } from './resource.js'
import {
  changedFields,
  contentOf,
  type PersonaDecision,
  type PersonaUpdateFields,
  requireEditable,
  requireVersions,
} from './rules.js'
import type { PersonaState } from './state.js'

interface PersonaRestore extends UpdateRequest {
  fields: { version: number }
  strict: boolean
}

interface RestoreTypes extends Omit<PersonaTypes, 'Request'> {
  Request: PersonaRestore
  /** `left`: the fields that are not restored, because the caller cannot set them. */
  Decision: PersonaDecision & { left: string[] }
}

/** Restores earlier versions of agents, also of deleted ones, as new versions: with the rights and rules of an update. */
export const personaRestoration: VersionedResource<RestoreTypes> = {
  ...personaResource,
  act: 'restoration',
  isVisible: (state, caller) =>
    personaResource.isVisible(state, caller) || (state.deleted && ownsOrAdministers(state, caller)),
  isAlone: (_, { dryRun }) => dryRun,
  decide: async (db, state, request) => {
    const { caller, strict } = request
    const { version } = request.fields
    if (state.deleted) requireVersions(state, caller)
    else requireEditable(state, caller)
    const then: PersonaContent = { ...contentOf(state), ...(await readPast(db, 'persona', state.id, version)) }
    if (then.deleted)
      throw new VersionNotFound(`In version ${version} agent ${state.id} was deleted: name an earlier one.`)
    const fields = fieldsOf(then, ownsOrAdministers(state, caller) || strict)
    const base = state.deleted ? brought(state, caller) : state
    const decision = await personaResource
      .decide(db, base, { ...request, fields, masked: true })
      .catch(error => Promise.reject(asUnusable(error, version, fields)))
    const { after } = decision
    const left = CONTENT_FIELDS.filter(field => !sameValue(after[field], then[field]))
    if (strict && left.length > 0) throw new Forbidden(`You do not have the right to restore ${left.join(' and ')}.`)
    const changes = changedFields(state, after)
    // Otherwise a group manager could bring a tool that they attached themselves into their scope.
    return { ...decision, changes, left, attacher: UNKNOWN_ATTACHER, command: `restore --version ${version}` }
  },
}

function ownsOrAdministers({ access }: PersonaState, caller: Caller): boolean {
  return access === 'owner' || isAdmin(caller)
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

/** Reports ids that cannot be attached as an unusable version, not as an invalid request. Ids of files are private. */
function asUnusable(error: unknown, version: number, fields: PersonaUpdateFields): unknown {
  if (!(error instanceof InvalidRequest)) return error
  const names = error.faults.flatMap(({ loc: [, field = '', index], type }) => {
    if (typeof field !== 'string' || !isRelation(field) || typeof index !== 'number') return []
    const noun = linkOf(field).noun.toLowerCase()
    if (field === 'user_file_ids') return [`a ${noun}`]
    return [`${noun} ${fields[field]?.[index]}${type === 'tool_disabled' ? ' (disabled)' : ''}`]
  })
  return names.length > 0 ? new VersionUnusable(version, names) : error
}
