import type { Transaction } from 'kysely'
import type { Tables } from '../db/tables.js'
import type { KeyRing } from '../secrets/key-ring.js'
import { sameValue } from '../updates/field-table.js'
import { inVersion, readPast, restored } from '../updates/read.js'
import type { Actor, Restoration, UpdateRequest, VersionedResource } from '../updates/resource.js'
import { auditParameters } from '../updates/statements.js'
import type { ToolContent } from './fields.js'
import { shownHeaders } from './headers.js'
import { type ToolTypes, toolResource, toolThen, updateOfStored } from './resource.js'
import { contentOf, requireManageable, type ToolDecision } from './rules.js'
import type { ToolState } from './snapshot.js'
import { removeTool } from './statements.js'
import { requireUnused } from './tool-use.js'

/** Creates a tool. A creation is an update of a new row. */
export const toolCreation: VersionedResource<ToolTypes> = { ...toolResource, act: 'creation' }

interface RestoreTypes extends Omit<ToolTypes, 'Request'> {
  Request: Restoration & { ring: KeyRing }
  /** `left` has the fields that still differ after the restoration: headers, and fields that no caller can set. */
  Decision: ToolDecision & { left: ReadonlyMap<string, string> }
}

/**
 * Restores an earlier version of a tool as a new version. Requires the same rights and follows the same rules as an update, but does not check the
 * definition again. Does not restore secrets.
 */
export const toolRestoration: VersionedResource<RestoreTypes> = {
  ...toolResource,
  act: 'restoration',
  decide: async (db, state, request, locks) => {
    requireManageable(state)
    const { version } = request.fields
    const then = await toolThen(db, state, await readPast(db, 'tool', state, version))
    const { name, description, passthrough_auth, oauth_config_id } = then
    const fields = { name, description, passthrough_auth, oauth_config_id }
    const update = await updateOfStored(db, fields, then.definition_hash)
    const decision = await toolResource
      .decide(db, state, { ...request, ...update }, locks)
      .catch(error => Promise.reject(inVersion(error)))
    const columns = Object.keys(contentOf(then)) as (keyof ToolContent)[] // the result has exactly these keys
    const differing = columns.filter(column => !sameValue(decision.after[column], then[column]))
    const left = new Map<string, string>(differing.map(column => [column, column]))
    const made = restored(decision, request, left)
    // Headers are never restored. They are added to `left` after `restored`, which would refuse them in strict handling.
    if (!sameValue(shownHeaders(then.headers), shownHeaders(state.headers)))
      left.set('custom_headers', 'custom_headers')
    return made
  },
}

/**
 * Detaches a tool from the agents that the caller of `request` may update. Without `request`, detaches it from deleted agents. Returns the ids of the
 * changed agents. The function is a parameter, because this folder must not depend on `src/persona`.
 */
export type ReleaseTool = (
  trx: Transaction<Tables>,
  id: number,
  actor: Actor,
  request?: UpdateRequest,
) => Promise<number[]>

interface ToolDeletion extends UpdateRequest {
  release: ReleaseTool
  /** True if the deletion also detaches the tool from agents that the caller may update. Any other agent with the tool prevents the deletion. */
  detaches: boolean
  /** The agents that the tool was detached from. Retries add to this set. */
  detached: Set<number>
}

interface DeletionTypes extends Omit<ToolTypes, 'Request'> {
  Request: ToolDeletion
}

/** Removes a tool with its encrypted secrets. Keeps its audit rows. */
export const toolDeletion: VersionedResource<DeletionTypes> = {
  ...toolResource,
  act: 'deletion',
  decide: async (db, state, request) => {
    const { release, detaches, detached, actor, caller } = request
    requireManageable(state)
    const trx = db as Transaction<Tables> // a deletion always runs in a transaction
    const { id, managed_as } = state
    // A group manager's right to a tool can depend on the tool's agents, so a deletion by a group manager detaches nothing. Agents are locked before
    // the tool, in the same order as when a tool is attached.
    const released = detaches && managed_as !== 'group' ? await release(trx, id, actor, request) : []
    for (const agent of released) detached.add(agent)
    await trx.selectFrom('tool').select('id').where('id', '=', id).forUpdate().execute()
    await requireUnused(trx, id, caller)
    await release(trx, id, actor)
    return decideRemoval(state)
  },
  write: async (executor, { id, version }, _decision, viewer, entry) =>
    (await removeTool.first(executor, { id, version, ...viewer, ...auditParameters(entry) }))?.version,
}

/** Decides on a removal. The last audit row records the removal, so that `audit verify` knows why the tool is missing. */
export function decideRemoval(state: ToolState): ToolDecision {
  const changes = [
    { field: 'definition', from: state.definition_hash, to: null },
    { field: 'removed', from: false, to: true },
  ]
  const names = state.headers.map(({ name }) => name)
  const notes = names.length === 0 ? [] : [`the secrets of these headers are deleted: ${names.join(', ')}`]
  return { after: state, changes, definition: null, replaced: state.definition_hash, headers: null, notes }
}
