import { randomUUID } from 'node:crypto'
import { type Kysely, type RawBuilder, sql, type Transaction } from 'kysely'
import type { Tables } from '../../db/tables.js'
import type { Fault, Loc } from '../../errors.js'
import { changeAsOperator } from '../../updates/engine.js'
import type { Actor, Change, ResourceTypes, VersionedResource } from '../../updates/resource.js'
import { insertBlank } from '../../updates/statements.js'
import { canonicalUuid } from '../../validation/vocabulary.js'
import type { AccessKind } from '../access-events.js'
import type { OrganisationDocument, SectionName } from '../document.js'
import { Refusal } from '../refusal.js'

export type Id = number | string

/** An entry of the document and the id of its row. The row does not exist yet if `isNew` is true. */
export interface Matched {
  entry: Readonly<Record<string, unknown>>
  loc: Loc
  id: Id
  /** The name in the entry, or the stored name if the entry has none. */
  name: string
  isNew: boolean
}

/** The effect of a document on one row. */
export interface Outcome {
  section: SectionName
  id: Id
  name: string
  /** `kept`: the row could not be pruned. `reason` explains why. */
  action: 'created' | 'changed' | 'unchanged' | 'removed' | 'kept'
  /** The changed fields with old and new values. For a new row, the old values are the defaults. Secrets are shown as masks. */
  fields: Change[]
  /** How a new definition or new headers affect the model that calls the tool. */
  impact?: string[]
  reason?: string
  /** Warnings, for example that secrets will be sent to new addresses. */
  notes?: string[]
}

/** The planned changes to one list. `store` writes the changes to the database. */
export interface Plan {
  outcomes: Outcome[]
  store(trx: Transaction<Tables>, actor: Actor): Promise<void>
}

/** How a list of a document is stored. Messages call an entry `noun`. A reference contains a row's id, or its value in the column `named`. */
interface Table {
  noun: string
  table: keyof Tables
  named: 'name' | 'email' | 'id'
  ids: 'sequence' | 'uuid' | 'document'
  owner?: 'owner_id' | 'user_id'
  /** SQL: true for deleted agents and inactive users. */
  gone?: RawBuilder<boolean>
  /** SQL: true for rows that users of the API can rename. Renaming can give two rows the same name, so such rows are found by name and owner. */
  renamable?: RawBuilder<boolean>
  /** The kind of access event that a change records. Absent if changes do not affect access, or if audit rows record them. */
  access?: AccessKind
}

const named = { named: 'name', ids: 'sequence' } as const
const isCustom = sql<boolean>`in_code_tool_id is null and mcp_server_id is null`

/** The lists of a document. Each list refers only to lists above it. */
export const TABLES: Readonly<Record<SectionName, Table>> = {
  users: { noun: 'user', table: 'user_account', named: 'email', ids: 'uuid', gone: sql`not active`, access: 'user' },
  groups: { ...named, noun: 'group', table: 'user_group', access: 'group' },
  labels: { ...named, noun: 'label', table: 'label' },
  oauth_configs: { ...named, noun: 'OAuth config', table: 'oauth_config', owner: 'owner_id', access: 'oauth_config' },
  mcp_servers: { ...named, noun: 'MCP server', table: 'mcp_server', owner: 'owner_id', access: 'mcp_server' },
  cc_pairs: { ...named, noun: 'connection', table: 'cc_pair' },
  federated_connectors: { ...named, noun: 'federated connector', table: 'federated_connector' },
  document_sets: { ...named, noun: 'document set', table: 'document_set', access: 'document_set' },
  user_files: { noun: 'file', table: 'user_file', named: 'id', ids: 'document', access: 'user_file' },
  tools: { ...named, noun: 'tool', table: 'tool', owner: 'user_id', renamable: isCustom },
  agents: { ...named, noun: 'agent', table: 'persona', owner: 'owner_id', gone: sql`deleted`, renamable: sql`true` },
}

export const SECTIONS = Object.keys(TABLES) as SectionName[]

interface Row {
  id: Id
  name: string
  owner: string | null
  gone: boolean
  renamable: boolean
}

/** Matches the document's entries with the stored rows. The returned catalogue also contains the faults that were found. */
export async function readCatalogue(db: Kysely<Tables>, document: OrganisationDocument): Promise<Catalogue> {
  const catalogue = new Catalogue()
  for (const section of SECTIONS) {
    const { table, named, owner, gone = sql`false`, renamable = sql`false` } = TABLES[section]
    const { rows } = await sql<Row>`
      select id, ${sql.ref(named)} as name, ${owner ? sql.ref(owner) : sql`null`} as owner, ${gone} as gone,
        ${renamable} as renamable
      from ${sql.table(table)} order by id`.execute(db)
    await catalogue.match(db, section, rows, document[section] ?? [])
  }
  return catalogue
}

interface List {
  matched: readonly Matched[]
  unnamed: readonly Row[]
  ids: ReadonlySet<Id>
  /** Row ids by name. A user's name is the email in lower case; a file's name is its id. */
  names: ReadonlyMap<string, readonly Id[]>
}

/** Knows the row of each entry in a document, and finds the ids for references. */
export class Catalogue {
  readonly faults: Fault[] = []
  readonly #lists = new Map<SectionName, List>()

  /** The entries of one list with their row ids, in document order. */
  entries(section: SectionName): readonly Matched[] {
    return this.#lists.get(section)?.matched ?? []
  }

  /** The rows of one list that have no entry. Omits deleted agents and inactive users. */
  unnamed(section: SectionName): readonly Row[] {
    return this.#lists.get(section)?.unnamed.filter(({ gone }) => !gone) ?? []
  }

  /** Returns the id of a referenced row. If no row or several rows match, adds a fault and returns null. */
  resolve(section: SectionName, given: unknown, loc: Loc): Id | null {
    const [id, ...others] = this.#meant(section, given)
    const reference = `${TABLES[section].noun} ${JSON.stringify(given)}`
    if (others.length > 0) return this.fault(loc, `several records match ${reference}: give the id of one`, 'ambiguous')
    if (id !== undefined) return id
    const isTool = section === 'tools' && typeof given === 'string'
    const rest = isTool ? ' in this document: add its entry, or give its id' : ': correct this value, or add its entry'
    return this.fault(loc, `${reference} not found${rest}`, 'not_found')
  }

  /** The ids that match a reference. A custom tool's name matches only tools with an entry, because callers can rename stored tools. */
  #meant(section: SectionName, given: unknown): readonly Id[] {
    const list = this.#lists.get(section)
    const reference = typeof given === 'object' && given !== null && 'id' in given ? given.id : given
    const id = storedId(section, reference)
    if (list?.ids.has(id)) return [id]
    return (typeof reference === 'string' && list?.names.get(folded(section, reference))) || []
  }

  /** Matches the entries of one list with stored rows and assigns ids to new rows. */
  async match(
    db: Kysely<Tables>,
    section: SectionName,
    rows: readonly Row[],
    entries: readonly object[],
  ): Promise<void> {
    const { noun, named, ids, table, renamable } = TABLES[section]
    const byId = new Map(rows.map(row => [row.id, row]))
    const byName = grouped(section, renamable ? rows.filter(({ gone }) => !gone) : rows)
    const found = entries.map((given, index) => {
      const entry: Matched['entry'] = { ...given }
      const loc: Loc = [section, index]
      const name = entry[named]
      const namesakes = name === undefined ? [] : (byName.get(folded(section, String(name))) ?? [])
      const id = entry.id === undefined ? undefined : storedId(section, entry.id)
      const row = id === undefined ? this.#owned(section, entry, loc, namesakes) : byId.get(id)
      const other = namesakes.find(each => each !== row)
      if (name === undefined && row === undefined) this.fault([...loc, named], 'Field required', 'missing')
      if (other !== undefined && !renamable) {
        const msg = `${noun} ${other.id} already has this ${named}: choose another ${named}, or give this entry the id ${other.id}`
        this.fault([...loc, named], msg, 'name_taken')
      }
      return { entry, loc, row, id: row?.id ?? id, name: String(name ?? row?.name ?? '') }
    })
    const made = ids === 'sequence' ? await newIds(db, table, found) : []
    const matched = found.map(({ row, id = made.shift() ?? randomUUID(), ...match }) => {
      return { ...match, id, isNew: row === undefined }
    })
    const known = new Set<unknown>()
    for (const { id, entry, name, loc } of matched) {
      const key = entry.id ?? JSON.stringify([folded(section, name), entry.owner])
      if (known.has(id) || known.has(key)) this.fault(loc, `two entries match this ${noun}: remove one`, 'duplicate')
      known.add(id).add(key)
    }
    const unnamed = rows.filter(({ id }) => !known.has(id))
    const names = grouped(section, [...unnamed.filter(({ renamable }) => !renamable), ...matched])
    this.#lists.set(section, {
      ...{ matched, unnamed, ids: new Set([...matched.map(({ id }) => id), ...byId.keys()]) },
      names: new Map([...names].map(([name, named]) => [name, named.map(({ id }) => id)])),
    })
  }

  /** For an entry without an id, finds the row by name and owner. */
  #owned(section: SectionName, { owner }: Matched['entry'], loc: Loc, namesakes: readonly Row[]): Row | undefined {
    const { noun, renamable } = TABLES[section]
    if (renamable && (owner ?? null) === null) {
      const msg = `a name alone does not identify the ${noun}, because users can rename ${noun}s: add the id or the owner`
      this.fault([...loc, 'owner'], msg, 'missing')
    }
    const id = (owner ?? null) === null ? null : this.#meant('users', owner)[0]
    const [row, ...others] = namesakes.filter(row => row.owner === id)
    if (others.length > 0) this.fault(loc, `several ${noun}s have this name and owner: add the id of one`, 'ambiguous')
    return row
  }

  /** Advances the sequences past the ids of new rows, so that no id is assigned twice. */
  async takeIds(trx: Transaction<Tables>): Promise<void> {
    for (const section of SECTIONS.filter(section => TABLES[section].ids === 'sequence')) {
      const given = this.entries(section).filter(({ isNew }) => isNew)
      const last = Math.max(0, ...given.map(({ id }) => Number(id)))
      await sql`
        select setval(s.name::regclass, ${last}::integer)
        from (select pg_get_serial_sequence(${TABLES[section].table}, 'id') as name) s
        where coalesce(pg_sequence_last_value(s.name::regclass), 0) < ${last}::integer`.execute(trx)
    }
  }

  fault(loc: Loc, msg: string, type: string): null {
    this.faults.push({ loc, msg, type })
    return null
  }
}

/** Takes ids from a sequence for new entries without an id. Skips ids that other entries specify. */
async function newIds(
  db: Kysely<Tables>,
  table: string,
  found: readonly { id: unknown; row: unknown }[],
): Promise<Id[]> {
  const fresh = found.filter(({ row }) => row === undefined)
  const given = new Set(fresh.map(({ id }) => id))
  if (!given.has(undefined)) return []
  const { rows } = await sql<{ id: number }>`
    select nextval(pg_get_serial_sequence(${table}, 'id'))::integer as id
    from generate_series(1, ${fresh.length})`.execute(db)
  return rows.map(({ id }) => id).filter(id => !given.has(id))
}

function grouped<Named extends { name: string }>(section: SectionName, rows: readonly Named[]): Map<string, Named[]> {
  const groups = new Map<string, Named[]>()
  for (const row of rows) {
    const name = folded(section, row.name)
    groups.set(name, [...(groups.get(name) ?? []), row])
  }
  return groups
}

/** Returns the id in its stored form. Converts UUIDs to their canonical form. */
function storedId(section: SectionName, given: unknown): Id {
  const id = given as Id // a value of the wrong type matches no row
  return TABLES[section].ids === 'sequence' ? id : (canonicalUuid(String(id)) ?? id)
}

function folded(section: SectionName, text: string): string {
  const { named } = TABLES[section]
  if (named === 'id') return canonicalUuid(text) ?? text
  return named === 'email' ? text.toLowerCase() : text
}

export function outcomeOf(section: SectionName, { id, name, isNew }: Matched, fields: Change[]): Outcome {
  return { section, id, name, action: isNew ? 'created' : fields.length > 0 ? 'changed' : 'unchanged', fields }
}

/** The planned change of an agent or tool. `version` is the version that the plan is based on. It is undefined for a new row. */
export interface Planned<T extends ResourceTypes> {
  outcome: Outcome
  version: number | undefined
  decide(state: T['State']): T['Decision']
}

/**
 * Creates and changes agents or tools in the order of their ids, so that row locks cannot deadlock. Throws `Refusal` if a new id is in use or a row
 * was changed concurrently.
 */
export async function storeInOrder<T extends ResourceTypes>(
  trx: Transaction<Tables>,
  [resource, creation]: readonly [VersionedResource<T>, VersionedResource<T>],
  planned: readonly Planned<T>[],
  actor: Actor,
): Promise<void> {
  const changed = planned.filter(({ outcome }) => outcome.action !== 'unchanged')
  for (const { outcome, version, decide } of changed.sort((a, b) => Number(a.outcome.id) - Number(b.outcome.id))) {
    const id = Number(outcome.id)
    const { noun } = TABLES[outcome.section]
    const action = version === undefined ? 'created' : 'changed'
    const refusal = () => new Refusal(`${noun} ${id} was ${action} meanwhile, so nothing was stored: run apply again`)
    if (version === undefined && !(await insertBlank(trx, creation, id, null))) throw refusal()
    const decideNow = (state: T['State']) => {
      if (version !== undefined && state.version !== version) throw refusal()
      return decide(state)
    }
    await changeAsOperator(trx, version === undefined ? creation : resource, id, decideNow, actor)
  }
}
