import { type Kysely, sql } from 'kysely'
import { OPERATOR, viewerWithValues } from '../auth/viewer.js'
import type { Tables } from '../db/tables.js'
import { COLUMNS, type PersonaContent, RELATIONS } from '../persona/fields.js'
import { personaState } from '../persona/state.js'
import { inOneSnapshot } from '../updates/read.js'
import { headerVariables, placeholder } from './apply/placeholders.js'
import { RECORD_SECTIONS, readSection } from './apply/records.js'
import { entryInWords, type Refer, readReferences } from './apply/words.js'
import { parseMarked } from './written-numbers.js'

/**
 * Exports the organisation as a document that `apply` accepts without changes: rows with ids, references by name or email, and a variable
 * for each secret. Tokens, history and versions are left out.
 */
export async function exportOrganisation(db: Kysely<Tables>): Promise<Record<string, unknown>> {
  // One snapshot for all lists, so that no reference points to a missing row.
  return await inOneSnapshot({ db }, async trx => {
    const refer = await readReferences(trx)
    const document: Record<string, unknown> = { version: 1 }
    for (const section of RECORD_SECTIONS) document[section] = await readSection(trx, section, refer)
    return { ...document, tools: await exportTools(trx, refer), agents: await exportAgents(trx, refer) }
  })
}

interface ToolRow extends Record<string, unknown> {
  id: number
  definition: string | null
  headers: string[]
}

async function exportTools(db: Kysely<Tables>, refer: Refer) {
  const { rows } = await sql<ToolRow>`
    select t.id, t.name, t.display_name, t.description, t.in_code_tool_id, t.user_id, t.passthrough_auth,
      t.mcp_server_id, t.oauth_config_id, t.enabled, t.chat_selectable,
      t.agent_creation_selectable, t.default_enabled, d.content::text as definition,
      array(select name from tool_header where tool_id = t.id order by position) as headers
    from tool t left join tool_definition d on d.hash = t.definition_hash order by t.id`.execute(db)
  return rows.map(({ definition, headers, ...columns }) => {
    const variables = headerVariables(columns.id, headers)
    const custom_headers = headers.map((key, index) => ({ key, value: placeholder(variables[index] ?? '') }))
    return {
      ...entryInWords(columns, refer),
      ...(definition !== null && { definition: parseMarked(definition) }),
      custom_headers,
    }
  })
}

async function exportAgents(db: Kysely<Tables>, refer: Refer) {
  const { rows } = await sql<{ state: PersonaContent & { id: number } }>`
    select ${personaState(viewerWithValues(OPERATOR))} as state from persona p order by p.id`.execute(db)
  const fields = ['id', ...[...COLUMNS, ...RELATIONS].map(([name]) => name)] as const
  return rows.map(({ state }) =>
    entryInWords(Object.fromEntries(fields.map(name => [name, Reflect.get(state, name)])), refer),
  )
}
