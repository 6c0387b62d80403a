import { randomUUID } from 'node:crypto'
import { type Kysely, sql, type Transaction } from 'kysely'
import type { Tables } from '../../db/tables.js'
import type { Fault, Loc } from '../../errors.js'
import { canonicalUuid } from '../../schema/vocabulary.js'
import type { AccessKind } from '../../updates/access-events.js'
import type { Actor } from '../../updates/audit.js'
import { insertBlank } from '../../updates/new-row.js'
import type { ResourceTypes, VersionedResource } from '../../updates/resource.js'
import type { OrganisationDocument, Reference, SectionName } from '../document.js'
import { Refusal } from '../refusal.js'
import { type Origin, readOrigins } from './origin.js'

export type Id = number | string

/** A row as the database has it: all columns of a small table, id, name and fate of a tool or agent. */
export type StoredRow = Readonly<Record<string, unknown>> & { id: Id }

/** An entry of the document and the row it stands for. `stored` undefined: the row is to be made with this id. */
export interface Matched {
  entry: Readonly<Record<string, unknown>>
  loc: Loc
  id: Id
  /** What the row is called then, by the document or as it is stored. */
  name: string
  stored: StoredRow | undefined
}

/** The ids of the agents or tools that are there. */
export function storedIds(matches: readonly Matched[]): number[] {
  return matches.filter(({ stored }) => stored !== undefined).map(({ id }) => Number(id))
}

/** Throws `Refusal` when a row that the document calls by its name, and not by its id, has another name by now. */
export function requireSameName({ entry, stored }: Matched, now: string): void {
  if (stored === undefined || entry.id !== undefined || now === stored.name) return
  const renamed = `${JSON.stringify(stored.name)} (id ${stored.id}) was renamed to ${JSON.stringify(now)} meanwhile`
  throw new Refusal(`${renamed}; nothing was stored. Call it by its id or by its new name`)
}

/** A field that changes. Of a list also what comes and goes. */
export interface FieldChange {
  field: string
  from: unknown
  to: unknown
  added?: unknown[]
  removed?: unknown[]
}

/** What applying a document did, or would do, with one row. */
export interface Outcome {
  section: SectionName
  id: Id
  name: string
  /** `kept`: pruning would have removed it, but `reason` forbids that. */
  action: 'created' | 'changed' | 'unchanged' | 'removed' | 'kept'
  /** The fields that change, with what they were and become; of a new row what differs from an empty one. Secrets as redactions. */
  fields: FieldChange[]
  /** What a new definition changes for the model that calls the tool. */
  impact?: string[]
  reason?: string
  /** Where secrets go that did not go there; warnings about a definition. */
  notes?: string[]
}

/** What becomes of the rows of some lists, and what stores that. */
export interface Plan {
  outcomes: Outcome[]
  store(trx: Transaction<Tables>, actor: Actor): Promise<void>
}

/** A list of a document in the database: what an entry is called, its table, the column by which text refers to a row. */
export interface Table {
  noun: string
  table: keyof Tables
  named: 'name' | 'email' | 'id'
  /** What makes ids. */
  ids: 'sequence' | 'uuid' | 'document'
  uniqueNames: boolean
  /** The kind of its access events, of lists that decide on access. */
  access: AccessKind | undefined
}

function named(noun: string, table: keyof Tables, access?: AccessKind, uniqueNames = true): Table {
  return { noun, table, named: 'name', ids: 'sequence', uniqueNames, access }
}

/** The lists in the order in which they can refer to each other. */
export const TABLES: Readonly<Record<SectionName, Table>> = {
  users: { noun: 'user', table: 'user_account', named: 'email', ids: 'uuid', uniqueNames: true, access: 'user' },
  groups: named('group', 'user_group', 'group'),
  labels: named('label', 'label'),
  oauth_configs: named('OAuth configuration', 'oauth_config', 'oauth_config'),
  mcp_servers: named('MCP server', 'mcp_server', 'mcp_server'),
  cc_pairs: named('connection', 'cc_pair'),
  federated_connectors: named('federated connector', 'federated_connector'),
  document_sets: named('document set', 'document_set', 'document_set'),
  user_files: { ...named('file', 'user_file', 'user_file'), named: 'id', ids: 'document' },
  tools: named('tool', 'tool', undefined, false),
  agents: named('agent', 'persona', undefined, false),
}

export const SECTIONS = Object.keys(TABLES) as SectionName[] // the keys of this very record

/** Reads all lists and matches the entries of a document with them. Notes faults in the catalogue. */
export async function readCatalogue(db: Kysely<Tables>, document: OrganisationDocument): Promise<Catalogue> {
  const catalogue = new Catalogue()
  for (const section of SECTIONS) {
    const { table, ids } = TABLES[section]
    // Agents and tools by id and name only: they are many and large.
    const columns = section === 'tools' ? sql`id, name` : section === 'agents' ? sql`id, name, deleted` : sql`*`
    const { rows } = await sql<StoredRow>`select ${columns} from ${sql.table(table)} order by id`.execute(db)
    const last = ids === 'sequence' && document[section] !== undefined ? await lastId(db, table) : 0
    const origins = await readOrigins(db, section, TABLES[section], rows, namesIn(document, section))
    catalogue.match(section, rows, document[section] ?? [], last, origins)
  }
  return catalogue
}

/** The names by which a document may mean a row of one list: of its entries, and everything that may be a reference. */
function namesIn(document: OrganisationDocument, section: SectionName): ReadonlySet<string> {
  const names: unknown[] = (document[section] ?? []).map(entry => ('name' in entry ? entry.name : undefined))
  if (section === 'tools')
    names.push(...(document.agents ?? []).flatMap(agent => ('tools' in agent ? agent.tools : [])))
  return new Set(names.filter(name => typeof name === 'string'))
}

/** Ids are int4, and each sequence goes on behind the largest: behind these nearly none would be left. */
const NEW_ID_MAX = 2_146_483_647

async function lastId(db: Kysely<Tables>, table: string): Promise<number> {
  const { rows } = await sql<{ id: number | null }>`
    select pg_sequence_last_value(pg_get_serial_sequence(${table}, 'id')::regclass)::float8 as id`.execute(db)
  return rows[0]?.id ?? 0
}

/** One list, matched. `names` has the ids of a name, as references are compared. */
interface List {
  matched: readonly Matched[]
  unnamed: StoredRow[]
  ids: Set<Id>
  names: Map<string, Id[]>
  /** What is known of the rows of other people that have a name of the document. */
  origins: ReadonlyMap<Id, Origin>
}

/** The document matched with the database: which row each entry is, and which row each reference means. */
export class Catalogue {
  readonly faults: Fault[] = []
  readonly #lists = new Map<SectionName, List>()

  /** The entries of one list with their rows, in the document's order. */
  entries(section: SectionName): readonly Matched[] {
    return this.#lists.get(section)?.matched ?? []
  }

  /** The rows of one list that no entry of the document names. */
  unnamed(section: SectionName): readonly StoredRow[] {
    return this.#lists.get(section)?.unnamed ?? []
  }

  /** The id that a reference means. Notes a fault and answers null when it means nothing, or more than one row. */
  resolve(section: SectionName, given: unknown, loc: Loc): Id | null {
    const { noun, ids } = TABLES[section]
    const list = this.#lists.get(section)
    const reference = typeof given === 'object' && given !== null && 'id' in given ? given.id : given
    if (typeof reference !== 'string' && typeof reference !== 'number') {
      return this.fault(loc, `${noun} should be named by text, or by its id`, 'reference_type')
    }
    const byId = ids === 'uuid' ? canonicalUuid(String(reference)) : reference
    if (byId !== undefined && list?.ids.has(byId)) return byId
    const named = (typeof reference === 'string' && list?.names.get(folded(section, reference))) || []
    // An entry of the document is meant first; a row of somebody else is never meant by its name.
    const operators = named.filter(id => list?.origins.get(id)?.isOperators !== false)
    const isClear = named.length === 1 && operators.length === 1
    const entries = isClear ? [] : named.filter(id => list?.matched.some(match => match.id === id))
    const found = entries.length > 0 ? entries : operators
    if (found.length > 1)
      return this.fault(loc, `${noun} "${reference}" is the name of several: give the id`, 'ambiguous')
    if (found[0] !== undefined) return found[0]
    if (named.length > 0) return this.#foreign(section, named, list?.origins, loc)
    return this.fault(loc, `${noun} ${JSON.stringify(reference)} not found`, 'not_found')
  }

  #foreign(section: SectionName, ids: readonly Id[], origins: List['origins'] | undefined, loc: Loc): null {
    const { noun, uniqueNames } = TABLES[section]
    const rows = ids.map(id => `${noun} ${id}: ${origins?.get(id)?.described}`)
    const other = uniqueNames ? '' : ', or an id that is free to make another'
    const msg = `this name was not given by the operator (${rows.join('; ')}): give the id to mean that row${other}`
    return this.fault(loc, msg, 'name_of_another')
  }

  /** The ids of a list of references, each once, in ascending order. */
  resolveAll(section: SectionName, references: readonly Reference[], loc: Loc): Id[] {
    const ids = references.map((reference, index) => this.resolve(section, reference, [...loc, index]))
    return ascending(ids.filter(id => id !== null))
  }

  /** Matches one list with the stored rows. What is new gets ids behind `lastId`, which `storeInOrder` refuses if others took them meanwhile. */
  match(
    section: SectionName,
    stored: readonly StoredRow[],
    entries: readonly object[],
    lastId: number,
    origins: List['origins'],
  ): void {
    const byId = new Map(stored.map(row => [row.id, row]))
    const byName = grouped(section, stored)
    const found = entries.map((entry, index) =>
      this.#matchOne(section, { ...entry }, [section, index], byId, byName, origins),
    )
    const { ids, named } = TABLES[section]
    let last = Math.max(lastId, ...(ids === 'sequence' ? found.map(({ id }) => Number(id ?? 0)) : []))
    const matched = found.map(match => {
      const id = match.id ?? (ids === 'sequence' ? ++last : randomUUID())
      return { ...match, id, name: String(match.entry[named] ?? match.stored?.[named] ?? '') }
    })
    this.#lists.set(section, { ...this.#index(section, matched, stored), origins })
  }

  #matchOne(
    section: SectionName,
    entry: Record<string, unknown>,
    loc: Loc,
    byId: ReadonlyMap<Id, StoredRow>,
    byName: ReadonlyMap<string, readonly StoredRow[]>,
    origins: List['origins'],
  ): Pick<Matched, 'entry' | 'loc' | 'stored'> & { id: Id | undefined } {
    const { noun, named, ids, uniqueNames } = TABLES[section]
    const name = entry[named]
    const namesakes = name === undefined ? [] : (byName.get(folded(section, String(name))) ?? [])
    if (entry.id === undefined) {
      if (name === undefined) this.fault([...loc, named], 'Field required', 'missing')
      const meant = this.#adoptable(namesakes, entry, loc, origins)
      if (meant.length > 1) this.fault([...loc, named], 'several have this name: give the id', 'ambiguous')
      else if (meant.length === 0 && namesakes.length > 0) {
        const ids = namesakes.map(row => row.id)
        this.#foreign(section, ids, origins, [...loc, named])
      }
      return { entry, loc, id: meant[0]?.id, stored: meant[0] }
    }
    const id = ids === 'sequence' ? Number(entry.id) : (canonicalUuid(String(entry.id)) ?? String(entry.id))
    const stored = byId.get(id)
    if (stored === undefined && name === undefined) {
      this.fault([...loc, named], `there is no ${noun} ${id}: a new one needs this field`, 'missing')
    }
    if (stored === undefined && Number(id) > NEW_ID_MAX) {
      const msg = `a new id must be at most ${NEW_ID_MAX}: later ids continue after it`
      this.fault([...loc, 'id'], msg, 'less_than_equal')
    }
    if (uniqueNames && namesakes.some(row => row.id !== id)) {
      const other = `the ${noun} with this ${named} has the id ${String(namesakes[0]?.id)}`
      this.fault([...loc, named], `${other}: leave the id out where that one is meant`, 'name_taken')
    }
    return { entry, loc, id, stored }
  }

  /**
   * The rows of one name that an entry may mean: those that the operator named, else those of the owner whom the entry names.
   * Otherwise a program could rename its own row to the name of an entry, and what the entry says would be written into it.
   */
  #adoptable(
    namesakes: readonly StoredRow[],
    entry: Readonly<Record<string, unknown>>,
    loc: Loc,
    origins: List['origins'],
  ): readonly StoredRow[] {
    const operators = namesakes.filter(row => origins.get(row.id)?.isOperators !== false)
    if (operators.length > 0 || namesakes.length === 0 || (entry.owner ?? null) === null) return operators
    const owner = this.resolve('users', entry.owner, [...loc, 'owner'])
    return namesakes.filter(row => owner !== null && origins.get(row.id)?.owner_id === owner)
  }

  #index(section: SectionName, matched: readonly Matched[], stored: readonly StoredRow[]): Omit<List, 'origins'> {
    const { named, uniqueNames } = TABLES[section]
    const indexed = new Map<Id, number>()
    const indexedNames = new Map<string, boolean>()
    for (const [index, { id, entry, name, loc }] of matched.entries()) {
      const key = folded(section, name)
      const bothHaveIds = entry.id !== undefined && indexedNames.get(key) === true
      if (indexed.has(id)) this.fault(loc, `stands for the same as ${section}[${indexed.get(id)}]`, 'duplicate')
      else if (indexedNames.has(key) && (uniqueNames || !bothHaveIds)) {
        this.fault([...loc, named], 'another entry has this name: give both their ids, or other names', 'duplicate')
      }
      indexed.set(id, index)
      indexedNames.set(key, entry.id !== undefined)
    }
    const unnamed = stored.filter(row => !indexed.has(row.id))
    const known = [...unnamed, ...matched.map(({ id, name }) => ({ [named]: name, id }))] // files are named by their ids
    const names = [...grouped(section, known)].map(([name, rows]) => [name, rows.map(({ id }) => id)] as const)
    return { matched, unnamed, ids: new Set([...unnamed.map(row => row.id), ...indexed.keys()]), names: new Map(names) }
  }

  /** Moves the sequences behind the ids of this document, so that none of them is given again. */
  async takeIds(trx: Transaction<Tables>): Promise<void> {
    for (const section of SECTIONS) {
      const { ids, table } = TABLES[section]
      const last = ids === 'sequence' ? Math.max(0, ...this.entries(section).map(({ id }) => Number(id))) : 0
      if (last === 0) continue
      await sql`
        select setval(s.name::regclass, ${last}::integer)
        from (select pg_get_serial_sequence(${table}, 'id') as name) s
        where coalesce(pg_sequence_last_value(s.name::regclass), 0) < ${last}::integer`.execute(trx)
    }
  }

  /** Notes a fault. Answers null. */
  fault(loc: Loc, msg: string, type: string): null {
    this.faults.push({ loc, msg, type })
    return null
  }
}

/** The rows that are not deleted, by name, as references are compared. */
function grouped(section: SectionName, rows: readonly StoredRow[]): Map<string, StoredRow[]> {
  const groups = new Map<string, StoredRow[]>()
  for (const row of rows.filter(({ deleted }) => deleted !== true)) {
    const name = folded(section, String(row[TABLES[section].named]))
    const group = groups.get(name) ?? []
    if (group.push(row) === 1) groups.set(name, group)
  }
  return groups
}

function folded(section: SectionName, text: string): string {
  const { named } = TABLES[section]
  if (named === 'id') return canonicalUuid(text) ?? text
  return named === 'email' ? text.toLowerCase() : text
}

/** The order in which the database lists ids: numbers by size, texts by their UTF-8 bytes. */
export function ascending<T extends Id>(ids: readonly T[]): T[] {
  return [...new Set(ids)].sort((a, b) =>
    typeof a === 'number' && typeof b === 'number'
      ? a - b
      : Buffer.compare(Buffer.from(String(a)), Buffer.from(String(b))),
  )
}

/** Makes what is new and changes agents or tools one by one: always in the same order of locks. Throws `Refusal` for an id that others took. */
export async function storeInOrder<Changed extends { id: number; match: Matched }>(
  trx: Transaction<Tables>,
  resource: Pick<VersionedResource<ResourceTypes>, 'kind' | 'newRow'>,
  changed: readonly Changed[],
  change: (one: Changed) => Promise<unknown>,
): Promise<void> {
  for (const one of [...changed].sort((a, b) => a.id - b.id)) {
    const isThere = one.match.stored !== undefined || (await insertBlank(trx, resource, one.id, null))
    if (!isThere) {
      const { noun } = TABLES[resource.kind === 'persona' ? 'agents' : 'tools']
      throw new Refusal(`another ${noun} got the id ${one.id} meanwhile; nothing was stored. Apply it again`)
    }
    await change(one)
  }
}
