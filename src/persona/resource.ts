import { viewerParameters } from '../auth/viewer.js'
import { markReceived } from '../db/clock.js'
import { definitionsOf } from '../tool/definition-cache.js'
import { auditedFields } from '../updates/field-table.js'
import type { ResourceTypes, VersionedResource } from '../updates/resource.js'
import { changedValues, fieldVersions } from '../updates/statements.js'
import { isInt4 } from '../validation/vocabulary.js'
import {
  BLANK_AGENT,
  COLUMNS,
  CONTENT_FIELDS,
  idsOf,
  isRelation,
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
  decidePersona,
  isVisible,
  NO_REFERENCES,
  newlyReferred,
  type PersonaDecision,
  type PersonaUpdate,
  type References,
  requireAnswerable,
  requireEditable,
  requireHistory,
} from './rules.js'
import { renderPersona } from './snapshot.js'
import type { PersonaState } from './state.js'
import { type RelationLists, readReferences, readState, writeLinks, writePersona } from './statements.js'

export interface PersonaTypes extends ResourceTypes {
  State: PersonaState
  Request: PersonaUpdate
  Decision: PersonaDecision
  Facts: References
}

/** Implements agents for the engine of updates. */
export const personaResource: VersionedResource<PersonaTypes> = {
  kind: 'persona',
  act: 'update',
  newRow: owner_id => ({ ...Object.fromEntries(COLUMNS.map(([name]) => [name, BLANK_AGENT[name]])), owner_id }),
  read: async (executor, id, viewer) => {
    const row = await readState.first(executor, { ...viewer, id })
    return row && markReceived(row.state)
  },
  facts: async (db, state, update) => {
    const attached = newlyReferred(state, update)
    if (Object.keys(attached).length === 0) return NO_REFERENCES
    const row = await readReferences.first(db, { ...viewerParameters(update.caller), ...storableIds(attached) })
    return row?.references ?? NO_REFERENCES
  },
  decide: decidePersona,
  asked: askedChanges,
  isAlone: ({ changes }) => !changes.some(({ field }) => isRelation(field)),
  write: async (executor, state, { changes }, viewer, entry) => {
    const row = await writePersona.first(executor, {
      ...viewer,
      ...entry,
      id: state.id,
      version: state.version,
      access: state.access,
      changed_columns: changedValues(COLUMNS, changes),
      field_versions: fieldVersions(state, changes),
    })
    return row?.version
  },
  writeRest: async (trx, state, { changes, content }, { user }) => {
    for (const { field } of changes) {
      if (isRelation(field))
        await writeLinks[field].run(trx, { id: state.id, user, ...linkChanges(field, state, content) })
    }
  },
  shown: async (db, { state, decision: { content }, facts }) => {
    const { related } = state
    const all = {
      tool_ids: [...related.tool_ids, ...facts.tool_ids],
      document_set_ids: [...related.document_set_ids, ...facts.document_set_ids],
      label_ids: [...related.label_ids, ...facts.label_ids],
      users: [...related.users, ...facts.users],
    }
    const tools = all.tool_ids.filter(({ id }) => content.tool_ids.includes(id))
    const definitions = await definitionsOf(
      db,
      tools.map(tool => tool.definition_hash),
    )
    return () => renderPersona({ ...state, content, related: all }, definitions)
  },
  snapshot: async (db, state, isRead) => {
    const definitions = await definitionsOf(
      db,
      state.related.tool_ids.map(tool => tool.definition_hash),
    )
    return renderPersona({ ...state, content: state }, definitions, isRead)
  },
  requireAnswerable,
  replacedDefinition: () => null,
  audited: (state, decision) => auditedPersona(decision?.content ?? state),
  isVisible,
  requireRights: requireEditable,
  requireHistory,
  pastSnapshot: pastPersona,
}

/** Returns the content of an agent for the audit hash. */
export function auditedPersona(content: PersonaContent): unknown[] {
  return auditedFields(CONTENT_FIELDS, content, BLANK_AGENT)
}

/** Returns the links of one relation to remove and to add. A share with a new level counts as added. */
function linkChanges(relation: Relation, before: PersonaContent, after: PersonaContent) {
  const kept = new Set(idsOf(after, relation))
  const removed = idsOf(before, relation).filter(id => !kept.has(id))
  return { removed, put: linksToPut(relation, before, after) }
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
