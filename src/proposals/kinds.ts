import type { Kysely } from 'kysely'
import type { Caller } from '../auth/caller.js'
import type { ResourceKind, Tables } from '../db/tables.js'
import { idOf, isRelation, type StoredLink } from '../persona/fields.js'
import { type PersonaTypes, personaResource } from '../persona/resource.js'
import { differenceOf } from '../persona/rules.js'
import type { KeyRing } from '../secrets/key-ring.js'
import { type ToolTypes, toolResource, updateOfStored } from '../tool/resource.js'
import { auditedValues, type ToolUpdateFields } from '../tool/rules.js'
import type { Change } from '../updates/audit.js'
import { sameValue } from '../updates/field-table.js'
import type { Decision, ResourceTypes, VersionedResource } from '../updates/resource.js'

/** The new values of a proposal, in the form of a request: a definition as its hash, header values as masks. */
export type ProposedFields = Readonly<Record<string, unknown>>

/** The proposed fields of a decision: shares without their levels. */
export function proposedBy({ changes }: Decision): ProposedFields {
  const proposed = ({ field, to }: Change) => (isRelation(field) ? (to as StoredLink[]).map(idOf) : to) // of the field's type
  return Object.fromEntries(changes.map(change => [change.field, proposed(change)]))
}

/** What proposals need of a kind of record. */
export interface ProposalKind<T extends ResourceTypes = ResourceTypes> {
  resource: VersionedResource<T>
  /** What the fields would change now. */
  differenceOf(state: T['State'], fields: ProposedFields, caller: Caller): Change[]
  /** The part of an update that asks for the fields. */
  updateOf(db: Kysely<Tables>, fields: ProposedFields, ring: KeyRing): Promise<Pick<T['Request'], 'fields'>>
}

const persona: ProposalKind<PersonaTypes> = {
  resource: personaResource,
  differenceOf,
  // Strict, so that a field which the approver may not set is refused and not kept.
  updateOf: async (_, fields) => ({ fields, masked: true, strict: true }),
}

const tool: ProposalKind<ToolTypes> = {
  resource: toolResource,
  differenceOf: (state, fields) => {
    const now = auditedValues(state, state.headers)
    const changes = Object.entries(fields).map(([field, to]) => ({ field, from: now[field], to }))
    return changes.filter(({ from, to }) => !sameValue(from, to))
  },
  // The definition was judged when it was proposed.
  updateOf: async (db, { definition = null, ...fields }, ring) => {
    const update = await updateOfStored(db, fields as ToolUpdateFields, definition as string | null) // as a decision had them
    return { ...update, ring }
  },
}

/** The caller of these functions passes only what another function of the same kind returned. */
export const PROPOSAL_KINDS = { persona, tool } as unknown as Readonly<Record<ResourceKind, ProposalKind>>
