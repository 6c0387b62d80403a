import { randomUUID } from 'node:crypto'
import { type Kysely, sql, type Transaction } from 'kysely'
import type { Tables } from '../../db/tables.js'
import type { Fault, Loc } from '../../errors.js'
import type { AccessKind } from '../../updates/access-events.js'
import type { Actor } from '../../updates/audit.js'
import { insertBlank } from '../../updates/new-row.js'
import type { ResourceTypes, VersionedResource } from '../../updates/resource.js'
import { canonicalUuid } from '../../validation/vocabulary.js'
import type { OrganisationDocument, Reference, SectionName } from '../document.js'
import { Refusal } from '../refusal.js'
import { type Origin, readOrigins } from './origin.js'

export type Id = number | string

/** A database row: all columns of a small table; of a tool or agent only id, name and `deleted`. */
export type StoredRow = Readonly<Record<string, unknown>> & { id: Id }

/** An entry of the document with its row. If `stored` is undefined, the row will be created with this id. */
export interface Matched {
  entry: Readonly<Record<string, unknown>>
  loc: Loc
  id: Id
  /** The name in the document, or else the stored one. */
  name: string
  stored: StoredRow | undefined
}

/** The ids of the agents or tools that exist. */
export function storedIds(matches: readonly Matched[]): number[] {
  return matches.filter(({ stored }) => stored !== undefined).map(({ id }) => Number(id))
}

/** Throws `Refusal` if a row that the document names by its name was renamed in the meantime. */
export function requireSameName({ entry, stored }: Matched, now: string): void {
  if (stored === undefined || entry.id !== undefined || now === stored.name) return
  const renamed = `${JSON.stringify(stored.name)} (id ${stored.id}) was renamed to ${JSON.stringify(now)} meanwhile`
  throw new Refusal(`${renamed}; nothing was stored. Call it by its id or by its new name`)
}

/** A changed field. For a list also the items added and removed. */
export interface FieldChange {
  field: string
  from: unknown
  to: unknown
  added?: unknown[]
  removed?: unknown[]
}

/** The effect of a document on one row. */
export interface Outcome {
  section: SectionName
  id: Id
  name: string
  /** `kept`: pruning cannot remove it, for `reason`. */
  action: 'created' | 'changed' | 'unchanged' | 'removed' | 'kept'
  /** The changed fields with old and new values; for a new row those that differ from a blank one. Secrets are redactions. */
  fields: FieldChange[]
  /** The effect of a new definition on the model that calls the tool. */
  impact?: string[]
  reason?: string
  /** Warnings: secrets that will be sent to new addresses, or faults of a definition. */
  notes?: string[]
}

/** The planned outcomes of some lists. `store` writes them. */
export interface Plan {
  outcomes: Outcome[]
  store(trx: Transaction<Tables>, actor: Actor): Promise<void>
}

/** A list of a document: the noun for an entry, its table, and the column for references by text. */
export interface Table {
  noun: string
  table: keyof Tables
  named: 'name' | 'email' | 'id'
  /** The source of new ids. */
  ids: 'sequence' | 'uuid' | 'document'
  uniqueNames: boolean
  /** The kind of its access events, if the list affects access. */
  access: AccessKind | undefined
}

function named(noun: string, table: keyof Tables, access?: AccessKind, uniqueNames = true): Table {
  return { noun, table, named: 'name', ids: 'sequence', uniqueNames, access }
}

/** The lists, sorted so that each comes after those that it refers to. */
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

export const SECTIONS = Object.keys(TABLES) as SectionName[]

/** Reads all lists and matches the entries of a document with them. Faults are added to the catalogue. */
export async function readCatalogue(db: Kysely<Tables>, document: OrganisationDocument): Promise<Catalogue> {
  const catalogue = new Catalogue()
  for (const section of SECTIONS) {
    const { table, ids } = TABLES[section]
    // Agents and tools are many and large, so read only id and name.
    const columns = section === 'tools' ? sql`id, name` : section === 'agents' ? sql`id, name, deleted` : sql`*`
    const { rows } = await sql<StoredRow>`select ${columns} from ${sql.table(table)} order by id`.execute(db)
    const last = ids === 'sequence' && document[section] !== undefined ? await lastId(db, table) : 0
    const origins = await readOrigins(db, section, TABLES[section], rows, namesIn(document, section))
    catalogue.match(section, rows, document[section] ?? [], last, origins)
  }
  return catalogue
}

/** The names in a document that may refer to rows of one list: names of its entries, and references. */
function namesIn(document: OrganisationDocument, section: SectionName): ReadonlySet<string> {
  const names: unknown[] = (document[section] ?? []).map(entry => ('name' in entry ? entry.name : undefined))
  if (section === 'tools')
    names.push(...(document.agents ?? []).flatMap(agent => ('tools' in agent ? agent.tools : [])))
  return new Set(names.filter(name => typeof name === 'string'))
}

/** The largest new id. Ids are int4, and the sequence continues after the largest one. */
const NEW_ID_MAX = 2_146_483_647

async function lastId(db: Kysely<Tables>, table: string): Promise<number> {
  const { rows } = await sql<{ id: number | null }>`
    select pg_sequence_last_value(pg_get_serial_sequence(${table}, 'id')::regclass)::float8 as id`.execute(db)
  return rows[0]?.id ?? 0
}

/** One matched list. `names` maps each name, folded for comparison, to its ids. */
interface List {
  matched: readonly Matched[]
  unnamed: StoredRow[]
  ids: Set<Id>
  names: Map<string, Id[]>
  /** The origins of rows whose names occur in the document. */
  origins: ReadonlyMap<Id, Origin>
}

/** Matches a document with the database: entries with rows, and references with ids. */
export class Catalogue {
  readonly faults: Fault[] = []
  readonly #lists = new Map<SectionName, List>()

  /** The entries of one list with their rows, in document order. */
  entries(section: SectionName): readonly Matched[] {
    return this.#lists.get(section)?.matched ?? []
  }

  /** The rows of one list without an entry in the document. */
  unnamed(section: SectionName): readonly StoredRow[] {
    return this.#lists.get(section)?.unnamed ?? []
  }

  /** The id of a referenced row. Adds a fault and returns null if the reference matches no row, or several. */
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
    // Prefer the entries of the document. A name never matches a row that somebody else named.
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

  /** The distinct ids of a list of references, ascending. */
  resolveAll(section: SectionName, references: readonly Reference[], loc: Loc): Id[] {
    const ids = references.map((reference, index) => this.resolve(section, reference, [...loc, index]))
    return ascending(ids.filter(id => id !== null))
  }

  /** Matches one list with the stored rows. New rows get ids after `lastId`; `storeInOrder` refuses them if they were taken in the meantime. */
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
   * The rows with one name that an entry may update: those named by the operator, else those of the owner in the entry. Otherwise a program
   * could give its own row the name of an entry and receive its content.
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
      if (indexed.has(id)) this.fault(loc, `is the same row as ${section}[${indexed.get(id)}]`, 'duplicate')
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

  /** Advances the sequences past the ids of this document, so that none is assigned twice. */
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

  /** Adds a fault and returns null. */
  fault(loc: Loc, msg: string, type: string): null {
    this.faults.push({ loc, msg, type })
    return null
  }
}

/** The existing rows by name, folded for comparison. */
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

/** Sorts ids as the database does, without duplicates: numbers by value, texts by their UTF-8 bytes. */
export function ascending<T extends Id>(ids: readonly T[]): T[] {
  return [...new Set(ids)].sort((a, b) =>
    typeof a === 'number' && typeof b === 'number'
      ? a - b
      : Buffer.compare(Buffer.from(String(a)), Buffer.from(String(b))),
  )
}

/** Creates and changes agents or tools in the order of their ids, so that row locks cannot deadlock. Throws `Refusal` if another row took a new id. */
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
