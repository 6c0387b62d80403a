import { viewerParameters } from '../auth/viewer.js'
import { markReceived } from '../db/clock.js'
import type { Executor } from '../db/statements/statement.js'
import { originsOf } from '../definition/index.js'
import { SnapshotTooLarge, VersionGone, VersionNotFound } from '../errors.js'
import { auditedFields } from '../updates/field-table.js'
import { readPast } from '../updates/past.js'
import type { ResourceTypes, ShowPast, VersionedResource } from '../updates/resource.js'
import { changedValues, fieldVersions } from '../updates/statements.js'
import { isInt4 } from '../validation/vocabulary.js'
import { definitionsOf, definitionText, factsOf, noteFacts } from './definition-cache.js'
import { BLANK_TOOL, COLUMNS, type ToolContent } from './fields.js'
import { type Header, shownHeaders } from './headers.js'
import {
  askedChanges,
  decideTool,
  type PlannedHeader,
  type References,
  requireHistory,
  requireManageable,
  type ToolDecision,
  type ToolUpdate,
} from './rules.js'
import { renderTool, type ToolState } from './snapshot.js'
import { readDefinitionBytes, readOauthConfig, readState, writeHeaders, writeTool } from './statements.js'

export interface ToolTypes extends ResourceTypes {
  State: ToolState
  Request: ToolUpdate
  Decision: ToolDecision
  Facts: References
}

/** Implements custom tools for the engine of updates. */
export const toolResource: VersionedResource<ToolTypes> = {
  kind: 'tool',
  act: 'update',
  newRow: user_id => ({ ...BLANK_TOOL, user_id }),
  read: async (executor, id, viewer) => {
    const row = await readState.first(executor, { ...viewer, id })
    return row && markReceived(row.state)
  },
  facts: async (db, state, request) => {
    const { oauth_config_id: id = state.oauth_config_id } = request.fields
    // A group manager may move a tool with a configuration of their own.
    const isAsked = id !== null && isInt4(id) && (id !== state.oauth_config_id || state.managed_as === 'group')
    const config = isAsked ? await readOauthConfig.first(db, { ...viewerParameters(request.caller), id }) : undefined
    const stored = dependsOnOrigins(state, request.fields)
      ? await readOrigins(db, state.definition_hash)
      : new Set<string>()
    const passed = turnsPassthroughOn(state, request) ? await readPassedOrigins(db, state) : []
    const linkable = { oauthConfigLinkable: config !== undefined, oauthConfigName: config?.name ?? null }
    return { ...linkable, ...originsBeside(request, stored, passed) }
  },
  decide: decideTool,
  asked: askedChanges,
  isAlone: ({ headers, linksOauthConfig }) => headers === null && !linksOauthConfig,
  write: async (executor, state, { content, definition, changes }, viewer, entry) => {
    const own = {
      id: state.id,
      version: state.version,
      secrets_generation: state.secrets_generation,
      changed_columns: changedValues(COLUMNS, changes),
      definition_hash: content.definition_hash,
      oauth_config_id: content.oauth_config_id,
      field_versions: fieldVersions(state, changes),
      definition_text: definition?.text ?? null,
      definition_bytes: Buffer.byteLength(definition?.text ?? ''),
    }
    const row = await writeTool[definition === null ? 'columns' : 'definition'].first(executor, {
      ...viewer,
      ...entry,
      ...own,
    })
    return row?.version
  },
  writeRest: async (trx, { id }, { headers }) => {
    if (headers === null) return
    const sent = headers.map(({ sealed, ...header }) => ({ ...header, ...encoded(sealed) }))
    await writeHeaders.run(trx, { id, headers: JSON.stringify(sent) })
  },
  shown: async (db, { state, decision, facts }) => {
    const { content, definition } = decision
    const hash = content.definition_hash
    const text = definition?.text ?? (await definitionsOf(db, [hash])).of({ definition_hash: hash })
    const isKept = content.oauth_config_id === state.oauth_config_id
    const name = content.oauth_config_id === null ? null : isKept ? state.oauth_config_name : facts.oauthConfigName
    const after = { ...state, ...content, oauth_config_name: name }
    return () => renderTool({ ...after, headers: decision.headers ?? state.headers }, text)
  },
  snapshot: async (db, state) => {
    const definitions = await definitionsOf(db, [state.definition_hash])
    return renderTool({ ...state, headers: state.managed_as === null ? null : state.headers }, definitions.of(state))
  },
  requireAnswerable: ({ definition_bytes: bytes }, bytesMax) => {
    if (bytes > bytesMax) throw new SnapshotTooLarge(bytes, bytesMax)
  },
  replacedDefinition: (state, { definition }) => (definition === null ? null : state.definition_hash),
  audited: (state, decision) => auditedTool(decision?.content ?? state, decision?.headers ?? state.headers),
  isVisible: () => true, // tools are not secret to a signed-in caller (DECISIONS section 6)
  requireRights: requireManageable,
  requireHistory,
  pastSnapshot: pastTool,
}

async function pastTool(
  ...[db, state, { values }, viewer, requireSize]: Parameters<ShowPast<ToolTypes>>
): Promise<{ text: string; notes: string[] }> {
  type Then = Partial<ToolContent> & { definition?: string | null; custom_headers?: Header[] }
  const { definition: hash = state.definition_hash, custom_headers: headers, ...columns } = values as Then
  const then = { ...state, ...columns, definition_hash: hash }
  const [stored] = hash === null ? [] : await readDefinitionBytes.run(db, { hash })
  if (hash !== null && stored === undefined)
    throw new VersionGone('pruned', `The definition that tool ${state.id} had then is no longer kept.`)
  requireSize((stored?.bytes ?? 0) + Buffer.byteLength(then.description))
  const id = then.oauth_config_id
  const config =
    id === null || id === state.oauth_config_id
      ? { id, name: state.oauth_config_name }
      : await readOauthConfig.first(db, { ...viewer, id })
  const notes = config ? [] : [`left out, deleted since or not visible to you: OAuth configuration ${id}`]
  const shown = { ...then, oauth_config_id: config?.id ?? null, oauth_config_name: config?.name ?? null }
  const masked = state.managed_as === null ? null : (headers ?? shownHeaders(state.headers))
  return { text: renderTool({ ...shown, headers: null }, (await definitionsOf(db, [hash])).of(then), masked), notes }
}

/** Returns the content of a tool for the audit hash: the definition as its hash, header values as masks. */
export function auditedTool(content: ToolContent, headers: readonly { name: string; mask: string }[]): unknown[] {
  const marks = headers.map(({ name, mask }) => [name, mask])
  const columns = COLUMNS.map(([column]) => column)
  return [auditedFields(columns, content, BLANK_TOOL), content.definition_hash, marks]
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
    const { values } = await readPast(executor, 'tool', state.id, turnedOff - 1)
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
