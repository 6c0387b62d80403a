import { viewerParameters } from '../auth/viewer.js'
import { markReceived } from '../db/clock.js'
import type { Executor } from '../db/statements/statement.js'
import { originsOf } from '../definition/index.js'
import { SnapshotTooLarge, VersionGone, VersionNotFound } from '../errors.js'
import { AnswerText, type DefinitionText } from '../updates/answer-text.js'
import { auditedFields } from '../updates/field-table.js'
import { readPast } from '../updates/past.js'
import type { ResourceTypes, ShowPast, VersionedResource } from '../updates/resource.js'
import { changedValues, fieldVersions } from '../updates/statements.js'
import { isInt4 } from '../validation/vocabulary.js'
import {
  type CachedTexts,
  cachedTexts,
  cacheText,
  factsOf,
  leavingOut,
  noteFacts,
  withCached,
  withDefinitions,
} from './definition-cache.js'
import { BLANK_TOOL, COLUMNS, type ToolContent } from './fields.js'
import {
  askedChanges,
  decideTool,
  type PlannedHeader,
  type References,
  requireHistory,
  requireManageable,
  shownHeaders,
  type ToolDecision,
  type ToolUpdate,
} from './rules.js'
import type { ToolState } from './snapshot.js'
import {
  readDefinition,
  readDefinitionBytes,
  readOauthConfig,
  readPastTool,
  readState,
  readTool,
  readVersion,
  type ToolRow,
  writeStatement,
} from './statements.js'

export interface ToolTypes extends ResourceTypes {
  State: ToolState
  Request: ToolUpdate
  Decision: ToolDecision
  References: References
  Row: ShownRow
}

/** A tool for an answer; without a definition if only the version is needed. */
type ShownRow = Omit<ToolRow, 'definition'> & { definition?: DefinitionText | undefined }

/** Implements custom tools for the engine of updates. */
export const toolResource: VersionedResource<ToolTypes> = {
  kind: 'tool',
  act: 'update',
  newRow: user_id => ({ ...BLANK_TOOL, user_id }),
  read: async (executor, id, viewer) => {
    const [row] = await readState.run(executor, { ...viewer, id })
    return row && markReceived(row.state)
  },
  decide: (state, request, references) => {
    const stored = needsDatabase(state, request) ? undefined : factsOf(state.definition_hash).origins
    const cached = stored && { oauthConfigLinkable: true, ...originsBeside(request, stored) }
    return decideTool(state, request, references ?? cached ?? null)
  },
  asked: askedChanges,
  references: async (executor, request, { content: { oauth_config_id: id }, needsOrigins }, state) => {
    const viewer = viewerParameters(request.caller)
    const isLinkable = id !== null && isInt4(id) && (await readOauthConfig.run(executor, { ...viewer, id })).length > 0
    const cached = factsOf(state.definition_hash).origins
    const stored = cached ?? (needsOrigins ? await readOrigins(executor, state.definition_hash) : undefined)
    const passed = turnsPassthroughOn(state, request) ? await readPassedOrigins(executor, state) : []
    return { oauthConfigLinkable: isLinkable, ...originsBeside(request, stored ?? new Set(), passed) }
  },
  // If secrets stay or arrive, the stored origins must be read under the lock first.
  isStorable: ({ content: { oauth_config_id: id }, needsOrigins }) => (id === null || isInt4(id)) && !needsOrigins,
  definitionBytes: ({ definition_bytes }, decision) => (decision?.definition ? 0 : definition_bytes),
  requireAnswerable: ({ definition_bytes: bytes }, bytesMax) => {
    if (bytes > bytesMax) throw new SnapshotTooLarge(bytes, bytesMax)
  },
  reading: ({ id, version, managed_as, definition_hash }, viewer, minimal = false) => {
    const shown = minimal ? [] : [{ definition: definition_hash }]
    const statement = minimal ? readVersion : readTool
    const asked = { id, version, managed: managed_as !== null, ...viewer }
    return withCached(shown, statement, asked, shownRow)
  },
  writing: (state, { content, definition, headers, changes }, viewer, entry, minimal) => {
    const statement = writeStatement({ definition: definition !== null, headers: headers !== null, minimal })
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
      headers: JSON.stringify((headers ?? []).map(({ sealed, ...header }) => ({ ...header, ...encoded(sealed) }))),
      shown_headers: JSON.stringify(shownHeaders(headers ?? state.headers)),
    }
    // The audit row is reused as the parameters: copying all properties takes twenty times as long.
    const parameters = Object.assign(entry, viewer, own)
    if (definition === null) {
      const shown = minimal ? [] : [{ definition: state.definition_hash }]
      return withCached(shown, statement, parameters, shownRow)
    }
    const { hash, text } = definition
    const sent = Object.assign(parameters, { cached_definitions: [] })
    return async executor => {
      const row = await statement.first(executor, sent)
      return row && { ...row, definition: { hash, text: cacheText(hash, text) } }
    }
  },
  snapshot: snapshotText,
  replacedDefinition: (state, { definition }) => (definition === null ? null : state.definition_hash),
  audited: (state, decision) => auditedTool(decision?.content ?? state, decision?.headers ?? state.headers),
  isWhole: () => true,
  isVisible: () => true, // tools are not secret to a signed-in caller (DECISIONS section 6)
  requireRights: requireManageable,
  requireHistory,
  pastSnapshot: pastTool,
}

async function pastTool(
  ...[executor, state, { values }, viewer, requireSize]: Parameters<ShowPast<ToolTypes>>
): Promise<{ text: AnswerText; notes: string[] }> {
  const { definition: hash = state.definition_hash, ...past } = values as Partial<ToolContent> & { definition?: string }
  const { description = state.description, oauth_config_id: config = null } = past
  const [stored] = hash === null ? [] : await readDefinitionBytes.run(executor, { hash })
  if (hash !== null && stored === undefined)
    throw new VersionGone('pruned', `The definition that tool ${state.id} had then is no longer kept.`)
  requireSize((stored?.bytes ?? 0) + Buffer.byteLength(description))
  const isHidden =
    config !== null &&
    config !== state.oauth_config_id &&
    (await readOauthConfig.run(executor, { ...viewer, id: config })).length === 0
  const columns = { ...past, definition_hash: hash && `\\x${hash}`, ...(isHidden && { oauth_config_id: null }) }
  const cached = cachedTexts([hash])
  const asked = { id: state.id, past: JSON.stringify(columns), ...leavingOut(cached) }
  const [row] = await readPastTool.run(executor, { ...viewer, ...asked })
  if (row === undefined) throw new Error('the statement of an earlier tool answered no row')
  const notes = isHidden ? [`left out, deleted since or not visible to you: OAuth configuration ${config}`] : []
  return { text: snapshotText(shownRow(row, cached)), notes }
}

/** Returns the content of a tool for the audit hash: the definition as its hash, header values as fingerprints. */
export function auditedTool(
  content: ToolContent,
  headers: readonly { name: string; fingerprint: string }[],
): unknown[] {
  const marks = headers.map(({ name, fingerprint }) => [name, fingerprint])
  const columns = COLUMNS.map(([column]) => column)
  return [auditedFields(columns, content, BLANK_TOOL), content.definition_hash, marks]
}

/** True if a decision needs more than cached origins: the owner of an OAuth configuration, or where callers' credentials were sent before. */
function needsDatabase(state: ToolState, request: ToolUpdate): boolean {
  const { oauth_config_id: id } = request.fields
  if (id !== undefined && id !== null && id !== state.oauth_config_id) return true
  return turnsPassthroughOn(state, request) || (state.managed_as === 'group' && state.oauth_config_id !== null)
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
): Omit<References, 'oauthConfigLinkable'> {
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
  const row = hash === null ? undefined : await readDefinition.first(executor, { hash })
  const stored = row === undefined ? new Set<string>() : originsOf(JSON.parse(row.definition))
  if (hash !== null) noteFacts(hash, { origins: stored })
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

function shownRow(row: ToolRow, cached: CachedTexts): ShownRow {
  const [, definition] = withDefinitions(row.definition ?? '', cached) // the first piece is an empty text
  return { ...row, definition: typeof definition === 'object' ? definition : undefined }
}

/** Makes the wire's ToolSnapshot, with the definition's stored text. */
function snapshotText(row: ShownRow): AnswerText {
  const { version: _, definition, id, name, description, ...rest } = row
  return aroundDefinition({ id, name, description }, definition, rest)
}

function aroundDefinition(head: object, definition: DefinitionText | undefined, tail: object): AnswerText {
  if (definition === undefined) throw new Error('of a tool without a definition only the version was asked for')
  const before = `${JSON.stringify(head).slice(0, -1)},"definition":`
  return new AnswerText([before, definition, `,${JSON.stringify(tail).slice(1)}`])
}
