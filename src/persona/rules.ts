import { type Caller, isAdmin } from '../auth/caller.js'
import { type Fault, Forbidden, InvalidRequest, Refused, ResourceNotFound } from '../errors.js'
import { bytesShown, type ToolState } from '../tool/snapshot.js'
import { sameValue } from '../updates/field-table.js'
import type { Change, Decision, UpdateRequest } from '../updates/resource.js'
import { canonicalUuid } from '../validation/vocabulary.js'
import {
  BLANK_AGENT,
  CONTENT_FIELDS,
  compareIds,
  FIELDS,
  type Id,
  idOf,
  idsOf,
  linkOf,
  type PersonaContent,
  RELATIONS,
  REQUEST_FIELDS,
  type Relation,
  type RequestField,
  type Share,
} from './fields.js'
import type { PersonaUpsertRequest } from './schema.js'
import type { PersonaState, Related } from './state.js'

/** The fields of an update, after `canonical` has converted their values. */
export type PersonaUpdateFields = { -readonly [F in RequestField]?: PersonaUpsertRequest[F] | undefined }

/** A request to update an agent. `masked`: the request has an `update_mask`, so `null` clears a field (DECISIONS sections 3 and 8). */
export interface PersonaUpdate extends UpdateRequest {
  fields: PersonaUpdateFields
  masked: boolean
  /** True for requests under `/api`, which follow the rules of Onyx. */
  isToday?: boolean
}

/** The ids of newly attached records, by relation. */
export type Attached = Partial<Record<Relation, Id[]>>

/** The newly attached records. Omits records that do not exist or are hidden from the caller. */
export type References = Omit<Related, 'tool_ids'> & {
  tool_ids: (ToolState & { attachable: boolean })[]
  groups: number[]
  user_file_ids: string[]
}

export const NO_REFERENCES: References = {
  ...{ tool_ids: [], document_set_ids: [], label_ids: [], user_file_ids: [], users: [], groups: [] },
}

/** The decision on an allowed update, with the resulting agent. */
export interface PersonaDecision extends Decision {
  after: PersonaState
  attached: Attached
  /** The user who attached the new tools. Default: the caller. */
  attacher?: string
  kept: RequestField[]
  /** The fields that `null` did not change, although the caller may have meant to clear them. */
  keptByNull: RequestField[]
  /** The id of another agent with the same name as the new agent. The caller owns that agent or is an administrator. */
  namesake?: number
}

/**
 * Decides on an update, in the order of DECISIONS section 2. The right to edit must have been checked. `applied` is the result of `appliedTo`. Throws
 * `Forbidden` and `InvalidRequest`.
 */
export function decidePersona(
  state: PersonaState,
  update: PersonaUpdate,
  applied: ReturnType<typeof appliedTo>,
  attached: Attached,
  references: References,
): PersonaDecision {
  const { content, kept } = applied
  requireRights(state, content, kept, update)
  if (update.proposes || !update.isToday) requirePublicDefault(state, content)
  const keptByNull = nullsThatKeep(state, update)
  if (update.strict && keptByNull.length > 0) throw new InvalidRequest(keptByNull.map(nullThatKeeps))
  requireReferences(attached, update, references)
  const after = { ...state, ...content, related: relatedWith(state, references) }
  if (update.fields.tool_ids !== undefined) requireRoom(after, update.snapshotBytesMax)
  return { after, changes: changedFields(state.name === '' ? BLANK_AGENT : state, content), attached, kept, keptByNull }
}

/** Returns the related records of an agent, including newly attached records. */
export function relatedWith({ related }: PersonaState, references: References): Related {
  return {
    tool_ids: [...related.tool_ids, ...references.tool_ids],
    document_set_ids: [...related.document_set_ids, ...references.document_set_ids],
    label_ids: [...related.label_ids, ...references.label_ids],
    users: [...related.users, ...references.users],
  }
}

/** Returns the decision for content that needs no further check. */
export function decisionFor(state: PersonaState, content: PersonaContent): PersonaDecision {
  const changes = changedFields(state, content)
  return { after: { ...state, ...content }, changes, attached: {}, kept: [], keptByNull: [] }
}

/** Decides on a deletion, which marks the agent as deleted and removes its links. The audit row contains the removed links. */
export function decideDeletion(state: PersonaState): PersonaDecision {
  const relations = Object.fromEntries(RELATIONS.map(([relation]) => [relation, []]))
  return decisionFor(state, { ...contentOf(state), ...relations, deleted: true })
}

/** Throws `ResourceNotFound`, `Forbidden` or `Refused` unless the caller can see the agent and may delete it. */
export function requireDeletable(state: PersonaState, caller: Caller): void {
  if (!isVisible(state, caller)) throw new ResourceNotFound('persona')
  if (!owns(state, caller)) throw new Forbidden('Only the owner of this agent or an administrator may delete it.')
  if (state.builtin_persona) throw new Refused('BUILTIN_READ_ONLY', 'This agent is built in and cannot be deleted.')
}

/** True if the agent is not deleted and the caller has access to it. */
export function isVisible(state: Pick<PersonaState, 'deleted' | 'access'>, caller: Caller): boolean {
  return !state.deleted && (state.access !== 'none' || isAdmin(caller))
}

/** Returns the users and groups that can lose access to the agent. `is_public` is true if everyone can. Returns null if nobody can. */
export function takenFrom(before: PersonaState, after: PersonaContent): object | null {
  const left = (relation: 'users' | 'groups') => {
    const kept = after.deleted ? [] : idsOf(after, relation)
    return idsOf(before, relation).filter(id => !kept.includes(id))
  }
  const owner = after.deleted || after.owner_id !== before.owner_id ? [before.owner_id] : []
  const is_public = before.is_public && (after.deleted || !after.is_public)
  const taken = { is_public, users: [...owner, ...left('users')], groups: left('groups') }
  const isTaken = after.deleted || is_public || taken.users.length + taken.groups.length > 0
  return isTaken && !before.deleted ? taken : null
}

/** Requires a visible agent that is not built in and, unless `proposes`, the right to edit. Throws `ResourceNotFound`, `Forbidden` or `Refused`. */
export function requireEditable(state: PersonaState, caller: Caller, proposes = false): void {
  if (!isVisible(state, caller)) throw new ResourceNotFound('persona')
  if (!proposes) requireEditor(state, caller, 'You can see this agent but not edit it')
  if (state.builtin_persona) throw new Refused('BUILTIN_READ_ONLY', 'This agent is built in and cannot be updated.')
}

/**
 * Requires the right to edit the agent, because earlier versions can contain values that viewers must not see. If the agent is deleted, the caller
 * must be its owner or an administrator. Throws `ResourceNotFound` and `Forbidden`.
 */
export function requireVersions(state: PersonaState, caller: Caller): void {
  if (!state.deleted) requireEditor(state, caller, 'You can see this agent but not its earlier versions')
  else if (!owns(state, caller)) throw new ResourceNotFound('persona')
}

/** True for the owner and for administrators. */
export function owns({ access }: PersonaState, caller: Caller): boolean {
  return access === 'owner' || isAdmin(caller)
}

export function mayUpdate(state: PersonaState, caller: Caller): boolean {
  return isVisible(state, caller) && isEditor(state, caller) && !state.builtin_persona
}

const isEditor = (state: PersonaState, caller: Caller) => state.access === 'editor' || owns(state, caller)

function requireEditor(state: PersonaState, caller: Caller, refusal: string): void {
  if (!isVisible(state, caller)) throw new ResourceNotFound('persona')
  if (isEditor(state, caller)) return
  throw new Forbidden(`${refusal}. Only its owner, its editors and administrators have this right.`)
}

type AppliedUpdate = Pick<PersonaUpdate, 'fields' | 'masked' | 'strict' | 'caller' | 'proposes'>

/**
 * Returns the content after the update. `kept` lists the fields that keep their values although the update names them: fields that only administrators
 * can change (if the update is not a proposal), and `keptIfEmpty` fields with an empty list. `decidePersona` checks the rights.
 */
export function appliedTo(state: PersonaState, { fields, masked, strict, caller, proposes = false }: AppliedUpdate) {
  const content: PersonaContent = { ...state } // copying all properties is faster than selecting some
  const values: Record<string, unknown> = content as object as Record<string, unknown>
  const kept: RequestField[] = []
  if (fields.remove_image === true) content.uploaded_image_id = null
  for (const [name, { changedBy, keptIfEmpty, nullWithoutMask }] of REQUEST_FIELDS) {
    const value = fields[name]
    if (name === 'remove_image' || value === undefined) continue
    if (value === null && nullWithoutMask === 'kept' && !masked) continue
    const asked = storedValue(name, value, state)
    const isStored = sameValue(asked, state[name])
    const isAdmins = changedBy === 'admin' || (changedBy === 'admin once it is set' && state[name] !== null)
    const isOwners = keptIfEmpty === true && !strict && sameValue(value, []) && state.access !== 'owner'
    const isKept = !isStored && ((isAdmins && !proposes) || isOwners) && !isAdmin(caller)
    if (isKept) kept.push(name)
    else values[name] = isStored ? state[name] : asked
  }
  return { content, kept }
}

/** Converts a requested value to its stored form. A relation becomes a sorted list of ids or shares, which is empty for `null`. */
function storedValue(name: Exclude<RequestField, 'remove_image'>, value: unknown, state: PersonaState): unknown {
  if (!('link' in FIELDS[name])) return value
  const ids = (value ?? []) as Id[] // the schema has checked the value
  const relation = name as Relation
  if (relation === 'user_file_ids') {
    // The stored id can be another spelling of the same UUID.
    const stored = new Map(state.user_file_ids.map(id => [canonicalUuid(id) ?? id, id]))
    return sorted(ids.map(id => stored.get(String(id)) ?? id))
  }
  if (!linkOf(relation).isShare) return sorted(ids)
  const before = new Map((state[relation] as Share<Id>[]).map(share => [share.id, share.level]))
  // A share keeps its level. A new share gets the level `viewer`. The owner needs no share (DECISIONS section 3).
  const others = ids.filter(id => id !== state.owner_id)
  return sorted(others).map(id => ({ id, level: before.get(id) ?? 'viewer' }))
}

function requireRights(
  state: PersonaState,
  content: PersonaContent,
  kept: RequestField[],
  update: PersonaUpdate,
): void {
  const mayAll = update.proposes || owns(state, update.caller)
  for (const [name, { changedBy }] of mayAll ? [] : REQUEST_FIELDS) {
    if (changedBy === 'owner' && name !== 'remove_image' && !sameValue(content[name], state[name])) {
      throw new Forbidden(`Only the agent's owner or an administrator may change ${name}.`)
    }
  }
  if (update.strict && kept.length > 0) {
    throw new Forbidden(`Only an administrator may change ${kept.join(' and ')}.`, 'admin')
  }
}

/**
 * If `is_default_persona` or `is_public` changes, requires a default agent to be public. Under `/api`, only proposals are checked, because clients of
 * Onyx create private default agents.
 */
function requirePublicDefault(state: PersonaState, content: PersonaContent): void {
  const { is_default_persona: isDefault, is_public: isPublic } = content
  const isChanged = isDefault !== state.is_default_persona || isPublic !== state.is_public
  if (!isDefault || isPublic || !isChanged) return
  const loc = ['body', state.is_default_persona ? 'is_public' : 'is_default_persona']
  throw new InvalidRequest([{ loc, msg: 'A default agent must be public', type: 'default_persona_private' }])
}

/**
 * Returns the fields that the caller may have meant to clear with `null`. Examines only requests with `If-Match` or strict handling, because other
 * requests can come from Onyx's web form, which always sends `null`.
 */
function nullsThatKeep(state: PersonaState, { fields, masked, strict, precondition }: PersonaUpdate): RequestField[] {
  if (masked || !(strict || precondition.kind !== 'none')) return []
  return REQUEST_FIELDS.flatMap(([name, { nullWithoutMask }]) => {
    if (name === 'remove_image' || fields[name] !== null || nullWithoutMask !== 'kept') return []
    const isCleared = name === 'uploaded_image_id' && fields.remove_image === true
    return isCleared || sameValue(state[name], null) || sameValue(state[name], []) ? [] : [name]
  })
}

function nullThatKeeps(field: RequestField): Fault {
  const msg = 'null keeps the stored value. To clear the field, name it in update_mask'
  return { loc: ['body', field], msg, type: 'null_keeps' }
}

/** Returns the ids that `after` adds to each relation of `before`. */
export function attachedIds(before: PersonaContent, after: PersonaContent): Attached {
  const attached: Attached = {}
  for (const [relation] of RELATIONS) {
    if (before[relation] === after[relation]) continue
    const had = new Set(idsOf(before, relation))
    const added = idsOf(after, relation).filter(id => !had.has(id))
    if (added.length > 0) attached[relation] = added
  }
  return attached
}

function requireReferences(attached: Attached, { fields }: PersonaUpdate, references: References): void {
  const faults = RELATIONS.flatMap(([relation]) => {
    const added = new Set(attached[relation])
    const records: (Id | { id: Id })[] = references[relation]
    const found = new Map(records.map(record => [idOf(record), record]))
    return (fields[relation] ?? []).flatMap((id, index) => {
      const fault = added.has(id) ? referenceFault(relation, found.get(id)) : undefined
      return fault === undefined ? [] : [{ loc: ['body', relation, index], ...fault }]
    })
  })
  if (faults.length > 0) throw new InvalidRequest(faults)
}

function referenceFault(relation: Relation, record: unknown): Omit<Fault, 'loc'> | undefined {
  if (record === undefined) return { msg: `${linkOf(relation).noun} not found`, type: 'not_found' }
  if (relation !== 'tool_ids') return undefined
  const { enabled, attachable } = record as References['tool_ids'][number] // the relation is `tool_ids`
  if (!enabled) return { msg: 'This tool is disabled and cannot be attached', type: 'tool_disabled' }
  if (attachable) return undefined
  return { msg: 'This tool belongs to an MCP server that you do not have the right to manage', type: 'tool_forbidden' }
}

/** Returns the tools of an agent from its related records. */
export function shownToolsOf({ tool_ids, related }: Pick<PersonaState, 'tool_ids' | 'related'>): ToolState[] {
  const ids = new Set(tool_ids)
  return related.tool_ids.filter(({ id }) => ids.has(id))
}

/** The advice if the tools of an agent exceed the size limit of one answer. */
export const FEWER_TOOLS =
  'The agent needs fewer or smaller tools. You can still update its tool_ids with Prefer: return=minimal.'

/** Returns the size of an agent's tools in an answer, in bytes. */
export function bytesOfTools(agent: PersonaState): number {
  return shownToolsOf(agent).reduce((sum, tool) => sum + bytesShown(tool), 0)
}

/** Throws `InvalidRequest` if the agent's tools exceed the size limit of one answer. */
function requireRoom(after: PersonaState, bytesMax: number): void {
  const bytes = bytesOfTools(after)
  if (bytes <= bytesMax) return
  const msg = `These tools take ${bytes} bytes, but the tools of one agent can take at most ${bytesMax}`
  throw new InvalidRequest([{ loc: ['body', 'tool_ids'], msg, type: 'snapshot_too_large' }])
}

/** Returns the fields that differ, in the order of `FIELDS`. Compares shares with their levels. */
export function changedFields(before: PersonaContent, after: PersonaContent): Change[] {
  return CONTENT_FIELDS.filter(field => !sameValue(before[field], after[field])).map(field => ({
    field,
    from: before[field],
    to: after[field],
  }))
}

/** Returns the changes that an update of `fields` would make. Checks neither rights nor references. */
export function differenceOf(state: PersonaState, fields: PersonaUpdateFields, caller: Caller): Change[] {
  return changedFields(state, appliedTo(state, { fields, masked: true, strict: true, caller, proposes: true }).content)
}

/** Returns the changeable content of a state. */
export function contentOf(state: PersonaContent): PersonaContent {
  const content: Record<string, unknown> = {}
  for (const field of CONTENT_FIELDS) content[field] = state[field]
  return content as PersonaContent
}

function sorted<Id extends string | number>(ids: readonly Id[]): Id[] {
  return [...new Set(ids)].sort(compareIds)
}
