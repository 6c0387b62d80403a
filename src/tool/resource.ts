import type { Kysely } from 'kysely'
import { type ViewerParameters, viewerParameters } from '../auth/viewer.js'
import type { Executor } from '../db/statements/statement.js'
import type { Tables } from '../db/tables.js'
import { originsOf } from '../definition/index.js'
import { SnapshotTooLarge, VersionGone, VersionNotFound } from '../errors.js'
import { sameValue } from '../updates/field-table.js'
import { readPast } from '../updates/read.js'
import type { PastValues, ResourceTypes, VersionedResource } from '../updates/resource.js'
import { changedValues, fieldVersions } from '../updates/statements.js'
import { isInt4 } from '../validation/vocabulary.js'
import { definitionsOf, definitionText, factsOf, noteFacts } from './definition-cache.js'
import { BLANK_TOOL, COLUMNS } from './fields.js'
import { type Header, shownHeaders } from './headers.js'
import { decideTool, type PlannedHeader, type References, type ToolDecision, type ToolUpdate } from './rules.js'
import { renderTool, type ToolState } from './snapshot.js'
import { readOauthConfig, readState, writeHeaders, writeTool } from './statements.js'

export interface ToolTypes extends ResourceTypes {
  State: ToolState
  Request: ToolUpdate
  Decision: ToolDecision
}

/** Implements custom tools for the engine of updates. */
export const toolResource: VersionedResource<ToolTypes> = {
  kind: 'tool',
  act: 'update',
  newRow: user_id => ({ ...BLANK_TOOL, user_id }),
  read: async (executor, id, viewer) => {
    return (await readState.first(executor, { ...viewer, id }))?.state
  },
  isVisible: () => true, // tools are not secret to a signed-in caller (DECISIONS section 6)
  isAlone: (state, { dryRun, fields }) => dryRun || !changesLinks(state, fields),
  decide: async (db, state, request) => {
    const { oauth_config_id: id = state.oauth_config_id } = request.fields
    // A group manager may move a tool with a configuration of their own.
    const isAsked = id !== null && isInt4(id) && (id !== state.oauth_config_id || state.managed_as === 'group')
    const config = isAsked ? await readOauthConfig.first(db, { ...viewerParameters(request.caller), id }) : undefined
    const stored = dependsOnOrigins(state, request.fields)
      ? await readOrigins(db, state.definition_hash)
      : new Set<string>()
    const passed = turnsPassthroughOn(state, request) ? await readPassedOrigins(db, state) : []
    const linkable = { oauthConfigLinkable: config !== undefined, oauthConfigName: config?.name ?? null }
    return decideTool(state, request, { ...linkable, ...originsBeside(request, stored, passed) })
  },
  write: async (executor, state, { after, definition, headers, changes }, viewer, entry) => {
    const own = {
      id: state.id,
      version: state.version,
      secrets_generation: state.secrets_generation,
      changed_columns: changedValues(COLUMNS, changes),
      definition_hash: after.definition_hash,
      oauth_config_id: after.oauth_config_id,
      field_versions: fieldVersions(state, changes),
      definition_text: definition?.text ?? null,
      definition_bytes: Buffer.byteLength(definition?.text ?? ''),
    }
    const row = await writeTool[definition === null ? 'columns' : 'definition'].first(executor, {
      ...viewer,
      ...entry,
      ...own,
    })
    if (row !== undefined && headers !== null) {
      const sent = headers.map(({ sealed, ...header }) => ({ ...header, ...encoded(sealed) }))
      await writeHeaders.run(executor, { id: state.id, headers: JSON.stringify(sent) })
    }
    return row?.version
  },
  render: async (db, state, bytesMax) => {
    if (state.definition_bytes > bytesMax) throw new SnapshotTooLarge(state.definition_bytes, bytesMax)
    const { definition_text, definition_hash: hash, managed_as, headers } = state
    const text = definition_text ?? (await definitionsOf(db, [hash])).of(state)
    return renderTool({ ...state, headers: managed_as === null ? null : headers }, text)
  },
  replacedDefinition: (state, { definition }) => (definition === null ? null : state.definition_hash),
  past: pastTool,
}

/** True if an update changes more than the tool's own row. */
function changesLinks(state: ToolState, { custom_headers: headers, oauth_config_id: config }: ToolUpdate['fields']) {
  const setsHeaders = headers !== undefined && !sameValue(headers, shownHeaders(state.headers))
  return setsHeaders || (config != null && config !== state.oauth_config_id)
}

/** Builds an earlier state, with the text of its definition. Throws `VersionGone` if that is no longer kept. */
export async function toolThen(db: Executor, state: ToolState, values: PastValues): Promise<ToolState> {
  const { definition = state.definition_hash, custom_headers, ...columns } = values
  const hash = definition as string | null // audit rows store the hash
  const definition_text = hash === null ? 'null' : await definitionText(db, hash)
  if (definition_text === undefined)
    throw new VersionGone('pruned', `The definition that tool ${state.id} had then is no longer kept.`)
  const shown = (custom_headers as Header[] | undefined) ?? shownHeaders(state.headers)
  const headers = shown.map(({ key, value }) => ({ name: key, mask: value.replace(/^\*+#/, '') }))
  const definition_bytes = Buffer.byteLength(definition_text)
  return { ...state, ...columns, definition_hash: hash, definition_text, definition_bytes, headers }
}

/** An earlier state without an OAuth configuration that the viewer does not see. */
async function pastTool(db: Executor, state: ToolState, values: PastValues, viewer: ViewerParameters) {
  const then = await toolThen(db, state, values)
  const id = then.oauth_config_id
  if (id === null || id === state.oauth_config_id) return { state: then, notes: [] }
  const { name = null } = (await readOauthConfig.first(db, { ...viewer, id })) ?? {}
  const notes = name === null ? [`left out, deleted since or not visible to you: OAuth configuration ${id}`] : []
  return { state: { ...then, oauth_config_id: name === null ? null : id, oauth_config_name: name }, notes }
}

/** True if the decision depends on where the stored definition's calls go: secrets stay with a new definition, or arrive. */
function dependsOnOrigins(state: ToolState, fields: ToolUpdate['fields']): boolean {
  const hasSecrets = state.headers.length > 0 || state.oauth_config_id !== null || state.passthrough_auth
  const replaces = fields.definition !== undefined && fields.definition.hash !== state.definition_hash
  const passes = fields.passthrough_auth === true && !state.passthrough_auth
  return passes || (replaces && hasSecrets) || (fields.definition === undefined && fields.custom_headers !== undefined)
}

/** True if a group manager turns `passthrough_auth` on. Other managers only get a note. */
function turnsPassthroughOn({ managed_as, passthrough_auth }: ToolState, { fields }: ToolUpdate): boolean {
  return managed_as === 'group' && !passthrough_auth && fields.passthrough_auth === true
}

/** Collects the origins for a decision: those of the request's definition, of the stored one, and those that callers' credentials were sent to. */
export function originsBeside(
  { origins }: Pick<ToolUpdate, 'origins'>,
  stored: ReadonlySet<string>,
  passed: Iterable<string> = [],
): Omit<References, 'oauthConfigLinkable' | 'oauthConfigName'> {
  return { givenOrigins: [...origins], storedOrigins: [...stored], passedOrigins: [...passed] }
}

/** Returns the origins that callers' credentials were sent to before passthrough was turned off; none if that is unknown. */
async function readPassedOrigins(executor: Executor, state: ToolState): Promise<Iterable<string>> {
  const turnedOff = state.field_versions.passthrough_auth
  if (turnedOff === undefined) return []
  try {
    const values = await readPast(executor as Kysely<Tables>, 'tool', state.id, turnedOff - 1)
    const { passthrough_auth: passed, definition = state.definition_hash } = values
    return passed === true ? await readOrigins(executor, definition as string | null) : [] // the value is a hash in hex
  } catch (error) {
    if (error instanceof VersionGone || error instanceof VersionNotFound) return []
    throw error
  }
}

/** Returns the origins of a stored definition. They are cached by its hash. */
async function readOrigins(executor: Executor, hash: string | null): Promise<ReadonlySet<string>> {
  const cached = factsOf(hash).origins
  if (cached !== undefined || hash === null) return cached ?? new Set()
  const text = await definitionText(executor, hash)
  const stored = text === undefined ? new Set<string>() : originsOf(JSON.parse(text))
  noteFacts(hash, { origins: stored })
  return stored
}

function encoded(sealed: PlannedHeader['sealed']) {
  return (
    sealed && {
      key_id: sealed.keyId,
      nonce: sealed.nonce.toString('base64'),
      ciphertext: sealed.ciphertext.toString('base64'),
    }
  )
}
