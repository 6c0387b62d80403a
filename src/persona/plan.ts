import { type Caller, isAdmin } from '../auth/caller.js'
import { BuiltinReadOnly, type Fault, Forbidden, InvalidRequest, ResourceNotFound } from '../errors.js'
import type { Change } from '../updates/audit.js'
import type { RecentChange } from '../updates/recent.js'
import { entityTag, type Precondition, preconditionHolds } from '../updates/tag.js'
import type { PersonaContent, PersonaState } from './state.js'

/**
 * What an update asks for, after validation: only fields that were sent are present. `masked` says that an
 * `update_mask` named them, which makes `null` mean null for every nullable field (DECISIONS sections 3 and 8).
 */
export interface PersonaUpdate {
  fields: PersonaUpdateFields
  masked: boolean
  strict: boolean
  precondition: Precondition
  preconditionDemanded: boolean
}

/** The 26 fields of the interface document; lists of ids without duplicates, dates in canonical UTC text. */
export interface PersonaUpdateFields {
  name?: string
  description?: string
  document_set_ids?: number[]
  num_chunks?: number
  is_public?: boolean
  recency_bias?: string
  llm_filter_extraction?: boolean
  llm_relevance_filter?: boolean
  tool_ids?: number[]
  system_prompt?: string
  task_prompt?: string
  datetime_aware?: boolean
  llm_model_provider_override?: string | null
  llm_model_version_override?: string | null
  starter_messages?: { name: string; message: string }[] | null
  users?: string[]
  groups?: number[]
  remove_image?: boolean | null
  uploaded_image_id?: string | null
  icon_name?: string | null
  search_start_date?: string | null
  label_ids?: number[] | null
  is_default_persona?: boolean
  display_priority?: number | null
  user_file_ids?: string[] | null
  replace_base_system_prompt?: boolean
}

/** The relations of an agent, with the request field that names each. */
export const RELATIONS = ['tool_ids', 'document_set_ids', 'label_ids', 'user_file_ids', 'users', 'groups'] as const
export type Relation = (typeof RELATIONS)[number]

/** Ids that an update attaches and that were not attached before, per relation: what must exist and be allowed. */
export type Attached = Partial<Record<Relation, (number | string)[]>>

/** What the database says of newly attached ids. An id that is not listed does not exist for the caller. */
export interface References {
  tool_ids: { id: number; enabled: boolean; attachable: boolean }[]
  document_set_ids: number[]
  label_ids: number[]
  user_file_ids: string[]
  users: string[]
  groups: number[]
}

/** The decision on an update that may be made: what the agent becomes and what to tell the caller. */
export interface PersonaPlan {
  content: PersonaContent
  changes: Change[]
  attached: Attached
  kept: string[]
  overwritten: RecentChange[]
  precondition: 'holds' | 'failed' | 'demanded'
}

const KEPT_BY_PRESENCE = [
  'name',
  'description',
  'num_chunks',
  'is_public',
  'recency_bias',
  'llm_filter_extraction',
  'llm_relevance_filter',
  'system_prompt',
  'task_prompt',
  'datetime_aware',
  'llm_model_provider_override',
  'llm_model_version_override',
  'starter_messages',
  'icon_name',
  'search_start_date',
  'replace_base_system_prompt',
] as const satisfies readonly (keyof PersonaUpdateFields & keyof PersonaContent)[]

/**
 * Decides an update of an agent against one state of it. Pure: the same state, caller and request give the same plan.
 *
 * In the order of DECISIONS section 2: seen (`ResourceNotFound`), may edit (`Forbidden`, `BuiltinReadOnly`),
 * cross-field rules and references (`InvalidRequest`). A precondition that fails or is missing is reported in the plan:
 * it counts only once the references are known to be good, and saying what changed since needs the database.
 * With `references` null, newly attached ids are taken for granted: the writing statement checks them itself.
 */
export function planPersonaUpdate(
  state: PersonaState,
  caller: Caller,
  update: PersonaUpdate,
  references: References | null,
): PersonaPlan {
  requireEditable(state, caller)
  const { content, kept } = mergedContent(state, caller, update)
  requireRights(state, caller, content, kept, update)
  requirePublicDefault(state, content)
  const attached = attachedIds(state, content)
  if (references !== null) requireReferences(attached, update.fields, references)
  const changes = changedFields(state, content)
  return {
    content,
    changes,
    attached,
    kept,
    overwritten: update.precondition.kind === 'none' ? overwrittenFields(state, changes) : [],
    precondition: preconditionState(state, update, changes),
  }
}

/** Whether the caller sees the agent at all and may edit it. An invisible agent answers like one that is not there. */
export function requireEditable(state: PersonaState, caller: Caller): void {
  if (state.deleted) throw new ResourceNotFound('persona')
  if (!isAdmin(caller)) {
    if (state.access === 'none') throw new ResourceNotFound('persona')
    if (state.access === 'viewer') {
      throw new Forbidden(
        'You can see this agent but not edit it: that takes its owner, an editor share or an administrator.',
      )
    }
  }
  if (state.builtin_persona) throw new BuiltinReadOnly('This agent is built in and cannot be updated.')
}

function mergedContent(state: PersonaState, caller: Caller, update: PersonaUpdate) {
  const { fields, masked } = update
  const content: PersonaContent = contentOf(state)
  const kept: string[] = []
  for (const field of KEPT_BY_PRESENCE) {
    if (fields[field] !== undefined) Object.assign(content, { [field]: fields[field] })
  }
  if (typeof fields.uploaded_image_id === 'string') content.uploaded_image_id = fields.uploaded_image_id
  else if (fields.remove_image === true || (masked && fields.uploaded_image_id === null))
    content.uploaded_image_id = null

  if (fields.tool_ids) content.tool_ids = sorted(fields.tool_ids)
  if (fields.document_set_ids) content.document_set_ids = sorted(fields.document_set_ids)
  const labels = fields.label_ids ?? (masked && fields.label_ids === null ? [] : undefined)
  if (labels) content.label_ids = sorted(labels)
  const files = fields.user_file_ids ?? (masked && fields.user_file_ids === null ? [] : undefined)
  if (files) content.user_file_ids = sorted(files)
  if (fields.users)
    content.users = shares(
      state.users,
      fields.users.filter(id => id !== state.owner_id),
    )
  if (fields.groups) content.groups = shares(state.groups, fields.groups)

  if (fields.is_default_persona !== undefined && fields.is_default_persona !== state.is_default_persona) {
    if (isAdmin(caller)) content.is_default_persona = fields.is_default_persona
    else kept.push('is_default_persona')
  }
  const priority = fields.display_priority
  if (priority !== undefined && (priority !== null || masked) && priority !== state.display_priority) {
    if (isAdmin(caller) || state.display_priority === null) content.display_priority = priority
    else kept.push('display_priority')
  }
  return { content, kept }
}

/** Who is shared already keeps the level; who is new becomes viewer (DECISIONS section 3, `users`). */
function shares<Id extends string | number>(before: readonly { id: Id; level: 'viewer' | 'editor' }[], ids: Id[]) {
  const levels = new Map(before.map(share => [share.id, share.level]))
  return sorted(ids).map(id => ({ id, level: levels.get(id) ?? ('viewer' as const) }))
}

function requireRights(
  state: PersonaState,
  caller: Caller,
  content: PersonaContent,
  kept: string[],
  update: PersonaUpdate,
): void {
  const owns = state.access === 'owner' || isAdmin(caller)
  if (!owns && content.is_public !== state.is_public) {
    throw new Forbidden("Changing is_public takes the agent's owner or an administrator.")
  }
  if (!owns && !sameJson(content.groups, state.groups)) {
    throw new Forbidden("Changing groups takes the agent's owner or an administrator.")
  }
  if (update.strict && kept.length > 0) {
    throw new Forbidden(`Changing ${kept.join(' and ')} takes an administrator.`, 'admin')
  }
}

function requirePublicDefault(state: PersonaState, content: PersonaContent): void {
  if (!content.is_default_persona || content.is_public) return
  const field = state.is_default_persona ? 'is_public' : 'is_default_persona'
  throw new InvalidRequest([
    { loc: ['body', field], msg: 'A default agent must be public', type: 'default_persona_private' },
  ])
}

function attachedIds(state: PersonaState, content: PersonaContent): Attached {
  const attached: Attached = {}
  for (const relation of RELATIONS) {
    const before = new Set<number | string>(idsOf(state, relation))
    const added = idsOf(content, relation).filter(id => !before.has(id))
    if (added.length > 0) attached[relation] = added
  }
  return attached
}

/** The ids of one relation, whatever the shape in which the content holds them. */
export function idsOf(content: PersonaContent, relation: Relation): (number | string)[] {
  if (relation === 'users' || relation === 'groups') return content[relation].map(share => share.id)
  return content[relation]
}

function requireReferences(attached: Attached, fields: PersonaUpdateFields, references: References): void {
  const usable = (relation: Relation) =>
    relation === 'tool_ids' ? references.tool_ids.map(tool => tool.id) : references[relation]
  const faults: Fault[] = []
  for (const relation of ['document_set_ids', 'tool_ids', 'users', 'groups', 'label_ids', 'user_file_ids'] as const) {
    const added = new Set<number | string>(attached[relation] ?? [])
    if (added.size === 0) continue
    const known = new Set<number | string>(usable(relation))
    const tools = new Map(
      relation === 'tool_ids' ? references.tool_ids.map(tool => [tool.id as number | string, tool]) : [],
    )
    for (const [index, id] of (fields[relation] ?? []).entries()) {
      if (!added.has(id)) continue
      const loc = ['body', relation, index]
      const tool = tools.get(id)
      if (!known.has(id)) faults.push({ loc, msg: `${NOUN[relation]} not found`, type: 'not_found' })
      else if (tool && !tool.enabled)
        faults.push({ loc, msg: 'This tool is disabled and cannot be attached', type: 'tool_disabled' })
      else if (tool && !tool.attachable) {
        faults.push({ loc, msg: 'This tool belongs to an MCP server that you may not manage', type: 'tool_forbidden' })
      }
    }
  }
  if (faults.length > 0) throw new InvalidRequest(faults)
}

const NOUN: Record<Relation, string> = {
  tool_ids: 'Tool',
  document_set_ids: 'Document set',
  label_ids: 'Label',
  user_file_ids: 'File',
  users: 'User',
  groups: 'Group',
}

/** Every field of the content that differs, in the declared order; relations compare as sets with their levels. */
export function changedFields(before: PersonaContent, after: PersonaContent): Change[] {
  const fields = Object.keys(contentOf(before)) as (keyof PersonaContent)[]
  return fields
    .filter(field => !sameJson(before[field], after[field]))
    .map(field => ({ field, from: before[field], to: after[field] }))
}

/** The changeable content alone, in the order of the interface document. */
export function contentOf(state: PersonaContent): PersonaContent {
  return {
    name: state.name,
    description: state.description,
    document_set_ids: state.document_set_ids,
    num_chunks: state.num_chunks,
    is_public: state.is_public,
    recency_bias: state.recency_bias,
    llm_filter_extraction: state.llm_filter_extraction,
    llm_relevance_filter: state.llm_relevance_filter,
    tool_ids: state.tool_ids,
    system_prompt: state.system_prompt,
    task_prompt: state.task_prompt,
    datetime_aware: state.datetime_aware,
    llm_model_provider_override: state.llm_model_provider_override,
    llm_model_version_override: state.llm_model_version_override,
    starter_messages: state.starter_messages,
    users: state.users,
    groups: state.groups,
    uploaded_image_id: state.uploaded_image_id,
    icon_name: state.icon_name,
    search_start_date: state.search_start_date,
    label_ids: state.label_ids,
    is_default_persona: state.is_default_persona,
    display_priority: state.display_priority,
    user_file_ids: state.user_file_ids,
    replace_base_system_prompt: state.replace_base_system_prompt,
    is_visible: state.is_visible,
    builtin_persona: state.builtin_persona,
    deleted: state.deleted,
    owner_id: state.owner_id,
  }
}

function preconditionState(state: PersonaState, update: PersonaUpdate, changes: Change[]): PersonaPlan['precondition'] {
  // A request that names no field is a read: where If-Match is demanded, it is how a client learns the tag.
  const asks = Object.keys(update.fields).length > 0
  if (asks && update.precondition.kind === 'none' && update.preconditionDemanded) return 'demanded'
  // A retry after a lost answer finds its own change already stored: that is success, not a conflict.
  if (changes.length === 0) return 'holds'
  return preconditionHolds(update.precondition, entityTag('persona', state.id, state.version)) ? 'holds' : 'failed'
}

function overwrittenFields(state: PersonaState, changes: Change[]): RecentChange[] {
  const changed = new Set(changes.map(change => change.field))
  return state.recent.filter(recent => changed.has(recent.field))
}

function sorted<Id extends string | number>(ids: readonly Id[]): Id[] {
  return [...new Set(ids)].sort(compareIds)
}

/** Numbers by size, texts by their UTF-8 bytes as the database does: JavaScript's own order is that of UTF-16. */
function compareIds(a: string | number, b: string | number): number {
  if (typeof a === 'number' && typeof b === 'number') return a - b
  return Buffer.compare(Buffer.from(String(a)), Buffer.from(String(b)))
}

/** Equality of stored values: scalars by identity, lists and records by their JSON, whose key order is fixed here. */
function sameJson(a: unknown, b: unknown): boolean {
  return a === b || (typeof a === 'object' && typeof b === 'object' && JSON.stringify(a) === JSON.stringify(b))
}
