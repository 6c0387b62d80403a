import { viewerParameters } from '../auth/viewer.js'
import { markReceived } from '../db/clock.js'
import type { Positioned } from '../db/statements/row-statement.js'
import type { Executor } from '../db/statements/statement.js'
import { isInt4 } from '../schema/vocabulary.js'
import type { ResourceTypes, VersionedResource } from '../updates/engine.js'
import { auditedFields } from '../updates/field-table.js'
import { changedValues, fieldVersions } from '../updates/statements.js'
import { inSlices, originsOf } from './definition/index.js'
import { cachedOrigins, cachedTexts, cacheOrigins, cacheText } from './definition-cache.js'
import { BLANK_TOOL, COLUMNS, type ToolContent } from './fields.js'
import { pastRecords, pastToolBytes, readPastTool } from './past.js'
import {
  decideTool,
  type PlannedHeader,
  type References,
  requireManageable,
  shownHeaders,
  type ToolDecision,
  type ToolUpdate,
} from './rules.js'
import type { ToolState } from './state.js'
import {
  readDefinition,
  readOauthConfig,
  readRow,
  readRowWithoutHeaders,
  readState,
  type ToolRow,
  type WriteShape,
  writeStatement,
} from './statements.js'

interface ToolTypes extends ResourceTypes {
  State: ToolState
  Request: ToolUpdate
  Decision: ToolDecision
  References: References
  Row: Positioned<ToolRow>
}

/** Custom tools, as the engine of updates knows them. */
export const toolResource: VersionedResource<ToolTypes> = {
  kind: 'tool',
  read: async (executor, id, viewer) => {
    const [row] = await readState.run(executor, { ...viewer, id })
    return row && markReceived(row.state)
  },
  decide: (state, request, references) => {
    // Where the origins of the stored definition are cached they decide. Not beside a newly linked OAuth configuration: only
    // what is read under the lock says whether it may be linked, and that fault comes first.
    const stored = linksOauthConfig(state, request) ? undefined : cachedOrigins(state.definition_hash)
    const cached = stored && { oauthConfigLinkable: true, addedOrigins: additions(request, stored) }
    return decideTool(state, request, references ?? cached ?? null)
  },
  references: async (executor, request, { content: { oauth_config_id: id }, mayMoveSecrets }, state) => {
    const viewer = viewerParameters(request.caller)
    const isLinkable = id !== null && isInt4(id) && (await readOauthConfig.run(executor, { ...viewer, id })).length > 0
    const cached = cachedOrigins(state.definition_hash)
    const stored = cached ?? (mayMoveSecrets ? await readOrigins(executor, state.definition_hash) : undefined)
    return { oauthConfigLinkable: isLinkable, addedOrigins: stored ? additions(request, stored) : [] }
  },
  // Where secrets stay, the origins of the definition that is replaced are read first, under the lock.
  isStorable: ({ content: { oauth_config_id: id }, mayMoveSecrets }) => (id === null || isInt4(id)) && !mayMoveSecrets,
  answerBytes: ({ definition_bytes }, decision) => (decision?.definition ? 0 : definition_bytes),
  definitionBytes: ({ definition_bytes }) => definition_bytes,
  // A new link waits for whoever deletes what it refers to, a new definition for whoever stores the same.
  isBatchable: ({ linksOauthConfig, definition }) => !linksOauthConfig && (definition === null || isHeld(definition)),
  reading: ({ id, version, managed_as }, viewer) =>
    (managed_as === null ? readRowWithoutHeaders : readRow).for({ ...viewer, id, version }),
  writing: (state, { content, definition, headers, changes }, viewer, entry, minimal) => {
    const stored: WriteShape['definition'] = definition !== null && (isHeld(definition) ? 'shared' : 'single')
    const shape = { definition: stored, headers: headers !== null, minimal }
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
    // Not spread into a literal: for so many properties V8 makes new hidden classes each time, a tenth of an update.
    const query = writeStatement(shape).for(Object.assign({}, viewer, entry, own))
    return query.map(row => {
      if (definition !== null) cacheText(definition.hash, definition.text)
      return row
    })
  },
  snapshot: (row, decision) => snapshotText(row, decision?.definition?.text ?? row.definition),
  replacedDefinition: (state, { definition }) => (definition === null ? null : state.definition_hash),
  audited: (state, decision) => auditedTool(decision?.content ?? state, decision?.headers ?? state.headers),
  isVisible: () => true, // tools are not secret to a signed-in caller (DECISIONS section 6)
  requireRights: requireManageable,
  pastSnapshot: async (executor, { id }, past, viewer, reserve) => {
    reserve(await pastToolBytes(executor, [past]))
    const [row] = await readPastTool.run(executor, { ...viewer, ids: [id], past: pastRecords([past]) })
    if (row === undefined) throw new Error('the statement of an earlier tool answered no row')
    return snapshotText(row, row.definition)
  },
}

/** The whole content of a tool, for its hash: the definition by its own, header values by their fingerprints. */
export function auditedTool(
  content: ToolContent,
  headers: readonly { name: string; fingerprint: string }[],
): unknown[] {
  const marks = headers.map(({ name, fingerprint }) => [name, fingerprint])
  const columns = COLUMNS.map(([column]) => column)
  return [auditedFields(columns, content, BLANK_TOOL), content.definition_hash, marks]
}

function linksOauthConfig(
  { oauth_config_id: stored }: ToolState,
  { fields: { oauth_config_id: id } }: ToolUpdate,
): boolean {
  return id !== undefined && id !== null && id !== stored
}

/** The origins of the request's definition that another does not have. */
function additions({ origins }: ToolUpdate, stored: ReadonlySet<string>): string[] {
  return [...origins].filter(origin => !stored.has(origin))
}

async function readOrigins(executor: Executor, hash: string | null): Promise<ReadonlySet<string>> {
  const [row] = hash === null ? [] : await readDefinition.run(executor, { hash })
  const stored = row === undefined ? new Set<string>() : await inSlices(originsOf(JSON.parse(row.definition)))
  if (hash !== null) cacheOrigins(hash, stored)
  return stored
}

/** Whether the definition was stored lately, so that storing it again waits for nobody. */
function isHeld({ hash }: NonNullable<ToolDecision['definition']>): boolean {
  return cachedTexts([hash]).size > 0
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

/** The wire's ToolSnapshot as JSON text; the definition's own text is put in as it is stored. */
function snapshotText(row: ToolRow & { position?: number }, definition: string | null): string {
  const { position: _, version: __, definition: ___, id, name, description, ...rest } = row
  const head = JSON.stringify({ id, name, description })
  return `${head.slice(0, -1)},"definition":${definition ?? 'null'},${JSON.stringify(rest).slice(1)}`
}

/** The body of an update that changes nothing of a stored tool, as JSON text; without the headers for who does not see them. */
export function updateText(row: Positioned<ToolRow>): string {
  const { name, description, definition, custom_headers, passthrough_auth, oauth_config_id } = row
  const head = JSON.stringify({ name, description })
  const tail = { ...(custom_headers !== null && { custom_headers }), passthrough_auth, oauth_config_id }
  return `${head.slice(0, -1)},"definition":${definition ?? 'null'},${JSON.stringify(tail).slice(1)}`
}
