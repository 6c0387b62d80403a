import { type Kysely, sql } from 'kysely'
import type { Database, ResourceKind } from '../../db/tables.js'
import { BLANK_AGENT } from '../../persona/fields.js'
import { auditedPersona } from '../../persona/resource.js'
import { BLANK_TOOL } from '../../tool/fields.js'
import { auditedTool } from '../../tool/resource.js'
import { shownHeaders } from '../../tool/rules.js'
import { sha256 } from '../../updates/audit.js'
import { readPersonaStates } from '../apply/personas.js'
import { readToolStates } from '../apply/tools.js'
import { type Chain, readDifference } from './chain.js'
import { type AuditFinding, notesOf } from './findings.js'

/** What differences start from: a field that no row names is so still. */
const { definition_hash, ...toolColumns } = BLANK_TOOL
const BLANK: Record<ResourceKind, object> = {
  persona: BLANK_AGENT,
  tool: { ...toolColumns, definition: definition_hash, custom_headers: [] },
}

/** What is stored now: everything that the trail vouches for, and each field as differences show it. */
interface Content {
  /** As the last row's hash may cover it: as today, and as 1.2.0 wrote it. */
  audited: readonly (readonly unknown[])[]
  fields: Readonly<Record<string, unknown>>
}

/** Of whose values in this order, without their names, 1.2.0 made the hash of a content. Never to be changed. */
const FIELDS_OF_1_2_0 = {
  persona: (
    'name description document_set_ids num_chunks is_public recency_bias llm_filter_extraction llm_relevance_filter ' +
    'tool_ids system_prompt task_prompt datetime_aware llm_model_provider_override llm_model_version_override ' +
    'starter_messages users groups uploaded_image_id icon_name search_start_date label_ids is_default_persona ' +
    'display_priority user_file_ids replace_base_system_prompt is_visible builtin_persona deleted owner_id'
  ).split(' '),
  tool: (
    'name display_name description in_code_tool_id passthrough_auth mcp_server_id user_id oauth_config_id enabled ' +
    'chat_selectable agent_creation_selectable default_enabled definition_hash'
  ).split(' '),
}

function valuesAsOf1_2_0(kind: ResourceKind, state: Readonly<Record<string, unknown>>): unknown[] {
  return FIELDS_OF_1_2_0[kind].map(field => state[field])
}

/** What is stored of these agents or tools, by id. */
export async function readContents(
  db: Kysely<Database>,
  kind: ResourceKind,
  ids: readonly number[],
): Promise<Map<number, Content>> {
  if (kind === 'persona') {
    const states = await readPersonaStates(db, ids)
    return new Map(
      [...states].map(([id, state]) => {
        const fields = { ...state }
        return [id, { audited: [auditedPersona(state), valuesAsOf1_2_0(kind, fields)], fields }]
      }),
    )
  }
  const states = await readToolStates(db, ids)
  const shown = [...states].map(([id, state]): [number, Content] => {
    const fields = { ...state, definition: state.definition_hash, custom_headers: shownHeaders(state.headers) }
    const marks = state.headers.map(({ name, fingerprint }) => [name, fingerprint])
    return [
      id,
      { audited: [auditedTool(state, state.headers), [...valuesAsOf1_2_0(kind, { ...state }), marks]], fields },
    ]
  })
  return new Map(shown)
}

/** Compares what is stored with the hash of the last row, and each field with its last kept change, which names it. */
export function contentFindings(
  { kind, id, resource, rows, mark }: Chain,
  content: Content | undefined,
): AuditFinding[] {
  const { findings, note } = notesOf(kind, String(id))
  if (resource === undefined || content === undefined) return findings
  const end = rows.at(-1)
  if ((end?.version_after ?? mark?.anchor_version) !== resource.version) return findings // not whole: that is said already
  // A row of 1.0 or 1.1 says nothing of the content: what stands there is in no hash.
  const expected = end === undefined ? mark?.content_hash : end.identity_hash && end.content_hash
  const isHashed = typeof expected === 'string'
  if (isHashed && content.audited.some(form => expected === sha256(JSON.stringify(form)))) return findings
  const isComplete = isHashed && rows[0]?.version_before === 0
  const last = new Map<string, unknown>(isComplete ? Object.entries(BLANK[kind]) : [])
  for (const row of rows) {
    if (row.fields.includes('removed')) last.clear()
    if (row.difference === null || sha256(row.difference) !== row.difference_hash) continue
    for (const [field, { to }] of Object.entries(readDifference(row.difference) ?? {})) last.set(field, to)
  }
  const differing = [...last].filter(([field, to]) => {
    return field in content.fields && JSON.stringify(content.fields[field]) !== JSON.stringify(to)
  })
  if (!isHashed && differing.length === 0) return findings
  const named = differing.map(([field]) => field).join(', ') || 'a field whose last change is not kept'
  note(resource.version, 'content_mismatch', `what is stored is not what the last row says: ${named}`)
  return findings
}

/** Definitions are kept once under the SHA-256 of their text, which is what rows name: the text must still be that one. */
export async function definitionFindings(db: Kysely<Database>): Promise<AuditFinding[]> {
  const { rows } = await sql<{ subject: string }>`
    select encode(hash, 'hex') as subject from tool_definition
    where hash <> sha256(convert_to(content::text, 'UTF8')) order by hash`.execute(db)
  const { rows: without } = await sql<{ subject: string }>`
    select id::text as subject from tool t
    where not exists (select from tool_definition d where d.hash = t.definition_hash) and definition_hash is not null
    order by id`.execute(db)
  const msg = 'the text of the definition is not the one that its hash was made of'
  return [
    ...rows.map(({ subject }) => ({
      kind: 'tool_definition',
      subject,
      number: 0,
      problem: 'content_mismatch' as const,
      msg,
    })),
    ...without.map(({ subject }) => ({
      kind: 'tool',
      subject,
      number: 0,
      problem: 'content_mismatch' as const,
      msg: 'the text of its definition is gone',
    })),
  ]
}
