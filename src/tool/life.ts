import type { Transaction } from 'kysely'
import type { Tables } from '../db/tables.js'
import { type Fault, Forbidden, InvalidRequest, VersionUnusable } from '../errors.js'
import type { KeyRing } from '../secrets/key-ring.js'
import type { Actor } from '../updates/audit.js'
import { sameValue } from '../updates/field-table.js'
import { readPast } from '../updates/read.js'
import { type UpdateRequest, type VersionedResource, WorkFirst } from '../updates/resource.js'
import type { ToolContent } from './fields.js'
import { shownHeaders } from './headers.js'
import { type ToolTypes, toolResource, toolThen } from './resource.js'
import { contentOf, requireManageable, type ToolDecision, type ToolUpdateFields } from './rules.js'
import type { ToolState } from './snapshot.js'
import { removeTool } from './statements.js'
import { requireUnused } from './tool-use.js'
import type { Checked } from './worker/tasks.js'

/* Creates, restores and deletes tools. */

/** Creates tools: each is an update of a new row. */
export const toolCreation: VersionedResource<ToolTypes> = { ...toolResource, act: 'creation' }

interface ToolRestore extends UpdateRequest {
  fields: { version: number }
  ring: KeyRing
  /** The verdicts of today's rules on definitions, by hash. */
  verdicts: ReadonlyMap<string, Checked>
  /** Adds the verdict on a definition, for a tool in this state. */
  check(definition: { hash: string; text: string }, state: ToolState): Promise<void>
}

interface RestoreTypes extends Omit<ToolTypes, 'Request'> {
  Request: ToolRestore
  /** `left`: the fields that are not restored, because no caller can set them. */
  Decision: ToolDecision & { left: string[] }
}

const UNCHECKED = { definitionFaults: [], origins: new Set<string>() }

/** Restores earlier versions of tools as new versions, without their secrets: with the rights and rules of an update. */
export const toolRestoration: VersionedResource<RestoreTypes> = {
  ...toolResource,
  act: 'restoration',
  isAlone: (_, { dryRun }) => dryRun,
  decide: async (db, state, request) => {
    requireManageable(state)
    const { version } = request.fields
    const then = await toolThen(db, state, await readPast(db, 'tool', state.id, version))
    const { name, description, passthrough_auth, oauth_config_id, definition_hash: hash, definition_text: text } = then
    const fields: ToolUpdateFields = { name, description, passthrough_auth, oauth_config_id }
    let checked: Pick<Checked, 'definition' | 'definitionFaults' | 'origins'> | undefined = UNCHECKED
    // An unchanged definition is not checked: it stays even if rules became stricter.
    if (hash !== null && text !== undefined && hash !== state.definition_hash) {
      checked = request.verdicts.get(hash)
      if (checked === undefined) throw new WorkFirst(() => request.check({ hash, text }, state))
      if (checked.definition !== undefined) fields.definition = checked.definition
    }
    const decision = await toolResource.decide(db, state, { ...request, ...checked, fields }).catch(error => {
      if (!(error instanceof InvalidRequest)) throw error
      if (error.faults.every(({ loc: [, field] }) => field === 'oauth_config_id'))
        throw new VersionUnusable(version, [`OAuth configuration ${oauth_config_id}`])
      throw new InvalidRequest(error.faults.map(inVersion))
    })
    const columns = Object.keys(contentOf(then)) as (keyof ToolContent)[] // these are the type's own keys
    const left: string[] = columns
      .filter(column => !sameValue(decision.after[column], then[column]))
      .map(column => (column === 'definition_hash' ? 'definition' : column))
    if (request.strict && left.length > 0)
      throw new Forbidden(`You do not have the right to restore ${left.join(' and ')}.`)
    if (!sameValue(shownHeaders(then.headers), shownHeaders(state.headers))) left.push('custom_headers')
    return { ...decision, left, command: `restore --version ${version}` }
  },
}

/** Moves a fault to `version`, the body's only field; the message keeps its original place. */
function inVersion({ loc: [, ...place], msg, type }: Fault): Fault {
  return { loc: ['body', 'version'], msg: `${place.join('.')}: ${msg}`, type }
}

/**
 * Detaches a tool from deleted agents, or from those that the caller of `request` may update, and returns their ids. It is passed in because
 * tools do not know agents.
 */
export type ReleaseTool = (
  trx: Transaction<Tables>,
  id: number,
  actor: Actor,
  request?: UpdateRequest,
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
  decide: async (db, state, request) => {
    const { release, detaches, detached, actor, caller } = request
    requireManageable(state)
    const trx = db as Transaction<Tables> // a deletion is never alone
    const { id, managed_as } = state
    // A group manager may manage the tool only through these agents, so they stay. Agents are locked before the tool, as attaching does.
    const released = detaches && managed_as !== 'group' ? await release(trx, id, actor, request) : []
    for (const agent of released) detached.add(agent)
    await trx.selectFrom('tool').select('id').where('id', '=', id).forUpdate().execute()
    await requireUnused(trx, id, caller)
    await release(trx, id, actor)
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
  const notes = names.length === 0 ? [] : [`its secrets are lost: ${names.join(', ')}`]
  return { after: state, changes, definition: null, headers: null, notes }
}
