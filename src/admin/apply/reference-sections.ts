import type { Kysely } from 'kysely'
import type { Database } from '../../db/tables.js'
import { type AccessChange, type AccessKind, recordAccess } from '../../updates/access-events.js'
import type { SectionName } from '../document.js'
import { isErased } from '../people.js'
import { batches } from './batches.js'
import { ascending, type Catalogue, type Id, type Matched, TABLES } from './catalogue.js'
import type { Outcome } from './report.js'
import type { Plan } from './step.js'

type Row = Record<string, unknown>
/** The tables of this file have no types in common: they are named by the lists below. */
type Loose = Kysely<Record<string, Row>>

type Section = Exclude<SectionName, 'tools' | 'agents'>

interface Link {
  /** The field of the document. */
  field: string
  table: keyof Database
  owner: string
  /** Names the field's rows without the owner's column; undefined where the document leaves the field as it is. */
  rows(match: Matched, catalogue: Catalogue, current: readonly Row[]): Row[] | undefined
}

interface Shape {
  /** What a new row has where the document is silent. */
  defaults: Row
  /** Columns that the document names as they are. */
  columns: readonly string[]
  references?: Readonly<Record<string, { column: string; section: SectionName }>>
  links?: readonly Link[]
}

const SHAPES: Record<Section, Shape> = {
  users: {
    defaults: { kind: 'person', active: true, permissions: [] },
    columns: ['email', 'kind', 'active', 'permissions'],
  },
  groups: {
    defaults: { permissions: [] },
    columns: ['name', 'permissions'],
    links: [{ field: 'members', table: 'user_group_member', owner: 'user_group_id', rows: membership }],
  },
  labels: { defaults: {}, columns: ['name'] },
  oauth_configs: {
    defaults: { owner_id: null },
    columns: ['name'],
    references: { owner: { column: 'owner_id', section: 'users' } },
  },
  mcp_servers: {
    defaults: { owner_id: null },
    columns: ['name'],
    references: { owner: { column: 'owner_id', section: 'users' } },
  },
  cc_pairs: { defaults: { source: 'web', access_type: 'private' }, columns: ['name', 'source', 'access_type'] },
  federated_connectors: { defaults: { source: 'federated_slack' }, columns: ['name', 'source'] },
  document_sets: {
    defaults: { description: null, is_public: false, is_up_to_date: true },
    columns: ['name', 'description', 'is_public', 'is_up_to_date'],
    links: [
      simpleLink('users', 'document_set_user', 'user_id', 'users'),
      simpleLink('groups', 'document_set_group', 'user_group_id', 'groups'),
      simpleLink('cc_pairs', 'document_set_cc_pair', 'cc_pair_id', 'cc_pairs'),
      {
        field: 'federated_connectors',
        table: 'document_set_federated_connector',
        owner: 'document_set_id',
        rows: federatedConnectors,
      },
    ],
  },
  user_files: {
    defaults: {},
    columns: ['name'],
    references: { owner: { column: 'owner_id', section: 'users' } },
  },
}

export const REFERENCE_SECTIONS = Object.keys(SHAPES) as Section[]

/** The rows of one list by id, with the columns and references that a document names. */
export async function readSection(db: Kysely<Database>, section: Section): Promise<object[]> {
  const { columns, references = {} } = SHAPES[section]
  const owned = Object.entries(references).map(([field, { column }]) => `${column} as ${field}`)
  const loose = db as unknown as Loose
  return await loose
    .selectFrom(TABLES[section].table)
    .select(['id', ...columns, ...owned])
    .orderBy('id')
    .execute()
}

/** Decides what becomes of one list of rows that have no versions. Notes faults in the catalogue. */
export async function planReferenceSections(
  db: Kysely<Database>,
  section: Section,
  catalogue: Catalogue,
): Promise<Plan> {
  const shape = SHAPES[section]
  const { table } = TABLES[section]
  const made: Row[] = []
  const changed: { id: Id; columns: Row }[] = []
  const outcomes: Outcome[] = []
  for (const match of catalogue.entries(section)) {
    const values = valuesOf(match, shape, catalogue)
    const fields = differences(match.stored ?? {}, values)
    if (fields.length > 0 && isErasedUser(section, match)) {
      catalogue.faults.push({ loc: match.loc, msg: 'this account was erased and stays as it is', type: 'erased' })
    }
    if (match.stored === undefined) made.push({ id: match.id, ...shape.defaults, ...values })
    else if (fields.length > 0) changed.push({ id: match.id, columns: values })
    const action = match.stored === undefined ? 'created' : fields.length > 0 ? 'changed' : 'unchanged'
    outcomes.push({ section, id: match.id, name: String(match.entry.name ?? match.entry.email), action, fields })
  }
  const links = await Promise.all((shape.links ?? []).map(link => planLink(db, section, link, catalogue, outcomes)))
  return {
    outcomes,
    steps: [
      {
        rows: outcomes.filter(({ action }) => action !== 'unchanged').length,
        people: section === 'users' || section === 'groups',
        run: async (executor, actor) => {
          const loose = executor as unknown as Loose
          for (const rows of batches(made)) await loose.insertInto(table).values(rows).execute()
          for (const { id, columns } of changed) {
            await loose.updateTable(table).set(columns).where('id', '=', id).execute()
          }
          for (const write of links) await write(loose)
          await recordAccess(executor, actor, accessChanges(outcomes))
        },
      },
    ],
  }
}

function isErasedUser(section: Section, { stored }: Matched): boolean {
  return section === 'users' && stored !== undefined && isErased({ id: String(stored.id), email: String(stored.email) })
}

/** The lists that decide on access, and the kinds of their events. */
export const ACCESS_KIND: Partial<Record<SectionName, AccessKind>> = {
  users: 'user',
  groups: 'group',
  oauth_configs: 'oauth_config',
  mcp_servers: 'mcp_server',
  document_sets: 'document_set',
  user_files: 'user_file',
}

function accessChanges(outcomes: readonly Outcome[]): AccessChange[] {
  return outcomes.flatMap(({ section, id, action }) => {
    const kind = ACCESS_KIND[section]
    return kind === undefined || action === 'unchanged' ? [] : [{ kind, subject: String(id), action }]
  })
}

function valuesOf({ entry, loc }: Matched, shape: Shape, catalogue: Catalogue): Row {
  const values: Row = {}
  for (const column of shape.columns) if (entry[column] !== undefined) values[column] = canonical(entry[column])
  for (const [field, { column, section }] of Object.entries(shape.references ?? {})) {
    const reference = entry[field]
    if (reference === undefined) continue
    values[column] = reference === null ? null : catalogue.resolve(section, reference, [...loc, field])
  }
  return values
}

function differences(before: Row, after: Row): Outcome['fields'] {
  return Object.entries(after)
    .filter(([field, to]) => !same(canonical(before[field]), to))
    .map(([field, to]) => ({ field, from: before[field], to }))
}

/** Lists of words are sets here: their order says nothing. */
function canonical(value: unknown): unknown {
  return Array.isArray(value) ? [...new Set(value)].sort() : value
}

async function planLink(
  db: Kysely<Database>,
  section: Section,
  link: Link,
  catalogue: Catalogue,
  outcomes: Outcome[],
): Promise<(loose: Loose) => Promise<void>> {
  const stored = await (db as unknown as Loose).selectFrom(link.table).selectAll().execute()
  const currentOf = new Map<Id, Row[]>()
  for (const row of stored) {
    const owner = row[link.owner] as Id // the key of its table
    currentOf.set(owner, [...(currentOf.get(owner) ?? []), row])
  }
  const removed: Row[] = []
  const added: Row[] = []
  for (const [index, match] of catalogue.entries(section).entries()) {
    const current = currentOf.get(match.id) ?? []
    const wanted = link.rows(match, catalogue, current)?.map(row => ({ [link.owner]: match.id, ...row }))
    if (wanted === undefined) continue
    const gone = current.filter(row => !wanted.some(other => sameRow(row, other)))
    const fresh = wanted.filter(row => !current.some(other => sameRow(row, other)))
    removed.push(...gone)
    added.push(...fresh)
    note(outcomes[index], link, current, wanted, gone.length + fresh.length > 0)
  }
  return async loose => {
    for (const row of removed) await deleteRow(loose, link.table, row)
    for (const rows of batches(added)) await loose.insertInto(link.table).values(rows.map(jsonAsText)).execute()
  }
}

function note(
  outcome: Outcome | undefined,
  link: Link,
  from: readonly Row[],
  to: readonly Row[],
  differs: boolean,
): void {
  if (outcome === undefined || !differs) return
  if (outcome.action !== 'created') outcome.action = 'changed'
  const shown = (rows: readonly Row[]) => rows.map(({ [link.owner]: _, ...rest }) => plain(rest))
  outcome.fields.push({ field: link.field, from: shown(from), to: shown(to) })
}

/** A link of one column is that column's value. */
function plain(row: Row): unknown {
  const values = Object.values(row)
  return values.length === 1 ? values[0] : row
}

async function deleteRow(loose: Loose, table: string, row: Row): Promise<void> {
  let query = loose.deleteFrom(table)
  for (const [column, value] of Object.entries(row)) {
    if (column.endsWith('_id')) query = query.where(column, '=', value)
  }
  await query.execute()
}

function simpleLink(field: string, table: keyof Database, column: string, target: SectionName): Link {
  return {
    field,
    table,
    owner: 'document_set_id',
    rows: ({ entry, loc }, catalogue) => {
      const list = entry[field]
      if (!Array.isArray(list)) return undefined
      return catalogue.resolveAll(target, list, [...loc, field]).map(id => ({ [column]: id }))
    },
  }
}

/** Managers are members with a flag; each of the two lists leaves the other as it is. */
function membership({ entry, loc }: Matched, catalogue: Catalogue, current: readonly Row[]): Row[] | undefined {
  const { members, managers } = entry
  if (!Array.isArray(members) && !Array.isArray(managers)) return undefined
  const listed = (field: 'members' | 'managers', isManager: boolean): Id[] => {
    const list = entry[field]
    if (Array.isArray(list)) return catalogue.resolveAll('users', list, [...loc, field])
    return current.filter(row => row.is_manager === isManager).map(row => row.user_id as Id) // its key
  }
  const managing = new Set(listed('managers', true))
  const all = ascending([...listed('members', false), ...managing])
  return all.map(id => ({ user_id: id, is_manager: managing.has(id) }))
}

function federatedConnectors({ entry, loc }: Matched, catalogue: Catalogue): Row[] | undefined {
  const list = entry.federated_connectors
  if (!Array.isArray(list)) return undefined
  const entities = new Map<Id, unknown>()
  for (const [index, item] of (list as { connector: unknown; entities: unknown }[]).entries()) {
    // it passed the schema
    const at = [...loc, 'federated_connectors', index, 'connector']
    const id = catalogue.resolve('federated_connectors', item.connector, at)
    if (id !== null) entities.set(id, item.entities)
  }
  return [...entities].map(([id, value]) => ({ federated_connector_id: id, entities: value }))
}

/** pg would write a list into a json column as a PostgreSQL array. */
function jsonAsText(row: Row): Row {
  return 'entities' in row ? { ...row, entities: JSON.stringify(row.entities) } : row
}

function sameRow(a: Row, b: Row): boolean {
  return Object.keys(b).every(column => same(a[column], b[column]))
}

function same(a: unknown, b: unknown): boolean {
  return a === b || JSON.stringify(a) === JSON.stringify(b)
}
