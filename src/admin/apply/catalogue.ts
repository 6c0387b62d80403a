import { type Kysely, sql } from 'kysely'
import type { Database } from '../../db/tables.js'
import type { Fault, Loc } from '../../errors.js'
import { canonicalUuid } from '../../schema/vocabulary.js'
import { NOUN, type OrganisationDocument, type Reference, SECTIONS, type SectionName } from '../document.js'

export type Id = number | string

/** A row as the database has it: all columns of a small table, id, name and fate of a tool or agent. */
export type StoredRow = Readonly<Record<string, unknown>> & { id: Id }

/** An entry of the document and the row it stands for. `stored` undefined: the row is to be made with this id. */
export interface Matched {
  entry: Readonly<Record<string, unknown>>
  loc: Loc
  id: Id
  stored: StoredRow | undefined
}

/** What the lists of a document are in the database. */
export interface Table {
  table: keyof Database
  /** The column by which text refers to a row. */
  named: 'name' | 'email' | 'id'
  /** How the database makes ids; null when the document gives them. */
  ids: 'sequence' | 'uuid' | null
  uniqueNames: boolean
}

export const TABLES: Readonly<Record<SectionName, Table>> = {
  users: { table: 'user_account', named: 'email', ids: 'uuid', uniqueNames: true },
  groups: { table: 'user_group', named: 'name', ids: 'sequence', uniqueNames: true },
  labels: { table: 'label', named: 'name', ids: 'sequence', uniqueNames: true },
  oauth_configs: { table: 'oauth_config', named: 'name', ids: 'sequence', uniqueNames: true },
  mcp_servers: { table: 'mcp_server', named: 'name', ids: 'sequence', uniqueNames: true },
  cc_pairs: { table: 'cc_pair', named: 'name', ids: 'sequence', uniqueNames: true },
  federated_connectors: { table: 'federated_connector', named: 'name', ids: 'sequence', uniqueNames: true },
  document_sets: { table: 'document_set', named: 'name', ids: 'sequence', uniqueNames: true },
  user_files: { table: 'user_file', named: 'id', ids: null, uniqueNames: true },
  tools: { table: 'tool', named: 'name', ids: 'sequence', uniqueNames: false },
  agents: { table: 'persona', named: 'name', ids: 'sequence', uniqueNames: false },
}

/** The document matched with the database: which row each entry is, and which row each reference means. */
export class Catalogue {
  readonly faults: Fault[] = []
  readonly #matched = new Map<SectionName, Matched[]>()
  readonly #names = new Map<SectionName, Map<string, Id[]>>()
  readonly #ids = new Map<SectionName, Set<Id>>()

  /** `asNew`: an entry of tools or agents without an id is new, whatever its name. */
  constructor(
    readonly stored: ReadonlyMap<SectionName, readonly StoredRow[]>,
    readonly asNew: boolean,
  ) {}

  /** The entries of one list with their rows, in the document's order. */
  entries(section: SectionName): readonly Matched[] {
    return this.#matched.get(section) ?? []
  }

  /** The rows of one list that no entry of the document names. */
  unnamed(section: SectionName): StoredRow[] {
    const named = new Set(this.entries(section).map(({ id }) => id))
    return (this.stored.get(section) ?? []).filter(row => !named.has(row.id))
  }

  /** The id that a reference means. Notes a fault and answers null when it means nothing, or more than one row. */
  resolve(section: SectionName, reference: unknown, loc: Loc): Id | null {
    const { ids, named } = TABLES[section]
    const noun = NOUN[section]
    const byId =
      typeof reference === 'number' ? reference : ids === 'uuid' ? canonicalUuid(String(reference)) : undefined
    if (typeof reference !== 'string' && typeof reference !== 'number') {
      return this.#fault(loc, `${noun} should be named by text, or by its id`, 'reference_type')
    }
    if (byId !== undefined && this.#ids.get(section)?.has(byId)) return byId
    const found = typeof reference === 'string' ? (this.#names.get(section)?.get(folded(named, reference)) ?? []) : []
    if (found.length > 1)
      return this.#fault(loc, `${noun} "${reference}" is the name of several: give the id`, 'ambiguous')
    return found[0] ?? this.#fault(loc, `${noun} ${JSON.stringify(reference)} not found`, 'not_found')
  }

  /** The ids of a list of references, each once, in ascending order. */
  resolveAll(section: SectionName, references: readonly Reference[], loc: Loc): Id[] {
    const ids = references.map((reference, index) => this.resolve(section, reference, [...loc, index]))
    return ascending(ids.filter(id => id !== null))
  }

  /** Matches one list with the stored rows. `reserve` makes as many new ids as are missing. */
  async match(section: SectionName, entries: readonly object[], reserve: Reserve): Promise<void> {
    const { named } = TABLES[section]
    const stored = this.stored.get(section) ?? []
    const byId = new Map(stored.map(row => [row.id, row]))
    const byName = new Map<string, StoredRow[]>()
    for (const row of stored) {
      if (row.deleted === true) continue
      const name = folded(named, String(row[named]))
      byName.set(name, [...(byName.get(name) ?? []), row])
    }
    const found = entries.map((entry, index) => this.#matchOne(section, { ...entry }, [section, index], byId, byName))
    const newIds = await reserve(section, found)
    const matched = found.map(match => ({ ...match, id: match.id ?? newIds.shift() ?? 0 }))
    this.#matched.set(section, matched)
    this.#index(section, matched)
  }

  #matchOne(
    section: SectionName,
    entry: Record<string, unknown>,
    loc: Loc,
    byId: ReadonlyMap<Id, StoredRow>,
    byName: ReadonlyMap<string, StoredRow[]>,
  ): Omit<Matched, 'id'> & { id: Id | undefined } {
    const { named, ids, uniqueNames } = TABLES[section]
    const given =
      ids !== 'sequence' && typeof entry.id === 'string'
        ? (canonicalUuid(entry.id) ?? entry.id)
        : (entry.id as Id | undefined) // checked by the schema
    const namesakes = byName.get(folded(named, String(entry[named]))) ?? []
    if (given !== undefined) {
      const stored = byId.get(given)
      if (stored === undefined && Number(given) > NEW_ID_MAX) {
        this.#fault(
          [...loc, 'id'],
          `a new id must be at most ${NEW_ID_MAX}: ids made later go on behind it`,
          'less_than_equal',
        )
      }
      if (uniqueNames && namesakes.some(row => row.id !== given)) {
        const other = `the ${NOUN[section]} with this ${named} has the id ${String(namesakes[0]?.id)}`
        this.#fault([...loc, named], `${other}: leave the id out where that one is meant`, 'name_taken')
      }
      return { entry, loc, id: given, stored }
    }
    if (this.asNew && !uniqueNames) return { entry, loc, id: undefined, stored: undefined }
    if (namesakes.length > 1) this.#fault([...loc, named], 'several have this name: give the id', 'ambiguous')
    return { entry, loc, id: namesakes[0]?.id, stored: namesakes[0] }
  }

  #index(section: SectionName, matched: readonly Matched[]): void {
    const { named, uniqueNames } = TABLES[section]
    const indexed = new Map<Id, number>()
    const indexedNames = new Map<string, boolean>()
    for (const [index, { id, entry, loc }] of matched.entries()) {
      const name = folded(named, String(entry[named]))
      const bothHaveIds = entry.id !== undefined && indexedNames.get(name) === true
      if (indexed.has(id)) this.#fault(loc, `stands for the same as ${section}[${indexed.get(id)}]`, 'duplicate')
      else if (indexedNames.has(name) && (uniqueNames || !bothHaveIds)) {
        this.#fault([...loc, named], 'another entry has this name: give both their ids, or other names', 'duplicate')
      }
      indexed.set(id, index)
      indexedNames.set(name, entry.id !== undefined)
    }
    const rest = this.unnamed(section)
    this.#ids.set(section, new Set([...rest.map(row => row.id), ...matched.map(({ id }) => id)]))
    const names = new Map<string, Id[]>()
    const add = (name: unknown, id: Id) => {
      const key = folded(named, String(name))
      names.set(key, [...(names.get(key) ?? []), id])
    }
    for (const row of rest) if (row.deleted !== true) add(row[named], row.id)
    for (const { entry, id } of matched) add(entry[named], id)
    this.#names.set(section, names)
  }

  #fault(loc: Loc, msg: string, type: string): null {
    this.faults.push({ loc, msg, type })
    return null
  }
}

/** Ids are int4, and each sequence goes on behind the largest: behind these nearly none would be left. */
const NEW_ID_MAX = 2_146_483_647

/** Makes ids for the entries that have none. */
export type Reserve = (section: SectionName, found: readonly { id: Id | undefined }[]) => Promise<Id[]>

/** Ids from the database: its sequences, moved behind every explicit id first so that none is given twice. */
export function reserveInDatabase(db: Kysely<Database>): Reserve {
  return async (section, found) => {
    const { table, ids } = TABLES[section]
    const missing = found.filter(({ id }) => id === undefined).length
    if (ids === 'uuid' || ids === null) return Array.from({ length: missing }, () => crypto.randomUUID())
    const explicit = found.map(({ id }) => Number(id ?? 0))
    await moveSequence(db, table, Math.max(0, ...explicit))
    if (missing === 0) return []
    const { rows } = await sql<{ id: number }>`
      select nextval(pg_get_serial_sequence(${table}, 'id'))::integer as id from generate_series(1, ${missing}::integer)
    `.execute(db)
    return rows.map(row => row.id)
  }
}

/** Ids for a plan, which makes nothing: the lowest there are, so that no row has them, and hardly any other number is one. */
export function reserveForPlan(): Reserve {
  let next = -2_147_483_648
  return async (_, found) => found.filter(({ id }) => id === undefined).map(() => next++)
}

/** Ids for rows that are stored and rolled back: as for a plan, of the type that their table has. */
export function reserveForTrial(): Reserve {
  const plan = reserveForPlan()
  return async (section, found) => {
    const ids = await plan(section, found)
    return TABLES[section].ids === 'uuid' ? ids.map(() => crypto.randomUUID()) : ids
  }
}

/** A sequence only ever moves forward: an id once given is never given again. */
async function moveSequence(db: Kysely<Database>, table: string, behind: number): Promise<void> {
  if (behind < 1) return
  await sql`
    select setval(s.name::regclass, ${behind}::integer)
    from (select pg_get_serial_sequence(${table}, 'id') as name) s
    where coalesce(pg_sequence_last_value(s.name::regclass), 0) < ${behind}::integer
  `.execute(db)
}

/** The lists that the entries of each list can refer to. */
const REFERS: Readonly<Record<SectionName, readonly SectionName[]>> = {
  users: [],
  groups: ['users'],
  labels: [],
  oauth_configs: ['users'],
  mcp_servers: ['users'],
  cc_pairs: [],
  federated_connectors: [],
  document_sets: ['users', 'groups', 'cc_pairs', 'federated_connectors'],
  user_files: ['users'],
  tools: ['users', 'oauth_configs', 'mcp_servers'],
  agents: ['users', 'groups', 'tools', 'document_sets', 'labels', 'user_files'],
}

/** Reads the lists that a document has and refers to. Tools and agents by id and name only: they are many and large. */
export async function readCatalogue(
  db: Kysely<Database>,
  document: OrganisationDocument,
  asNew: boolean,
): Promise<Catalogue> {
  const named = SECTIONS.filter(section => document[section] !== undefined)
  const wanted = new Set(named.flatMap(section => [section, ...REFERS[section]]))
  // One shape for all tables, as the sections differ by name only.
  const loose = db as unknown as Kysely<Record<string, StoredRow>>
  const stored = new Map<SectionName, readonly StoredRow[]>()
  for (const section of wanted) {
    const query = loose.selectFrom(TABLES[section].table as string).orderBy('id')
    const columns = section === 'tools' ? ['id', 'name'] : section === 'agents' ? ['id', 'name', 'deleted'] : null
    const rows = await (columns ? query.select(columns) : query.selectAll()).execute()
    stored.set(section, rows as StoredRow[]) // every one of these tables has an id
  }
  return new Catalogue(stored, asNew)
}

/** Matches every list of the document, in the order in which the lists can refer to each other. */
export async function matchDocument(
  catalogue: Catalogue,
  document: OrganisationDocument,
  reserve: Reserve,
): Promise<void> {
  for (const section of SECTIONS) await catalogue.match(section, document[section] ?? [], reserve)
}

/** The order in which the database lists ids: numbers by size, texts by their UTF-8 bytes. */
export function ascending<T extends Id>(ids: readonly T[]): T[] {
  return [...new Set(ids)].sort((a, b) =>
    typeof a === 'number' && typeof b === 'number'
      ? a - b
      : Buffer.compare(Buffer.from(String(a)), Buffer.from(String(b))),
  )
}

function folded(column: Table['named'], text: string): string {
  if (column === 'id') return canonicalUuid(text) ?? text
  return column === 'email' ? text.toLowerCase() : text
}
