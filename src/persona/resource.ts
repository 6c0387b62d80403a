import type { Kysely } from 'kysely'
import { viewerParameters } from '../auth/viewer.js'
import type { Tables } from '../db/tables.js'
import { SnapshotTooLarge } from '../errors.js'
import { definitionsOf } from '../tool/definition-cache.js'
import type { ResourceTypes, VersionedResource } from '../updates/resource.js'
import {
  BLANK_AGENT,
  COLUMNS,
  idOf,
  isRelation,
  type PersonaContent,
  RELATIONS,
  type Relation,
  type StoredLink,
} from './fields.js'
import { pastPersona, personaChanges } from './history.js'
import {
  appliedTo,
  attachedIds,
  bytesOfTools,
  decidePersona,
  FEWER_TOOLS,
  isVisible,
  type PersonaDecision,
  type PersonaUpdate,
  requireEditable,
  requireVersions,
  shownToolsOf,
  takenFrom,
} from './rules.js'
import { PERSONA_READS, type PersonaState, renderPersona } from './state.js'
import { type LinkChanges, lockLinks, readReferences, writeLinks, writePersona } from './statements.js'

export interface PersonaTypes extends ResourceTypes {
  State: PersonaState
  Request: PersonaUpdate
  Decision: PersonaDecision
}

/** Tells the update engine how to read, update and render agents. */
export const personaResource: VersionedResource<PersonaTypes> = {
  kind: 'persona',
  act: 'update',
  newRow: owner_id => ({ ...Object.fromEntries(COLUMNS.map(([name]) => [name, BLANK_AGENT[name]])), owner_id }),
  reads: PERSONA_READS,
  isVisible,
  isAlone: ({ changes }) => !changes.some(({ field }) => isRelation(field)),
  decide: async (db, state, update, locks) => {
    requireEditable(state, update.caller, update.proposes) // first, so that callers without rights lock no rows
    const applied = appliedTo(state, update)
    if (locks) await lockRemoved(db, state, applied.content)
    const attached = attachedIds(state, applied.content)
    const references = await readReferences(db, attached, viewerParameters(update.caller), locks)
    return decidePersona(state, update, applied, attached, references)
  },
  write: async (db, state, decision, viewer, entry) => {
    const { changes, after, attacher } = decision
    const links = changes.flatMap(({ field }) => (isRelation(field) ? [linkChanges(field, state, after)] : []))
    const row = await writePersona(db, { access: state.access }, state, decision, viewer, entry)
    if (row === undefined) return undefined
    for (const link of links) await writeLinks(db, state.id, link, attacher ?? viewer.user)
    return row.version
  },
  render: async (db, state, bytesMax, isRead) => {
    const bytes = bytesOfTools(state)
    if (bytes > bytesMax) throw new SnapshotTooLarge('The tools of this agent take', bytes, bytesMax, FEWER_TOOLS)
    const hashes = shownToolsOf(state).map(tool => tool.definition_hash)
    return renderPersona(state, await definitionsOf(db, hashes), isRead)
  },
  past: pastPersona,
  requireVersions,
  changesOf: personaChanges,
  takenFrom,
}

/** Locks the links in `state` that `content` lacks. Otherwise, the removal of these links could wait for a lock after the rights are checked. */
export async function lockRemoved(db: Kysely<Tables>, state: PersonaState, content: PersonaContent): Promise<void> {
  for (const [relation] of RELATIONS) await lockLinks(db, state.id, linkChanges(relation, state, content))
}

/** Returns the links of one relation that a change removes and adds. A share with a new level is removed and added again. */
function linkChanges(relation: Relation, before: PersonaContent, after: PersonaContent): LinkChanges {
  const [had, has]: [StoredLink[], StoredLink[]] = [before[relation], after[relation]]
  const without = (links: StoredLink[], others: StoredLink[]) => {
    const kept = new Set(others.map(link => JSON.stringify(link)))
    return links.filter(link => !kept.has(JSON.stringify(link)))
  }
  return { relation, removed: without(had, has).map(idOf), put: without(has, had) }
}
