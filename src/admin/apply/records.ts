import { type Kysely, sql, type Transaction } from 'kysely'
import type { Tables } from '../../db/tables.js'
import { recordAccess } from '../../updates/access-events.js'
import type { SectionName } from '../document.js'
import { isErased } from '../people.js'
import { ascending, type Catalogue, type Id, type Matched, type Outcome, type Plan, TABLES } from './catalogue.js'
import { entryInWords, type Refer } from './words.js'

type Row = Record<string, unknown>
type Section = Exclude<SectionName, 'tools' | 'agents'>

/** Rows of another table that belong to a row, and their field in the document. */
interface Link {
  field: string
  table: keyof Tables
  owner: 'user_group_id' | 'document_set_id'
  /** The wanted rows without the owner's column; undefined if the document does not have the field. */
  rows(match: Matched, catalogue: Catalogue, current: readonly Row[]): Row[] | undefined
  /** The rows as fields of the document; by default one field with their values. */
  fields?: (rows: readonly Row[]) => Record<string, unknown[]>
}

interface Shape {
  /** Column values of a new row if the document has none. */
  defaults?: Row
  /** Columns that have the same name and value in the document. */
  columns: readonly string[]
  /** True if the row has an `owner`, which is a user. */
  isOwned?: true
  links?: readonly Link[]
}

const OWNED: Shape = { defaults: { owner_id: null }, columns: ['name'], isOwned: true }

const SHAPES: Record<Section, Shape> = {
  users: {
    defaults: { kind: 'person', active: true, permissions: [] },
    columns: ['email', 'kind', 'active', 'permissions'],
  },
  groups: {
    defaults: { permissions: [] },
    columns: ['name', 'permissions'],
    links: [
      {
        field: 'members',
        table: 'user_group_member',
        owner: 'user_group_id',
        rows: membership,
        fields: rows => ({
          members: rows.filter(row => row.is_manager !== true).map(row => row.user_id),
          managers: rows.filter(row => row.is_manager === true).map(row => row.user_id),
        }),
      },
    ],
  },
  labels: { columns: ['name'] },
  oauth_configs: OWNED,
  mcp_servers: OWNED,
  cc_pairs: { defaults: { source: 'web', access_type: 'private' }, columns: ['name', 'source', 'access_type'] },
  federated_connectors: { defaults: { source: 'federated_slack' }, columns: ['name', 'source'] },
  document_sets: {
    defaults: { description: null, is_public: false, is_up_to_date: true },
    columns: ['name', 'description', 'is_public', 'is_up_to_date'],
    links: [
      linkOf('users', 'document_set_user', 'user_id'),
      linkOf('groups', 'document_set_group', 'user_group_id'),
      linkOf('cc_pairs', 'document_set_cc_pair', 'cc_pair_id'),
      {
        field: 'federated_connectors',
        table: 'document_set_federated_connector',
        owner: 'document_set_id',
        rows: federatedConnectors,
        fields: rows => ({
          federated_connectors: rows.map(row => ({ id: row.federated_connector_id, entities: row.entities })),
        }),
      },
    ],
  },
  user_files: { columns: ['name'], isOwned: true },
}

export const RECORD_SECTIONS = Object.keys(SHAPES) as Section[]

/** The dependent rows that are removed with a row. */
export function linksOf(section: Section): readonly Link[] {
  return SHAPES[section].links ?? []
}

/** Reads the entries of one list, sorted by id (users by email). */
export async function readSection(db: Kysely<Tables>, section: Section, refer: Refer): Promise<object[]> {
  const { columns, isOwned, links = [] } = SHAPES[section]
  const { table, named } = TABLES[section]
  const shown = ['id', ...columns, ...(isOwned ? ['owner_id'] : [])].map(column => sql.ref(column))
  const { rows } = await sql<Row & { id: Id }>`
    select ${sql.join(shown)} from ${sql.table(table)} order by ${sql.ref(named === 'email' ? 'email' : 'id')}`.execute(
    db,
  )
  const withoutNull = (row: Row) =>
    Object.fromEntries(Object.entries(row).filter(([name, value]) => name !== 'name' || value !== null))
  const entries = new Map<Id, Row>(rows.map(row => [row.id, withoutNull(row)]))
  for (const link of links) {
    const linked = await readLinked(db, link, [...entries.keys()])
    for (const [id, current] of linked) Object.assign(entries.get(id) ?? {}, fieldsOf(link, current))
  }
  return [...entries.values()].map(entry => entryInWords(entry, refer))
}

/** Reads the rows of a link by owner, without the owner's column. */
async function readLinked(db: Kysely<Tables>, link: Link, ids: readonly Id[]): Promise<Map<Id, Row[]>> {
  const linked = new Map<Id, Row[]>(ids.map(id => [id, []]))
  const { rows } =
    await sql<Row>`select * from ${sql.table(link.table)} where ${owns(link, ids)} order by 1, 2`.execute(db)
  for (const { [link.owner]: owner, ...row } of rows) linked.get(owner as Id)?.push(row) // the owner's id
  return linked
}

function fieldsOf(link: Link, rows: readonly Row[]): Record<string, unknown[]> {
  return link.fields?.(rows) ?? { [link.field]: rows.flatMap(row => Object.values(row)) }
}

/** Plans the changes of a list without versions. Faults are added to the catalogue. */
export async function planRecords(db: Kysely<Tables>, section: Section, catalogue: Catalogue): Promise<Plan> {
  const { defaults = {} } = SHAPES[section]
  const { table } = TABLES[section]
  const made: Row[] = []
  const changed: { id: Id; columns: Row }[] = []
  const outcomes: Outcome[] = []
  for (const match of catalogue.entries(section)) {
    const { id, name, loc } = match
    const stored: Row = match.stored ?? {}
    const isNew = match.stored === undefined
    const columns = valuesOf(section, match, catalogue)
    const fields = Object.entries(columns)
      .filter(([field, to]) => comparable(canonical(stored[field])) !== comparable(to))
      .map(([field, to]) => ({ field, from: stored[field], to }))
    if (section === 'users' && fields.length > 0 && isErased({ id: String(id), email: String(stored.email) })) {
      catalogue.fault(loc, 'this account was erased and stays as it is', 'erased')
    }
    if (isNew) made.push({ id, ...defaults, ...columns })
    else if (fields.length > 0) changed.push({ id, columns })
    const action = isNew ? 'created' : fields.length > 0 ? 'changed' : 'unchanged'
    outcomes.push({ section, id, name, action, fields })
  }
  const linked = await Promise.all(linksOf(section).map(link => planLink(db, section, link, catalogue, outcomes)))
  return {
    outcomes,
    async store(trx, actor) {
      await insertRows(trx, table, made)
      for (const { id, columns } of changed) {
        const values = Object.entries(columns).map(([column, value]) => sql`${sql.ref(column)} = ${value}`)
        await sql`update ${sql.table(table)} set ${sql.join(values)} where id = ${id}`.execute(trx)
      }
      for (const { link, owners, rows } of linked) {
        await sql`delete from ${sql.table(link.table)} where ${owns(link, owners)}`.execute(trx)
        await insertRows(trx, link.table, rows)
      }
      const kind = TABLES[section].access
      if (kind === undefined) return
      const changes = outcomes.map(({ id, action }) => ({ kind, subject: String(id), action }))
      const effective = changes.filter(({ action }) => action !== 'unchanged')
      await recordAccess(trx, actor, effective)
    },
  }
}

/** Inserts rows with equal columns. */
async function insertRows(trx: Transaction<Tables>, table: keyof Tables, rows: readonly Row[]): Promise<void> {
  const names = sql.join(Object.keys(rows[0] ?? {}).map(name => sql.ref(name)))
  if (rows.length === 0) return
  await sql`
    insert into ${sql.table(table)} (${names}) select ${names}
    from json_populate_recordset(null::${sql.table(table)}, ${JSON.stringify(rows)}::json)`.execute(trx)
}

function owns({ owner }: Link, ids: readonly Id[]) {
  return sql`${sql.ref(owner)} = any(${ids}::integer[])`
}

function valuesOf(section: Section, { entry, loc }: Matched, catalogue: Catalogue): Row {
  const { columns, isOwned } = SHAPES[section]
  const values = Object.fromEntries(columns.map(column => [column, canonical(entry[column])]))
  if (isOwned && entry.owner !== undefined) {
    values.owner_id = entry.owner === null ? null : catalogue.resolve('users', entry.owner, [...loc, 'owner'])
  }
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined))
}

/** Lists of words are sets: their order has no meaning. */
function canonical(value: unknown): unknown {
  return Array.isArray(value) ? [...new Set(value)].sort() : value
}

/** Finds the owners whose linked rows change, with all their wanted rows. Adds the changes to their outcomes. */
async function planLink(
  db: Kysely<Tables>,
  section: Section,
  link: Link,
  catalogue: Catalogue,
  outcomes: readonly Outcome[],
): Promise<{ link: Link; owners: Id[]; rows: Row[] }> {
  const ids = catalogue.entries(section).map(({ id }) => id)
  const currentOf = await readLinked(db, link, ids)
  const plan: { link: Link; owners: Id[]; rows: Row[] } = { link, owners: [], rows: [] }
  for (const [index, match] of catalogue.entries(section).entries()) {
    const current = currentOf.get(match.id) ?? []
    const wanted = link.rows(match, catalogue, current)
    const existing = new Set(current.map(comparable))
    const isOther = wanted?.length !== current.length || !wanted.every(row => existing.has(comparable(row)))
    const outcome = outcomes[index]
    if (wanted === undefined || outcome === undefined || !isOther) continue
    plan.owners.push(match.id)
    plan.rows.push(...wanted.map(row => ({ [link.owner]: match.id, ...row })))
    if (outcome.action !== 'created') outcome.action = 'changed'
    const from = fieldsOf(link, current)
    for (const [field, list] of Object.entries(fieldsOf(link, wanted))) {
      if (inOrder(from[field]) !== inOrder(list)) outcome.fields.push({ field, from: from[field], to: list })
    }
  }
  return plan
}

/** A list as text, independent of its order. */
function inOrder(items: readonly unknown[] = []): string {
  return items.map(comparable).sort().join()
}

function linkOf(field: 'users' | 'groups' | 'cc_pairs', table: keyof Tables, column: string): Link {
  return {
    field,
    table,
    owner: 'document_set_id',
    rows: ({ entry: { [field]: list }, loc }, catalogue) =>
      Array.isArray(list)
        ? catalogue.resolveAll(field, list, [...loc, field]).map(id => ({ [column]: id }))
        : undefined,
  }
}

/** The members of a group; managers are members with a flag. A list that the document omits stays unchanged. */
function membership({ entry, loc }: Matched, catalogue: Catalogue, current: readonly Row[]): Row[] | undefined {
  if (!Array.isArray(entry.members) && !Array.isArray(entry.managers)) return undefined
  const listed = (field: 'members' | 'managers', isManager: boolean): Id[] => {
    const list = entry[field]
    if (Array.isArray(list)) return catalogue.resolveAll('users', list, [...loc, field])
    return current.filter(row => row.is_manager === isManager).map(row => row.user_id as Id) // the user's id
  }
  const managing = new Set(listed('managers', true))
  const all = ascending([...listed('members', false), ...managing])
  return all.map(id => ({ user_id: id, is_manager: managing.has(id) }))
}

function federatedConnectors({ entry, loc }: Matched, catalogue: Catalogue): Row[] | undefined {
  const list = entry.federated_connectors as { connector: unknown; entities: unknown }[] | undefined // it passed the document's schema
  const entities = new Map<Id, unknown>()
  for (const [index, item] of list?.entries() ?? []) {
    const at = [...loc, 'federated_connectors', index, 'connector']
    const id = catalogue.resolve('federated_connectors', item.connector, at)
    if (id !== null) entities.set(id, item.entities)
  }
  return list && [...entities].map(([id, value]) => ({ federated_connector_id: id, entities: value }))
}

/** A value as text that does not depend on the order of its keys. */
function comparable(value: unknown): string {
  return JSON.stringify(value, (_, part: unknown) =>
    typeof part === 'object' && part !== null && !Array.isArray(part)
      ? Object.fromEntries(Object.entries(part).sort(([a], [b]) => (a < b ? -1 : 1)))
      : part,
  )
}
