import type { Kysely } from 'kysely'
import type { Caller } from '../auth/caller.js'
import type { ViewerParameters } from '../auth/viewer.js'
import type { ResourceKind, Tables } from '../db/tables.js'
import { idOf, isRelation, type StoredLink } from '../persona/fields.js'
import { type PersonaTypes, personaResource } from '../persona/resource.js'
import { differenceOf } from '../persona/rules.js'
import type { KeyRing } from '../secrets/key-ring.js'
import { attachedNames, namesBeside } from '../tool/function-names.js'
import { type ToolTypes, toolResource, updateOfStored } from '../tool/resource.js'
import { auditedValues, type ToolUpdateFields } from '../tool/rules.js'
import { sameValue } from '../updates/field-table.js'
import type { Change, Decision, ResourceTypes, VersionedResource } from '../updates/resource.js'

/** The requested values of a proposal, with a hash in place of a definition and masks in place of header values. */
export type ProposedFields = Readonly<Record<string, unknown>>

/** Returns the new values of the fields that a decision changes. Links become ids. */
export function proposedBy({ changes }: Decision): ProposedFields {
  const proposed = ({ field, to }: Change) => (isRelation(field) ? (to as StoredLink[]).map(idOf) : to) // the field determines the type
  return Object.fromEntries(changes.map(change => [change.field, proposed(change)]))
}

/** Returns the changes of an ended proposal. The old values, long values and the definition are no longer stored. */
export function endedChanges(fields: ProposedFields): Change[] {
  return Object.entries(fields).map(([field, to]) => {
    const none = isRelation(field) ? [] : null
    return { field, from: none, to: to ?? none }
  })
}

/** The functions that proposals need for one kind of record. */
export interface ProposalKind<T extends ResourceTypes = ResourceTypes> {
  resource: VersionedResource<T>
  /** Returns the changes that `fields` would make to the current state. */
  differenceOf(state: T['State'], fields: ProposedFields, caller: Caller): Change[]
  /** Returns the properties of an update request that sets `fields`. */
  updateOf(db: Kysely<Tables>, fields: ProposedFields, ring: KeyRing): Promise<Pick<T['Request'], 'fields'>>
  warningsOf(db: Kysely<Tables>, decision: T['Decision'], viewer: ViewerParameters): Promise<string[]>
}

const persona: ProposalKind<PersonaTypes> = {
  resource: personaResource,
  differenceOf,
  // With `strict`, a field that the approver must not set is refused instead of ignored.
  updateOf: async (_, fields) => ({ fields, masked: true, strict: true }),
  warningsOf: attachedNames,
}

const tool: ProposalKind<ToolTypes> = {
  resource: toolResource,
  differenceOf: (state, fields) => {
    const now = auditedValues(state, state.headers)
    const changes = Object.entries(fields).map(([field, to]) => ({ field, from: now[field], to }))
    return changes.filter(({ from, to }) => !sameValue(from, to))
  },
  // The definition was already checked when it was proposed.
  updateOf: async (db, { definition = null, ...fields }, ring) => {
    const update = await updateOfStored(db, fields as ToolUpdateFields, definition as string | null) // `proposedBy` wrote values of these types
    return { ...update, ring }
  },
  warningsOf: async (db, { notes, definition, after: { id, name }, hasNamesBeside }, viewer) => {
    const tool = definition && { id, name, names: definition.names }
    return [...notes, ...(tool && hasNamesBeside !== false ? await namesBeside(db, tool, viewer) : [])]
  },
}

/** No code combines the functions of one kind with the values of another, so the types can be widened. */
export const PROPOSAL_KINDS = { persona, tool } as unknown as Readonly<Record<ResourceKind, ProposalKind>>
