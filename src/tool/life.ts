import type { Transaction } from 'kysely'
import type { Caller } from '../auth/caller.js'
import { type ViewerParameters, viewerParameters } from '../auth/viewer.js'
import type { Tables } from '../db/tables.js'
import type { Actor } from '../updates/audit.js'
import type { UpdateRequest, VersionedResource } from '../updates/resource.js'
import { type ToolTypes, toolResource } from './resource.js'
import { requireManageable, type ToolDecision } from './rules.js'
import type { ToolState } from './snapshot.js'
import { removeTool } from './statements.js'
import { requireUnused } from './tool-use.js'

/** Creates tools: each is an update of a new row. */
export const toolCreation: VersionedResource<ToolTypes> = { ...toolResource, act: 'creation' }

/**
 * Detaches a tool from deleted agents, or from those that `caller` may update, and returns their ids. It is passed in because tools do not
 * know agents.
 */
export type ReleaseTool = (
  trx: Transaction<Tables>,
  id: number,
  actor: Actor,
  viewer: ViewerParameters,
  caller?: Caller,
) => Promise<number[]>

interface ToolDeletion extends UpdateRequest {
  release: ReleaseTool
  /** True if the tool is taken off the agents that the caller may update. Other agents still prevent the deletion. */
  detaches: boolean
  /** The agents that lost the tool, in any try under the lock. */
  detached: Set<number>
}

interface DeletionTypes extends Omit<ToolTypes, 'Request'> {
  Request: ToolDeletion
}

/** Removes a tool with its sealed secrets. Its audit rows stay. */
export const toolDeletion: VersionedResource<DeletionTypes> = {
  ...toolResource,
  act: 'deletion',
  isAlone: () => false,
  decide: async (db, state, { release, detaches, detached, actor, caller }) => {
    requireManageable(state)
    const trx = db as Transaction<Tables> // a deletion is never alone
    const [{ id, managed_as }, viewer] = [state, viewerParameters(caller)]
    // A group manager may manage the tool only through these agents, so they stay. Agents are locked before the tool, as attaching does.
    const released = detaches && managed_as !== 'group' ? await release(trx, id, actor, viewer, caller) : []
    for (const agent of released) detached.add(agent)
    await trx.selectFrom('tool').select('id').where('id', '=', id).forUpdate().execute()
    await requireUnused(trx, id, caller)
    await release(trx, id, actor, viewer)
    return decideRemoval(state)
  },
  write: async (executor, _state, _decision, viewer, entry) =>
    (await removeTool.first(executor, { ...viewer, ...entry }))?.version,
  replacedDefinition: state => state.definition_hash,
}

/** Decides a removal. The last audit row records it, so `audit verify` knows why the tool is missing. */
export function decideRemoval(state: ToolState): ToolDecision {
  const changes = [
    { field: 'definition', from: state.definition_hash, to: null },
    { field: 'removed', from: false, to: true },
  ]
  const names = state.headers.map(({ name }) => name)
  return {
    after: state,
    ...{ changes, definition: null, headers: null, linksOauthConfig: false, needsOrigins: false },
    notes: names.length === 0 ? [] : [`its secrets are lost: ${names.join(', ')}`],
  }
}
