import { type Kysely, sql } from 'kysely'
import type { Tables } from '../../db/tables.js'
import { compareIds, RELATIONS } from '../../persona/fields.js'
import type { Change } from '../../updates/resource.js'
import type { SectionName } from '../document.js'
import { type Catalogue, type Id, type Matched, SECTIONS, TABLES } from './catalogue.js'

/* Converts column names and row ids to the field names and references of documents, and back. */

/** Returns a reference to a row: its name or email if unique, otherwise an object with its id. Returns an unknown id unchanged. */
export type Refer = (section: SectionName, id: Id | null) => unknown

/** Reads all names that references can contain. Returns a function that makes references. */
export async function readReferences(db: Kysely<Tables>): Promise<Refer> {
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
    if (name === undefined) return id
    return name !== null && counts.get(`${section} ${name}`) === 1 ? name : { id, ...(name !== null && { name }) }
  }
}

/**
 * The field `word` of an entry contains references to the list `section`. If the field contains objects, the reference is in their property
 * `key`.
 */
interface Reference {
  word: string
  section: SectionName
  key?: string | undefined
  isShare?: true | undefined
}

const REFERENCES: Readonly<Record<string, Reference>> = {
  owner_id: { word: 'owner', section: 'users' },
  user_id: { word: 'owner', section: 'users' },
  mcp_server_id: { word: 'mcp_server', section: 'mcp_servers' },
  oauth_config_id: { word: 'oauth_config', section: 'oauth_configs' },
  members: { word: 'members', section: 'users' },
  managers: { word: 'managers', section: 'users' },
  cc_pairs: { word: 'cc_pairs', section: 'cc_pairs' },
  federated_connectors: { word: 'federated_connectors', section: 'federated_connectors', key: 'connector' },
  ...Object.fromEntries(
    RELATIONS.map(([relation, { link }]) => {
      const { section, key, isShare } = link
      return [relation, { word: section, section, key, isShare }]
    }),
  ),
}

/** Returns an entry's value for a column or list, with ids in place of references. Returns undefined if the entry omits the field. */
export function valueIn({ entry, loc }: Matched, field: string, catalogue: Catalogue): unknown {
  const { word, section, key, isShare } = REFERENCES[field] ?? { word: field }
  const given = entry[word]
  if (section === undefined || given === undefined || given === null) return given
  if (!Array.isArray(given)) return catalogue.resolve(section, given, [...loc, word])
  const found = given.map((item, index) => {
    const at = [...loc, word, index]
    // A document set lists users and groups directly. An agent lists them as shares, which are objects.
    if (key === undefined || !Object.hasOwn(Object(item), key))
      return [catalogue.resolve(section, item, at), undefined] as const
    const { [key]: named, ...rest } = item
    const id = catalogue.resolve(section, named, [...at, key])
    return [id, { id, ...(isShare && { level: 'viewer' }), ...rest }] as const
  })
  const distinct = [...new Map(found)].sort(([a], [b]) => compareIds(a ?? 0, b ?? 0))
  return distinct.map(([id, record]) => record ?? id)
}

/** Returns the name and value of a column as a document shows them. */
function inWords(field: string, value: unknown, refer: Refer): [word: string, value: unknown] {
  const { word, section, key = 'id' } = REFERENCES[field] ?? { word: field }
  if (section === undefined) return [word, value]
  const named = (item: unknown) => {
    if (typeof item !== 'object' || item === null) return refer(section, item as Id | null) // either an id or null
    const { id, ...rest } = item as { id: Id } // for example, a share
    return { [key]: refer(section, id), ...rest }
  }
  return [word, Array.isArray(value) ? value.map(named) : named(value ?? null)]
}

/** Returns all columns of a row as fields of an entry. */
export function entryInWords(row: object, refer: Refer): Record<string, unknown> {
  return Object.fromEntries(Object.entries(row).map(([field, value]) => inWords(field, value, refer)))
}

/** Returns the changes with field names and references as in documents. */
export function changesInWords(changes: readonly Change[], refer: Refer): Change[] {
  return changes.map(change => {
    const [field, from] = inWords(change.field, change.from, refer)
    return { field, from, to: inWords(change.field, change.to, refer)[1] }
  })
}
