import { type Kysely, sql } from 'kysely'
import type { Tables } from '../db/tables.js'
import { COLUMNS, RELATIONS } from '../persona/fields.js'
import { COLUMNS as TOOL_COLUMNS } from '../tool/fields.js'
import { inOneSnapshot } from '../updates/read.js'
import { readPersonas } from './apply/personas.js'
import { RECORD_SECTIONS, readSection } from './apply/records.js'
import { entryInWords, type Refer, readReferences } from './apply/words.js'

/** Exports the organisation as a document, without tokens, history, versions or header values. Applying it to the same database changes nothing. */
export async function exportOrganisation(db: Kysely<Tables>): Promise<Record<string, unknown>> {
  // Reads all lists in one snapshot, so that every referenced row is exported.
  return await inOneSnapshot({ db }, async trx => {
    const refer = await readReferences(trx)
    const document: Record<string, unknown> = { version: 1 }
    for (const section of RECORD_SECTIONS) document[section] = await readSection(trx, section, refer)
    return { ...document, tools: await exportTools(trx, refer), agents: await exportAgents(trx, refer) }
  })
}

async function exportTools(db: Kysely<Tables>, refer: Refer) {
  const columns = sql.join(['id', ...TOOL_COLUMNS.map(([name]) => name)].map(name => sql.ref(`t.${name}`)))
  const { rows } = await sql<{ definition: string | null; headers: string[] }>`
    select ${columns}, d.content::text as definition,
      array(select name from tool_header where tool_id = t.id order by position) as headers
    from tool t left join tool_definition d on d.hash = t.definition_hash order by t.id`.execute(db)
  return rows.map(({ definition, headers, ...row }) => ({
    ...entryInWords(row, refer),
    ...(definition !== null && { definition: JSON.parse(definition) }),
    custom_headers: headers.map(key => ({ key })),
  }))
}

async function exportAgents(db: Kysely<Tables>, refer: Refer) {
  const fields = ['id', ...[...COLUMNS, ...RELATIONS].map(([name]) => name)] as const
  return (await readPersonas(db)).map(state =>
    entryInWords(Object.fromEntries(fields.map(name => [name, Reflect.get(state, name)])), refer),
  )
}
