import { markReceived } from '../db/clock.js'
import type { Positioned } from '../db/statements/row-statement.js'
import { isInt4 } from '../schema/vocabulary.js'
import type { ResourceTypes, VersionedResource } from '../updates/engine.js'
import { changedValues, fieldVersions } from '../updates/statements.js'
import { COLUMNS, type ToolContent } from './fields.js'
import {
  decideTool,
  type PlannedHeader,
  type References,
  shownHeaders,
  type ToolDecision,
  type ToolUpdate,
} from './rules.js'
import type { ToolState } from './state.js'
import {
  readOauthConfig,
  readRow,
  readRowWithoutHeaders,
  readState,
  type ToolRow,
  writeStatement,
} from './statements.js'

interface ToolTypes extends ResourceTypes {
  State: ToolState
  Request: ToolUpdate
  Decision: ToolDecision
  References: References
  Row: ToolRow
}

/** Custom tools, as the engine of updates knows them. */
export const toolResource: VersionedResource<ToolTypes> = {
  kind: 'tool',
  read: async (executor, id, viewer) => {
    const [row] = await readState.run(executor, { ...viewer, id })
    return row && markReceived(row.state)
  },
  decide: decideTool,
  references: async (executor, _, { content: { oauth_config_id: id } }) => {
    const isStored = id !== null && isInt4(id) && (await readOauthConfig.run(executor, { id })).length > 0
    return { oauthConfigExists: isStored }
  },
  isStorable: ({ content: { oauth_config_id: id } }) => id === null || isInt4(id),
  answerBytes: ({ definition_bytes }, { definition }) => (definition === null ? definition_bytes : 0),
  storedBytes: ({ definition_bytes }) => definition_bytes,
  // A new link waits for whoever deletes what it refers to, a new definition for whoever stores the same.
  isBatchable: ({ linksOauthConfig, definition }) => !linksOauthConfig && definition === null,
  reading: ({ id, version, manageable }) => (manageable ? readRow : readRowWithoutHeaders).for({ id, version }),
  writing: (state, { content, definition, headers, changes }, viewer, entry) => {
    const shape = { definition: definition !== null, headers: headers !== null }
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
    return writeStatement(shape).for(Object.assign({}, viewer, entry, own))
  },
  snapshot: (row, decision) => snapshotText(row, decision?.definition?.text ?? row.definition),
  replacedDefinition: (state, { definition }) => (definition === null ? null : state.definition_hash),
  audited: (state, decision) => auditedTool(decision?.content ?? state, decision?.headers ?? state.headers),
  isVisible: () => true, // tools are no secret to a signed-in caller (DECISIONS section 6)
}

/** The whole content of a tool, in the order of the table of fields: its definition by the hash, header values by the fingerprints. */
export function auditedTool(
  content: ToolContent,
  headers: readonly { name: string; fingerprint: string }[],
): unknown[] {
  const marks = headers.map(({ name, fingerprint }) => [name, fingerprint])
  return [...COLUMNS.map(([column]) => content[column]), content.definition_hash, marks]
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
function snapshotText(row: Positioned<ToolRow>, definition: string | null): string {
  const { position: _, version: __, definition: ___, id, name, description, ...rest } = row
  const head = JSON.stringify({ id, name, description })
  return `${head.slice(0, -1)},"definition":${definition ?? 'null'},${JSON.stringify(rest).slice(1)}`
}
