import type { Transaction } from 'kysely'
import { viewerParameters } from '../auth/viewer.js'
import type { Executor } from '../db/statements/statement.js'
import type { Tables } from '../db/tables.js'
import { originsOf } from '../definition/index.js'
import { SnapshotTooLarge, VersionGone } from '../errors.js'
import type { PastValues, ResourceTypes, VersionedResource } from '../updates/resource.js'
import { isInt4 } from '../validation/vocabulary.js'
import { definitionsOf, kept, storedDefinitions } from './definition-cache.js'
import { factsOf, noteFacts } from './definition-facts.js'
import { BLANK_TOOL } from './fields.js'
import { type Header, shownHeaders } from './headers.js'
import { toolChanges } from './history.js'
import { decideTool, requireHistory, type ToolDecision, type ToolUpdate, type ToolUpdateFields } from './rules.js'
import { bytesShown, renderTool, TOOL_READS, type ToolState } from './snapshot.js'
import { readLinkable, storeDefinition, writeHeaders, writeTool } from './statements.js'

export interface ToolTypes extends ResourceTypes {
  State: ToolState
  Request: ToolUpdate
  Decision: ToolDecision
}

const SMALLER = 'Store a smaller definition. An update with Prefer: return=minimal is still possible.'

/** Tells the update engine how to read, change, store and render custom tools. */
export const toolResource: VersionedResource<ToolTypes> = {
  kind: 'tool',
  act: 'update',
  newRow: user_id => ({ ...BLANK_TOOL, user_id }),
  reads: TOOL_READS,
  isVisible: () => true, // every authenticated caller can see tools (DECISIONS section 6)
  isAlone: ({ changes, headers }) =>
    headers === null && !changes.some(({ field, to }) => field === 'oauth_config_id' && to !== null),
  decide: async (db, state, request, locks) => {
    const { oauth_config_id: id = null, definition, custom_headers: headers, passthrough_auth: passes } = request.fields
    const isId = id !== null && isInt4(id)
    const config = isId ? await readLinkable(db, id, viewerParameters(request.caller), locks) : undefined
    const hasSecrets = state.headers.length > 0 || state.oauth_config_id !== null || state.passthrough_auth
    const isAsked = passes || (headers?.length ?? 0) > 0 || (definition !== undefined && hasSecrets)
    const storedOrigins = isAsked ? await readOrigins(db, state.definition_hash) : new Set<string>()
    return decideTool(state, request, { linkable: config?.name, storedOrigins })
  },
  write: async (executor, state, decision, viewer, entry) => {
    const { after, definition, headers } = decision
    if (definition !== null && (executor.isTransaction || !factsOf(definition.hash).isStored)) {
      const alone = !executor.isTransaction
      await storeDefinition.run(executor, { ...definition, bytes: Buffer.byteLength(definition.text), alone })
      noteFacts(definition.hash, { isStored: alone }) // in a transaction, the definition can still be rolled back
    }
    const own = { definition_hash: after.definition_hash, names: definition?.names ?? [] }
    const row = await writeTool(executor, own, state, decision, viewer, entry).catch(error => {
      if (definition !== null) noteFacts(definition.hash, { isStored: false })
      throw error
    })
    if (row !== undefined && headers !== null) await writeHeaders(executor as Transaction<Tables>, state.id, headers) // new headers require a transaction
    decision.hasNamesBeside = row?.has_names_beside
    return row?.version
  },
  render: async (db, state, bytesMax) => {
    const { definition_text, definition_hash: hash } = state
    const bytes = bytesShown(state)
    if (bytes > bytesMax) throw new SnapshotTooLarge('This tool takes', bytes, bytesMax, SMALLER)
    const text = definition_text ?? (await definitionsOf(db, [hash])).of(state)
    return renderTool(state, text)
  },
  /** Omits an OAuth configuration that the viewer may not link, unless the tool has that configuration now. */
  past: async (db, state, values, viewer) => {
    const then = await toolThen(db, state, values)
    const { oauth_config_id: id } = then
    if (id === null || id === state.oauth_config_id) return { state: then, notes: [] }
    const config = await readLinkable(db, id, viewer)
    const notes = config ? [] : [`OAuth configuration ${id} is omitted, because it is deleted or hidden from you`]
    return { state: { ...then, oauth_config_id: config?.id ?? null, oauth_config_name: config?.name ?? null }, notes }
  },
  requireVersions: requireHistory,
  changesOf: toolChanges,
}

/** Builds an earlier state of a tool, including the text of its definition. Throws `VersionGone` if the definition was pruned. */
export async function toolThen(db: Executor, state: ToolState, values: PastValues): Promise<ToolState> {
  const { definition = state.definition_hash, custom_headers, ...columns } = values
  const hash = definition as string | null // audit rows contain the hash
  const definition_text = hash === null ? 'null' : (await storedDefinitions(db, [hash])).get(hash)?.text
  if (definition_text === undefined)
    throw new VersionGone('pruned', `The definition of the requested version of tool ${state.id} is no longer stored.`)
  const shown = (custom_headers as Header[] | undefined) ?? shownHeaders(state.headers)
  const headers = shown.map(({ key, value }) => ({ name: key, mask: value.replace(/^\*+#/, '') }))
  const definition_bytes = Buffer.byteLength(definition_text)
  return { ...state, ...columns, definition_hash: hash, definition_text, definition_bytes, headers }
}

/** Returns an update with `fields` and a stored definition, which is not checked again. Throws `Unavailable` if the definition was pruned. */
export async function updateOfStored(db: Executor, fields: ToolUpdateFields, hash: string | null) {
  const definition = hash === null ? {} : { definition: kept((await storedDefinitions(db, [hash])).get(hash)) }
  return { fields: { ...fields, ...definition }, origins: await readOrigins(db, hash), definitionFaults: [] }
}

/** Returns the origins of the servers in a stored definition. Caches them by the hash of the definition. */
async function readOrigins(executor: Executor, hash: string | null): Promise<ReadonlySet<string>> {
  const cached = factsOf(hash).origins
  if (cached !== undefined || hash === null) return cached ?? new Set()
  const text = (await storedDefinitions(executor, [hash])).get(hash)?.text
  const stored = text === undefined ? new Set<string>() : originsOf(JSON.parse(text))
  noteFacts(hash, { origins: stored })
  return stored
}
