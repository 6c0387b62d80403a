import { viewerParameters } from '../auth/viewer.js'
import { markReceived } from '../db/clock.js'
import { type CachedTexts, withCached, withDefinitions } from '../tool/definition-cache.js'
import { AnswerText, NOTHING } from '../updates/answer-text.js'
import { auditedFields } from '../updates/field-table.js'
import type { ResourceTypes, VersionedResource } from '../updates/resource.js'
import { changedValues, fieldVersions } from '../updates/statements.js'
import { isInt4 } from '../validation/vocabulary.js'
import {
  BLANK_AGENT,
  COLUMNS,
  CONTENT_FIELDS,
  idsOf,
  linkOf,
  type PersonaContent,
  RELATIONS,
  type Relation,
  type Share,
} from './fields.js'
import { pastPersona } from './past.js'
import {
  type Attached,
  askedChanges,
  bytesOfStored,
  decidePersona,
  isVisible,
  type PersonaDecision,
  type PersonaUpdate,
  type References,
  requireAnswerable,
  requireEditable,
  requireHistory,
} from './rules.js'
import type { PersonaState } from './state.js'
import {
  type PersonaRow,
  type PersonaVersion,
  type RelationLists,
  readReferences,
  readSnapshot,
  readState,
  readVersion,
  relationsOf,
  writeStatement,
  writtenRelations,
} from './statements.js'

export interface PersonaTypes extends ResourceTypes {
  State: PersonaState
  Request: PersonaUpdate
  Decision: PersonaDecision
  References: References
  Row: { version: number; snapshot: AnswerText }
}

/** Implements agents for the engine of updates. */
export const personaResource: VersionedResource<PersonaTypes> = {
  kind: 'persona',
  act: 'update',
  newRow: owner_id => ({ ...Object.fromEntries(COLUMNS.map(([name]) => [name, BLANK_AGENT[name]])), owner_id }),
  read: async (executor, id, { user }) => {
    const [row] = await readState.run(executor, { id, user })
    return row && markReceived(row.state)
  },
  decide: decidePersona,
  asked: askedChanges,
  references: async (executor, { caller }, { attached }) => {
    const [row] = await readReferences.run(executor, { ...viewerParameters(caller), ...storableIds(attached) })
    if (row === undefined) throw new Error('the references statement answered no row')
    return row.references
  },
  isStorable: ({ attached }) => Object.values(attached).every(ids => ids.every(isStorable)),
  definitionBytes: (state, decision) => decision?.toolBytes ?? bytesOfStored(state, state),
  requireAnswerable,
  reading: (state, viewer, minimal = false) => {
    const { id, version, access } = state
    if (minimal)
      return async executor => versionRow(await readVersion.first(executor, { id, version, access, ...viewer }))
    return withCached(state.tool_sizes, readSnapshot, { id, version, access, ...viewer }, shownRow)
  },
  writing: (state, decision, viewer, entry, minimal) => {
    const { content, changes, attached, attachedSizes, toolBytesLeft } = decision
    const changed = new Set(changes.map(change => change.field))
    const changedRelations = RELATIONS.map(([name]) => name).filter(name => changed.has(name))
    const written = writtenRelations(changedRelations)
    const own = {
      id: state.id,
      version: state.version,
      access: state.access,
      changed_columns: changedValues(COLUMNS, changes),
      field_versions: fieldVersions(state, changes),
      // Without a new tool nothing is compared with the remaining bytes, which may be negative.
      tool_bytes_left: attached.tool_ids === undefined ? 0 : toolBytesLeft,
    }
    // The audit row is reused as the parameters: copying all properties takes twenty times as long.
    const parameters = Object.assign(entry, viewer, allIds(content), own)
    for (const relation of relationsOf(written)) {
      Object.assign(parameters, linkChanges(relation, state, content), {
        [`${relation}_attached`]: attached[relation] ?? [],
      })
    }
    const statement = writeStatement(written, minimal)
    if (minimal) {
      const own = Object.assign(parameters, { cached_definitions: [] })
      return async executor => versionRow(await statement.first(executor, own))
    }
    return withCached([...state.tool_sizes, ...attachedSizes], statement, parameters, shownRow)
  },
  snapshot: row => row.snapshot,
  replacedDefinition: () => null,
  audited: (state, decision) => auditedPersona(decision?.content ?? state),
  isWhole: ({ left_out_bytes = 0 }) => left_out_bytes === 0,
  isVisible,
  requireRights: requireEditable,
  requireHistory,
  pastSnapshot: pastPersona,
}

/** Returns the content of an agent for the audit hash. */
export function auditedPersona(content: PersonaContent): unknown[] {
  return auditedFields(CONTENT_FIELDS, content, BLANK_AGENT)
}

function versionRow(row: PersonaVersion | undefined): PersonaTypes['Row'] | undefined {
  return row && { version: row.version, snapshot: NOTHING }
}

function shownRow({ version, snapshot }: PersonaRow, cached: CachedTexts): PersonaTypes['Row'] {
  return { version, snapshot: new AnswerText(withDefinitions(snapshot, cached)) }
}

function allIds(content: PersonaContent) {
  const ids: Partial<Record<Relation, (number | string)[]>> = {}
  for (const [relation] of RELATIONS) ids[relation] = idsOf(content, relation)
  return ids as RelationLists // every relation is set
}

/** Returns the links of one relation to remove and to add. A share with a new level counts as added. */
function linkChanges(relation: Relation, before: PersonaContent, after: PersonaContent) {
  const kept = new Set(idsOf(after, relation))
  const removed = idsOf(before, relation).filter(id => !kept.has(id))
  return { [`${relation}_removed`]: removed, [`${relation}_put`]: linksToPut(relation, before, after) }
}

function linksToPut(relation: Relation, before: PersonaContent, after: PersonaContent): (number | string)[] | string {
  if (!linkOf(relation).isShare) {
    const had = new Set(idsOf(before, relation))
    return idsOf(after, relation).filter(id => !had.has(id))
  }
  const sharesOf = (content: PersonaContent) => content[relation] as Share<number | string>[] // `isShare` proves that levels exist
  const levels = new Map(sharesOf(before).map(share => [share.id, share.level]))
  return JSON.stringify(sharesOf(after).filter(share => levels.get(share.id) !== share.level))
}

/** Returns the ids that fit their column. No record can have the others. */
function storableIds(attached: Attached) {
  const ids = RELATIONS.map(([relation]) => [relation, (attached[relation] ?? []).filter(isStorable)])
  return Object.fromEntries(ids) as unknown as RelationLists // has one entry for each
}

function isStorable(id: number | string): boolean {
  return typeof id === 'string' || isInt4(id)
}
