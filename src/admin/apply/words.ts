import { type Kysely, sql } from 'kysely'
import type { Tables } from '../../db/tables.js'
import { RELATIONS } from '../../persona/fields.js'
import type { SectionName } from '../document.js'
import { type FieldChange, type Id, SECTIONS, TABLES } from './catalogue.js'

/* Translates between the names of columns and audit rows and those of documents, for exports and plans. */

/** Returns a document's reference to a row: its name or email, or an object with the id if the name is not unique. */
export type Refer = (section: SectionName, id: Id | null) => unknown

/** Reads the names of all rows for references. `others` answers for deleted rows. */
export async function readReferences(db: Kysely<Tables>, others: Refer = (_, id) => id): Promise<Refer> {
  const names = new Map<string, string | null>()
  const counts = new Map<string, number>()
  for (const section of SECTIONS.filter(section => section !== 'agents')) {
    const { table, named } = TABLES[section]
    const { rows } = await sql<{ id: Id; name: string | null }>`
      select id, ${sql.ref(named)} as name from ${sql.table(table)}`.execute(db)
    for (const { id, name } of rows) {
      names.set(`${section} ${id}`, name)
      counts.set(`${section} ${name}`, (counts.get(`${section} ${name}`) ?? 0) + 1)
    }
  }
  return (section, id) => {
    const name = names.get(`${section} ${id}`)
    if (name === undefined) return id === null ? null : others(section, id)
    return name !== null && counts.get(`${section} ${name}`) === 1 ? name : { id, ...(name !== null && { name }) }
  }
}

/** For each column with references: the field of the document, the referenced list, and the key in a share. */
const REFERENCES: Readonly<Record<string, { word: string; section: SectionName; key?: string }>> = {
  owner_id: { word: 'owner', section: 'users' },
  user_id: { word: 'owner', section: 'users' },
  mcp_server_id: { word: 'mcp_server', section: 'mcp_servers' },
  oauth_config_id: { word: 'oauth_config', section: 'oauth_configs' },
  members: { word: 'members', section: 'users' },
  managers: { word: 'managers', section: 'users' },
  cc_pairs: { word: 'cc_pairs', section: 'cc_pairs' },
  federated_connectors: { word: 'federated_connectors', section: 'federated_connectors', key: 'connector' },
  ...Object.fromEntries(
    RELATIONS.map(([relation, { link }]) => [
      relation,
      { word: link.section, section: link.section, ...(link.key !== undefined && { key: link.key }) },
    ]),
  ),
}

/** A column and its value as the document has them. */
export function inWords(field: string, value: unknown, refer: Refer): [word: string, value: unknown] {
  const reference = REFERENCES[field]
  if (reference === undefined) return [field, value]
  const { word, section, key = 'id' } = reference
  const named = (item: unknown) => {
    if (typeof item !== 'object' || item === null) return refer(section, item as Id | null) // a list of ids
    const { id, ...rest } = item as { id: Id } // a share
    return { [key]: refer(section, id), ...rest }
  }
  return [word, Array.isArray(value) ? value.map(named) : named(value ?? null)]
}

/** All columns of a row as fields of a document's entry. */
export function entryInWords(row: object, refer: Refer): Record<string, unknown> {
  return Object.fromEntries(Object.entries(row).map(([field, value]) => inWords(field, value, refer)))
}

/** Changes in the terms of documents. Changes of lists have the items added and removed. */
export function changesInWords(changes: readonly FieldChange[], refer: Refer): FieldChange[] {
  return changes.map(change => {
    const [field, from] = inWords(change.field, change.from, refer)
    const [, to] = inWords(change.field, change.to, refer)
    if (!Array.isArray(from ?? []) || !Array.isArray(to ?? [])) return { field, from, to }
    if (!Array.isArray(from) && !Array.isArray(to)) return { field, from, to }
    return { field, from, to, added: without(to, from), removed: without(from, to) }
  })
}

function without(list: unknown, other: unknown): unknown[] {
  const others = new Set(Array.isArray(other) ? other.map(item => JSON.stringify(item)) : [])
  return Array.isArray(list) ? list.filter(item => !others.has(JSON.stringify(item))) : []
}
