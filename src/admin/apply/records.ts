import { isDeepStrictEqual } from 'node:util'
import { type Kysely, sql, type Transaction } from 'kysely'
import type { Tables } from '../../db/tables.js'
import { recordAccess } from '../access-events.js'
import type { SectionName } from '../document.js'
import { isEmail, isErased } from '../people.js'
import { type Catalogue, type Id, type Matched, type Outcome, outcomeOf, type Plan, TABLES } from './catalogue.js'
import { entryInWords, type Refer, valueIn } from './words.js'

type Row = Record<string, unknown>
type Section = Exclude<SectionName, 'tools' | 'agents'>

/** A table of links, for example between groups and users. In a document, each record contains its links as lists. */
interface Link {
  table: keyof Tables
  owner: 'user_group_id' | 'document_set_id'
  lists(rows: readonly Row[]): Record<string, unknown[]>
  /** Converts the lists of a record to rows of the table, without the `owner` column. */
  rows(record: Row): Row[]
}

interface Shape {
  /** The initial value of each column in a new row. */
  columns: Row
  links?: readonly Link[]
}

const SHAPES: Record<Section, Shape> = {
  users: { columns: { email: '', kind: 'person', active: true, permissions: [] } },
  groups: {
    columns: { name: '', permissions: [] },
    links: [
      {
        table: 'user_group_member',
        owner: 'user_group_id',
        lists: rows => ({
          members: rows.filter(row => row.is_manager !== true).map(row => row.user_id),
          managers: rows.filter(row => row.is_manager === true).map(row => row.user_id),
        }),
        rows: ({ members, managers }) => {
          const managing = new Set(managers as Id[])
          const others = (members as Id[]).filter(id => !managing.has(id))
          const rowOf = (is_manager: boolean) => (user_id: Id) => ({ user_id, is_manager })
          return [...others.map(rowOf(false)), ...[...managing].map(rowOf(true))]
        },
      },
    ],
  },
  labels: { columns: { name: '' } },
  oauth_configs: { columns: { name: '', owner_id: null } },
  mcp_servers: { columns: { name: '', owner_id: null } },
  cc_pairs: { columns: { name: '', source: 'web', access_type: 'private' } },
  federated_connectors: { columns: { name: '', source: 'federated_slack' } },
  document_sets: {
    columns: { name: '', description: null, is_public: false, is_up_to_date: true },
    links: [
      linkOf('users', 'document_set_user', 'user_id'),
      linkOf('groups', 'document_set_group', 'user_group_id'),
      linkOf('cc_pairs', 'document_set_cc_pair', 'cc_pair_id'),
      {
        table: 'document_set_federated_connector',
        owner: 'document_set_id',
        lists: rows => ({
          federated_connectors: rows.map(row => ({ id: row.federated_connector_id, entities: row.entities })),
        }),
        rows: ({ federated_connectors: list }) =>
          (list as Row[]).map(({ id, entities }) => ({ federated_connector_id: id, entities })),
      },
    ],
  },
  user_files: { columns: { name: '', owner_id: null } },
}

function linkOf(field: string, table: keyof Tables, column: string): Link {
  return {
    table,
    owner: 'document_set_id',
    lists: rows => ({ [field]: rows.map(row => row[column]) }),
    rows: record => (record[field] as Id[]).map(id => ({ [column]: id })),
  }
}

export const RECORD_SECTIONS = Object.keys(SHAPES) as Section[]

/** Returns the link tables of a list. `removeRow` also deletes the links of a row from these tables. */
export function linksOf(section: Section): readonly Link[] {
  return SHAPES[section].links ?? []
}

/** Reads the rows of one list with their links. Sorts users by email, and other rows by id. */
async function readRecords(db: Kysely<Tables>, section: Section): Promise<Map<Id, Row>> {
  const { table, named } = TABLES[section]
  const columns = sql.join(['id', ...Object.keys(SHAPES[section].columns)].map(column => sql.ref(column)))
  const { rows } = await sql<Row & { id: Id }>`
    select ${columns} from ${sql.table(table)} order by ${sql.ref(named === 'email' ? named : 'id')}`.execute(db)
  const records = new Map<Id, Row>(rows.map(row => [row.id, row]))
  for (const { table, owner, lists } of linksOf(section)) {
    const linked = new Map<Id, Row[]>(rows.map(({ id }) => [id, []]))
    const found = await sql<Row>`select * from ${sql.table(table)} order by 1, 2`.execute(db)
    for (const row of found.rows) linked.get(row[owner] as Id)?.push(row) // the column contains ids
    for (const [id, rows] of linked) Object.assign(records.get(id) ?? {}, lists(rows))
  }
  return records
}

/** Reads the rows of one list as entries of a document. */
export async function readSection(db: Kysely<Tables>, section: Section, refer: Refer): Promise<object[]> {
  const records = [...(await readRecords(db, section)).values()]
  return records.map(({ name, ...others }) => entryInWords({ ...others, ...(name != null && { name }) }, refer))
}

/** Plans the changes to a list other than agents and tools. Adds faults to the catalogue. */
export async function planRecords(db: Kysely<Tables>, section: Section, catalogue: Catalogue): Promise<Plan> {
  const matches = catalogue.entries(section)
  const stored = matches.length > 0 ? await readRecords(db, section) : new Map<Id, Row>()
  const { columns } = SHAPES[section]
  const blank = Object.assign({ ...columns }, ...linksOf(section).map(link => link.lists([])))
  const changed: { record: Row; outcome: Outcome }[] = []
  const outcomes = matches.map((match): Outcome => {
    const { id, loc } = match
    const before: Row = stored.get(id) ?? blank
    const record = mergedRecord(section, before, match, catalogue)
    const fields = Object.entries(record)
      .filter(([field, to]) => !isDeepStrictEqual(before[field], to))
      .map(([field, to]) => ({ field, from: before[field], to }))
    if (section === 'users' && fields.length > 0 && isErased({ id: String(id), email: String(before.email) })) {
      catalogue.fault(loc, 'this account was erased and cannot be changed: remove this entry', 'erased')
    }
    if (fields.some(({ field, to }) => field === 'email' && !isEmail(String(to)))) {
      catalogue.fault([...loc, 'email'], 'must be an email address such as alice@example.com', 'email_invalid')
    }
    const outcome = outcomeOf(section, match, fields)
    if (outcome.action !== 'unchanged') changed.push({ record: { ...record, id }, outcome })
    return outcome
  })
  return {
    outcomes,
    async store(trx, actor) {
      const { table, access: kind } = TABLES[section]
      const names = ['id', ...Object.keys(columns)]
      const values = names.map(name => sql`${sql.ref(name)} = excluded.${sql.ref(name)}`)
      const upsert = sql` on conflict (id) do update set ${sql.join(values)}`
      const rows = changed.map(({ record }) => Object.fromEntries(names.map(name => [name, record[name]])))
      await insertRows(trx, table, rows, upsert)
      for (const { table, owner, lists, rows } of linksOf(section)) {
        const isTouched = ({ field }: { field: string }) => field in lists([])
        const touched = changed.filter(({ outcome }) => outcome.fields.some(isTouched))
        const owners = touched.map(({ record }) => record.id)
        await sql`delete from ${sql.table(table)} where ${sql.ref(owner)} = any(${owners}::integer[])`.execute(trx)
        const linked = touched.flatMap(({ record }) => rows(record).map(row => ({ [owner]: record.id, ...row })))
        await insertRows(trx, table, linked)
      }
      if (kind === undefined) return
      const events = changed.map(({ outcome: { id, action } }) => ({ kind, subject: String(id), action }))
      await recordAccess(trx, actor, events)
    },
  }
}

function mergedRecord(section: Section, before: Row, match: Matched, catalogue: Catalogue): Row {
  const record = { ...before }
  for (const field of Object.keys(before).filter(field => field !== 'id')) {
    const value = valueIn(match, field, catalogue)
    if (value === undefined) continue
    record[field] = field === 'permissions' ? [...new Set(value as string[])].sort() : value // the order has no meaning
  }
  return Object.assign(record, ...linksOf(section).map(({ lists, rows }) => lists(rows(record))))
}

async function insertRows(
  trx: Transaction<Tables>,
  table: keyof Tables,
  rows: readonly Row[],
  onConflict = sql``,
): Promise<void> {
  if (rows.length === 0) return
  const names = sql.join(Object.keys(rows[0] ?? {}).map(name => sql.ref(name)))
  await sql`
    insert into ${sql.table(table)} (${names}) select ${names}
    from json_populate_recordset(null::${sql.table(table)}, ${JSON.stringify(rows)}::json)${onConflict}`.execute(trx)
}
