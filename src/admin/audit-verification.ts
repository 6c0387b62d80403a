import { type Kysely, sql } from 'kysely'
import type { Database, ResourceKind } from '../db/tables.js'
import { BLANK_AGENT } from '../persona/fields.js'
import { auditedPersona } from '../persona/resource.js'
import { BLANK_TOOL } from '../tool/fields.js'
import { auditedTool } from '../tool/resource.js'
import { shownHeaders } from '../tool/rules.js'
import { type AccessEvent, eventText, readStates, STATEFUL_KINDS } from '../updates/access-events.js'
import { auditHash, commitment, GENESIS_HASH, type HashedEntry, sha256 } from '../updates/audit.js'
import { readLeaves, readTree } from '../updates/audit-leaves.js'
import { HashTree } from '../updates/hash-tree.js'
import { type PruningMark, readMarks } from '../updates/prune.js'
import { RESOURCE_KINDS } from '../updates/resource-pages.js'
import { readPersonaStates } from './apply/personas.js'
import { readToolStates } from './apply/tools.js'
import type { Checkpoint } from './checkpoint.js'

/** Something wrong with the audit trail. `number` is the version, or of an event its number, or of the tree its size. */
export interface AuditFinding {
  /** `persona` for an agent, `tool`, `tool_definition`, the kind of an event, or `tree`. */
  kind: string
  subject: string
  number: number
  problem:
    | 'edited'
    | 'emptied'
    | 'erased'
    | 'deleted'
    | 'reordered'
    | 'anchor_mismatch'
    | 'head_mismatch'
    | 'resource_missing'
    | 'unrecorded'
    | 'content_mismatch'
    | 'leaf_mismatch'
    | 'checkpoint_mismatch'
  msg: string
}

export interface AuditVerification {
  /** Chains of agents, tools and access events. */
  chains: number
  /** Rows and events. */
  rows: number
  findings: AuditFinding[]
  /** The hash over the heads of all chains, to be exported and compared later; hex. */
  head: string
}

/** An audit row as it is stored. Hashes are hex; `difference` is JSON text. */
export interface StoredRow extends HashedEntry {
  salt: string | null
  difference: string | null
  definition_before: string | null
  hash: string
}

interface Resource {
  id: number
  version: number
  audit_head: string
  audit_count: number
  audit_anchor: string
  audit_anchor_version: number
}

export interface VerifyOptions {
  /** Only the chain of this agent or tool. `head` is then the hash of its last row. */
  only?: { kind: ResourceKind; id: number }
  /** What the tree was once: it must still be so. */
  checkpoint?: Checkpoint
  progress?(rows: number): void
}

const RESOURCES_AT_ONCE = 500

/** What stands in place of the clear text of somebody who was erased. */
export const ERASED = 'erased'

/**
 * Recomputes every chain, in one snapshot of the database, and compares it with what is stored: rows and events that were edited,
 * emptied, erased, deleted (the last one too) or reordered, except as pruning and erasure say that they did it; content and
 * access that changed without a row; and the tree over all hashes with its rows and, where one is given, with a checkpoint.
 */
export async function verifyAudit(db: Kysely<Database>, options: VerifyOptions = {}): Promise<AuditVerification> {
  if (db.isTransaction) return await verifySnapshot(db, options)
  return await db
    .transaction()
    .setIsolationLevel('repeatable read')
    .setAccessMode('read only')
    .execute(trx => verifySnapshot(trx, options))
}

async function verifySnapshot(db: Kysely<Database>, options: VerifyOptions): Promise<AuditVerification> {
  const result: AuditVerification = { chains: 0, rows: 0, findings: [], head: GENESIS_HASH }
  const erasures = await readErasures(db)
  for (const kind of options.only ? [options.only.kind] : RESOURCE_KINDS) {
    await verifyKind(db, kind, erasures, options, result)
  }
  if (options.only === undefined) {
    await verifyEvents(db, erasures, options, result)
    result.findings.push(...(await definitionFindings(db)), ...(await accessFindings(db)))
  }
  if (options.only === undefined || options.checkpoint) {
    result.findings.push(...(await treeFindings(db, options.checkpoint)))
  }
  return result
}

/** By place, such as `persona:12:7`: what remains of each row and event from which somebody was erased. */
type Erasures = ReadonlyMap<string, string>

async function readErasures(db: Kysely<Database>): Promise<Erasures> {
  const { rows } = await sql<{ place: string; digest: string }>`
    select erased ->> 0 as place, erased ->> 1 as digest
    from access_event cross join json_array_elements(detail -> 'erased') erased where kind = 'erasure'`.execute(db)
  return new Map(rows.map(({ place, digest }) => [place, digest]))
}

/** What an erasure says of a row: its hash, and of a row that hashes the clear text everything else with it. Hex. */
export function remainsOf(row: Omit<StoredRow, 'actor' | 'client_address'>): string {
  if (row.identity_hash !== null) return row.hash
  const { resource_kind, resource_id, version_before, version_after, at, actor_id, token_id, request_id, fields } = row
  const who = [resource_kind, resource_id, version_before, version_after, at, actor_id, token_id, request_id]
  return sha256(JSON.stringify([...who, fields, row.difference_hash, row.previous_hash, row.hash]))
}

async function verifyKind(
  db: Kysely<Database>,
  kind: ResourceKind,
  erasures: Erasures,
  { only, progress }: VerifyOptions,
  result: AuditVerification,
): Promise<void> {
  for await (const ids of only === undefined ? idPages(db, kind) : [[only.id]]) {
    const page = await readPage(db, kind, ids)
    for (const id of ids) {
      const chain = { kind, id, resource: page.resources.get(id), rows: page.rows.get(id) ?? [] }
      const mark = page.marks.get(`${kind}:${id}`)
      result.chains++
      result.rows += chain.rows.length
      result.findings.push(
        ...chainFindings(chain, mark, erasures),
        ...contentFindings(chain, mark, page.contents.get(id)),
        ...leafFindings(chain, mark, page.leaves.get(String(id)) ?? new Map()),
      )
      const head = chain.resource?.audit_head ?? chain.rows.at(-1)?.hash ?? GENESIS_HASH
      result.head = only === undefined ? sha256(`${result.head}${kind}${id}${head}`) : head
    }
    progress?.(result.rows)
  }
}

/** The agents or tools that are there, have rows, or are known to the tree alone. */
async function* idPages(db: Kysely<Database>, kind: ResourceKind): AsyncGenerator<number[]> {
  const { rows: lost } = await sql<{ subject: string }>`
    select distinct subject from audit_leaf l where kind = ${kind}
      and not exists (select from ${sql.table(kind)} r where r.id::text = l.subject)
      and not exists (select from audit a where a.resource_kind = ${kind} and a.resource_id::text = l.subject)
    order by subject`.execute(db)
  if (lost.length > 0) yield lost.map(({ subject }) => Number(subject))
  for (let after = 0; ; ) {
    const { rows } = await sql<{ id: number }>`
      select id from (
        select id from ${sql.table(kind)} where id > ${after}
        union select distinct resource_id from audit where resource_kind = ${kind} and resource_id > ${after}
      ) existing order by id limit ${RESOURCES_AT_ONCE}::integer`.execute(db)
    const last = rows.at(-1)
    if (last === undefined) return
    yield rows.map(row => row.id)
    after = last.id
  }
}

async function readPage(db: Kysely<Database>, kind: ResourceKind, ids: readonly number[]) {
  const { rows: resources } = await sql<Resource>`
    select id, version, encode(audit_head, 'hex') as audit_head, audit_count, encode(audit_anchor, 'hex') as audit_anchor,
      audit_anchor_version
    from ${sql.table(kind)} where id = any(${ids}::integer[])`.execute(db)
  const stored = await readRows(db, sql`resource_kind = ${kind} and resource_id = any(${ids}::integer[])`)
  const subjects = ids.map(String)
  const { rows: leaves } = await sql<Leaf>`
    select subject, number, encode(hash, 'hex') as hash from audit_leaf
    where kind = ${kind} and subject = any(${subjects}::text[])`.execute(db)
  return {
    resources: new Map(resources.map(row => [row.id, row])),
    rows: grouped(stored, row => row.resource_id),
    marks: await readMarks(
      db,
      ids.map(id => `${kind}:${id}`),
    ),
    leaves: leavesBySubject(leaves),
    contents: await readContents(db, kind, ids),
  }
}

interface Leaf {
  subject: string
  number: number
  hash: string
}

function leavesBySubject(leaves: readonly Leaf[]): Map<string, Map<number, string>> {
  const subjects = grouped(leaves, leaf => leaf.subject)
  return new Map([...subjects].map(([subject, own]) => [subject, new Map(own.map(leaf => [leaf.number, leaf.hash]))]))
}

function grouped<Key, Item>(items: readonly Item[], keyOf: (item: Item) => Key): Map<Key, Item[]> {
  const groups = new Map<Key, Item[]>()
  for (const item of items) {
    const group = groups.get(keyOf(item))
    if (group) group.push(item)
    else groups.set(keyOf(item), [item])
  }
  return groups
}

/** The audit rows for which `condition` holds, by resource and version. */
export async function readRows(db: Kysely<Database>, condition: ReturnType<typeof sql>): Promise<StoredRow[]> {
  const { rows } = await sql<StoredRow>`
    select resource_kind, resource_id, version_before, version_after, at, actor_id, actor, token_id, request_id,
      client_address, command, salt, encode(identity_hash, 'hex') as identity_hash, fields, difference::text as difference,
      difference_bytes, encode(difference_hash, 'hex') as difference_hash,
      encode(definition_before, 'hex') as definition_before, encode(content_hash, 'hex') as content_hash,
      encode(previous_hash, 'hex') as previous_hash, encode(hash, 'hex') as hash
    from audit where ${condition} order by resource_kind, resource_id, version_after`.execute(db)
  return rows
}

interface Chain {
  kind: ResourceKind
  id: number
  resource: Resource | undefined
  rows: readonly StoredRow[]
}

/** Collects findings of one chain. */
function notesOf(kind: string, subject: string) {
  const findings: AuditFinding[] = []
  const note = (number: number, problem: AuditFinding['problem'], msg: string) =>
    findings.push({ kind, subject, number, problem, msg })
  return { findings, note }
}

function chainFindings(chain: Chain, mark: PruningMark | undefined, erasures: Erasures): AuditFinding[] {
  const { kind, id, resource, rows } = chain
  const { findings, note } = notesOf(kind, String(id))
  const start = startOf(chain, mark)
  let [version, head] = [start.version, start.hash]
  let followsWhole = true
  for (const row of rows) {
    const problem = rowProblem(row, erasures, mark)
    if (problem) note(row.version_after, ...problem)
    const isWhole = problem?.[0] !== 'edited'
    if (row.version_before > version) {
      const gone = row.version_before - version
      const what = gone === 1 ? 'a row is' : `${gone} rows are`
      note(version + 1, 'deleted', `${what} missing before version ${row.version_after}, and no pruning says so`)
    } else if (row.previous_hash !== head && isWhole && followsWhole) {
      const msg = 'the row does not follow the one before it: one of the two was replaced or moved'
      note(row.version_after, 'reordered', msg)
    }
    followsWhole = isWhole
    version = row.version_after
    head = row.hash
  }
  if (resource !== undefined) endFindings(resource, start, version, head, note)
  else if (rows.at(-1)?.fields.includes('removed') !== true && version > (mark?.anchor_version ?? -1)) {
    const what = kind === 'tool' ? 'tool' : 'agent'
    note(version, 'resource_missing', `the ${what} is gone, and no row says that it was removed`)
  }
  return findings
}

interface ChainStart {
  version: number
  hash: string
}

/** Where the kept rows begin: behind what pruning took. A tool that was removed and pruned before 1.2 has no such event. */
function startOf({ resource, rows: [first] }: Chain, mark: PruningMark | undefined): ChainStart {
  if (mark) return { version: mark.anchor_version, hash: mark.anchor_hash }
  if (resource === undefined && first?.identity_hash === null) {
    return { version: first.version_before, hash: first.previous_hash }
  }
  return { version: 0, hash: GENESIS_HASH }
}

type Note = ReturnType<typeof notesOf>['note']

function endFindings(resource: Resource, start: ChainStart, version: number, head: string, note: Note): void {
  if (resource.audit_anchor_version !== start.version || resource.audit_anchor !== start.hash) {
    const msg = `the resource says that rows up to version ${resource.audit_anchor_version} were pruned, and no pruning says so`
    note(resource.audit_anchor_version, 'anchor_mismatch', msg)
  }
  if (resource.version < 1) note(resource.version, 'unrecorded', 'it is there, and no row says that it was made')
  if (version < resource.version) {
    const gone = resource.version - version
    const what = gone === 1 ? 'row is' : `${gone} rows are`
    note(version + 1, 'deleted', `the last ${what} missing, up to version ${resource.version}`)
  } else if (version > resource.version) {
    note(resource.version + 1, 'head_mismatch', `there are rows up to version ${version}, beyond that of the resource`)
  } else if (head !== resource.audit_head) {
    note(version, 'head_mismatch', 'the last row is not the one that the resource names as its head')
  }
  if (resource.audit_count !== resource.version) {
    const msg = `the resource counts ${resource.audit_count} changes at version ${resource.version}`
    note(resource.version, 'head_mismatch', msg)
  }
}

type Problem = readonly [problem: AuditFinding['problem'], msg: string]

const EDITED: Problem = ['edited', 'the row does not have the content that its hash was made of']
const ERASED_BY_HAND: Problem = ['erased', 'who made the change was erased, and no erasure says so']

/** What is wrong with a row by itself. A pruned difference stands by its hash, an erased person by the commitment. */
function rowProblem(row: StoredRow, erasures: Erasures, mark: PruningMark | undefined): Problem | undefined {
  const isErased = row.salt === null && row.actor === ERASED && row.client_address === ERASED
  const remains = erasures.get(`${row.resource_kind}:${row.resource_id}:${row.version_after}`)
  const isHashed = isErased && row.identity_hash === null ? remains === remainsOf(row) : auditHash(row) === row.hash
  if (isErased && remains === undefined) return ERASED_BY_HAND
  if (!isHashed || (isErased && remains !== remainsOf(row))) return EDITED
  if (!isErased && row.identity_hash !== null) {
    if (row.salt === null || commitment(row.salt, row.actor, row.client_address) !== row.identity_hash) return EDITED
  }
  if (row.difference === null) {
    if (row.version_after > (mark?.emptied_to ?? 0)) {
      return ['emptied', 'what changed is gone, and no pruning says so']
    }
    return row.definition_before === null ? undefined : EDITED
  }
  if (sha256(row.difference) !== row.difference_hash) return EDITED
  if (Buffer.byteLength(row.difference) !== row.difference_bytes) return EDITED
  const difference = JSON.parse(row.difference) as Difference // its hash is right: we wrote it
  return (difference.definition?.from ?? null) === row.definition_before ? undefined : EDITED
}

type Difference = Record<string, { from: unknown; to: unknown }>

/** What differences start from: a field that no row names is so still. */
const { definition_hash, ...toolColumns } = BLANK_TOOL
const BLANK: Record<ResourceKind, object> = {
  persona: BLANK_AGENT,
  tool: { ...toolColumns, definition: definition_hash, custom_headers: [] },
}

/** What is stored now: everything that the trail vouches for, and each field as differences show it. */
interface Content {
  audited: readonly unknown[]
  fields: Readonly<Record<string, unknown>>
}

async function readContents(
  db: Kysely<Database>,
  kind: ResourceKind,
  ids: readonly number[],
): Promise<Map<number, Content>> {
  if (kind === 'persona') {
    const states = await readPersonaStates(db, ids)
    return new Map([...states].map(([id, state]) => [id, { audited: auditedPersona(state), fields: { ...state } }]))
  }
  const states = await readToolStates(db, ids)
  const shown = [...states].map(([id, state]): [number, Content] => {
    const fields = { ...state, definition: state.definition_hash, custom_headers: shownHeaders(state.headers) }
    return [id, { audited: auditedTool(state, state.headers), fields }]
  })
  return new Map(shown)
}

/** Compares what is stored with the hash of the last row, and each field with its last kept change, which names it. */
function contentFindings(
  { kind, id, resource, rows }: Chain,
  mark: PruningMark | undefined,
  content: Content | undefined,
): AuditFinding[] {
  const { findings, note } = notesOf(kind, String(id))
  if (resource === undefined || content === undefined) return findings
  const end = rows.at(-1) ?? { version_after: mark?.anchor_version, content_hash: mark?.content_hash }
  if (end.version_after !== resource.version) return findings // the chain itself is not whole: that is said already
  const expected = end.content_hash
  const isHashed = typeof expected === 'string'
  if (isHashed && expected === sha256(JSON.stringify(content.audited))) return findings
  const isComplete = isHashed && rows[0]?.version_before === 0
  const last = new Map<string, unknown>(isComplete ? Object.entries(BLANK[kind]) : [])
  for (const row of rows) {
    if (row.fields.includes('removed')) last.clear()
    if (row.difference === null || sha256(row.difference) !== row.difference_hash) continue
    const changes = Object.entries(JSON.parse(row.difference) as Difference) // its hash is right: we wrote it
    for (const [field, { to }] of changes) last.set(field, to)
  }
  const differing = [...last].filter(([field, to]) => {
    return field in content.fields && JSON.stringify(content.fields[field]) !== JSON.stringify(to)
  })
  if (!isHashed && differing.length === 0) return findings
  const named = differing.map(([field]) => field).join(', ') || 'a field whose last change is not kept'
  note(resource.version, 'content_mismatch', `what is stored is not what the last row says: ${named}`)
  return findings
}

/** Definitions are kept once under the SHA-256 of their text, which is what rows name: the text must still be that one. */
async function definitionFindings(db: Kysely<Database>): Promise<AuditFinding[]> {
  const { rows } = await sql<{ subject: string }>`
    select encode(hash, 'hex') as subject from tool_definition
    where hash <> sha256(convert_to(content::text, 'UTF8')) order by hash`.execute(db)
  const msg = 'the text of the definition is not the one that its hash was made of'
  return rows.map(({ subject }) => ({ kind: 'tool_definition', subject, number: 0, problem: 'content_mismatch', msg }))
}

/** Compares rows with their leaves, which nobody changes. Rows that pruning took have only leaves. */
function leafFindings(
  { kind, id, resource, rows }: Chain,
  mark: PruningMark | undefined,
  leaves: ReadonlyMap<number, string>,
): AuditFinding[] {
  const { findings, note } = notesOf(kind, String(id))
  const newest = Math.max(0, ...leaves.keys())
  for (const { version_after, hash } of rows) {
    if (version_after <= newest && leaves.get(version_after) !== hash) {
      note(version_after, 'leaf_mismatch', 'the row is not the one that was added to the tree')
    }
  }
  const end = rows.at(-1)?.version_after ?? mark?.anchor_version ?? 0
  // What is missing up to the version of the resource is said of its chain.
  if (newest > Math.max(end, resource?.version ?? 0))
    note(end + 1, 'deleted', `rows up to version ${newest} were added to the tree, and are gone`)
  return findings
}

interface EventChain {
  kind: string
  subject: string
  number: number
  hash: string
}

const EVENTS_AT_ONCE = 2_000

async function verifyEvents(
  db: Kysely<Database>,
  erasures: Erasures,
  { progress }: VerifyOptions,
  result: AuditVerification,
): Promise<void> {
  for (let after = { kind: '', subject: '' }; ; ) {
    const { rows: names } = await sql<{ kind: string; subject: string }>`
      select kind, subject from (
        select kind, subject from access_chain
        union select kind, subject from access_event
        union select kind, subject from audit_leaf where kind <> all(${RESOURCE_KINDS}::text[])
      ) chain where (kind, subject) > (${after.kind}::text, ${after.subject}::text)
      order by kind, subject limit ${EVENTS_AT_ONCE}::integer`.execute(db)
    const last = names.at(-1)
    if (last === undefined) return
    const within = (table: string) => sql`
      (${sql.ref(`${table}.kind`)}, ${sql.ref(`${table}.subject`)}) in (
        select kind, subject from json_to_recordset(${JSON.stringify(names)}::json) named (kind text, subject text))`
    const { rows: heads } = await sql<EventChain>`
      select kind, subject, number, encode(hash, 'hex') as hash from access_chain
      where ${within('access_chain')}`.execute(db)
    const { rows: leaves } = await sql<Leaf>`
      select kind || ' ' || subject as subject, number, encode(hash, 'hex') as hash from audit_leaf
      where ${within('audit_leaf')}`.execute(db)
    const events = grouped(await readEvents(db, within('access_event')), nameOf)
    const chains = new Map(heads.map(chain => [nameOf(chain), chain]))
    const leavesOf = leavesBySubject(leaves)
    for (const name of names) {
      const own = events.get(nameOf(name)) ?? []
      const chain = chains.get(nameOf(name)) ?? { ...name, number: 0, hash: GENESIS_HASH }
      result.chains++
      result.rows += own.length
      result.findings.push(...eventFindings(chain, own, erasures, leavesOf.get(nameOf(name)) ?? new Map()))
      result.head = sha256(`${result.head}${nameOf(name)}${chain.hash}`)
    }
    progress?.(result.rows)
    after = last
  }
}

function nameOf({ kind, subject }: { kind: string; subject: string }): string {
  return `${kind} ${subject}`
}

/** The access events for which `condition` holds, by chain and number. */
export async function readEvents(db: Kysely<Database>, condition: ReturnType<typeof sql>): Promise<AccessEvent[]> {
  const { rows } = await sql<AccessEvent>`
    select kind, subject, number, at, action, actor, request_id, client_address, command, salt,
      encode(identity_hash, 'hex') as identity_hash, person, person_salt, encode(person_hash, 'hex') as person_hash,
      detail::text as detail, encode(previous_hash, 'hex') as previous_hash, encode(hash, 'hex') as hash
    from access_event where ${condition} order by kind, subject, number`.execute(db)
  return rows
}

function eventFindings(
  chain: EventChain,
  events: readonly AccessEvent[],
  erasures: Erasures,
  leaves: ReadonlyMap<number, string>,
): AuditFinding[] {
  const { findings, note } = notesOf(chain.kind, chain.subject)
  // Of pruning only the last event is kept: it says what those before it said.
  const [first] = chain.kind === 'prune' ? events : []
  let number = first ? first.number - 1 : 0
  let head = first?.previous_hash ?? GENESIS_HASH
  const newest = Math.max(0, ...leaves.keys())
  for (const event of events) {
    const problem = eventProblem(event, erasures)
    if (problem) note(event.number, ...problem)
    if (event.number > number + 1) note(number + 1, 'deleted', `events are missing before number ${event.number}`)
    else if (event.previous_hash !== head)
      note(event.number, 'reordered', 'the event does not follow the one before it')
    if (event.number <= newest && leaves.get(event.number) !== event.hash) {
      note(event.number, 'leaf_mismatch', 'the event is not the one that was added to the tree')
    }
    number = event.number
    head = event.hash
  }
  const expected = Math.max(chain.number, newest)
  if (number < expected) note(number + 1, 'deleted', `the last events are missing, up to number ${expected}`)
  else if (number !== chain.number || head !== chain.hash) {
    note(number, 'head_mismatch', 'the last event is not the one that its chain names as its head')
  }
  return findings
}

const EDITED_EVENT: Problem = ['edited', 'the event does not have the content that its hash was made of']

function eventProblem(event: AccessEvent, erasures: Erasures): Problem | undefined {
  const { salt, actor, client_address, person, person_salt, person_hash } = event
  if (sha256(eventText(event)) !== event.hash) return EDITED_EVENT
  if (salt === null || commitment(salt, actor, client_address) !== event.identity_hash) return EDITED_EVENT
  if (person_hash === null) return person === null ? undefined : EDITED_EVENT
  if (person !== null) return commitment(person_salt ?? '', person) === person_hash ? undefined : EDITED_EVENT
  const remains = erasures.get(`${event.kind}:${event.subject}:${event.number}`)
  if (person_salt !== null || remains === undefined) return ['erased', 'a person was erased, and no erasure says so']
  return remains === event.hash ? undefined : EDITED_EVENT
}

/** Compares who may do what with the last event of each user, group, token and so on: each has one. */
async function accessFindings(db: Kysely<Database>): Promise<AuditFinding[]> {
  const findings: AuditFinding[] = []
  for (const kind of STATEFUL_KINDS) {
    const states = new Map((await readStates(db, kind)).map(state => [state.subject, state]))
    const { rows: events } = await sql<{ subject: string; number: number; person: string | null; detail: string }>`
      select distinct on (subject) subject, number, person, detail::text as detail from access_event
      where kind = ${kind} order by subject, number desc`.execute(db)
    for (const { subject, number, person, detail } of events) {
      const state = states.get(subject)
      const isSame = (state?.detail ?? 'null') === detail
      const isSamePerson = kind !== 'user' || state === undefined || person === null || person === state.person
      if (isSame && isSamePerson) continue
      const msg = 'what is stored is not what the last event says'
      findings.push({ kind, subject, number, problem: 'content_mismatch', msg })
    }
    // Of a chain that lost its events that is said already.
    const { rows: recorded } = await sql<{ subject: string }>`
      select subject from access_event where kind = ${kind}
      union select subject from access_chain where kind = ${kind} and number > 0
      union select subject from audit_leaf where kind = ${kind}`.execute(db)
    for (const { subject } of recorded) states.delete(subject)
    for (const subject of states.keys()) {
      findings.push({ kind, subject, number: 0, problem: 'unrecorded', msg: 'it is there, and no event says so' })
    }
  }
  return findings
}

/** Recomputes the root over all leaves, and compares it with the stored one and with that of the checkpoint. */
async function treeFindings(db: Kysely<Database>, checkpoint: Checkpoint | undefined): Promise<AuditFinding[]> {
  const { findings, note } = notesOf('tree', '')
  const stored = await readTree(db)
  const tree = new HashTree()
  const compare = () => {
    if (checkpoint?.size !== tree.size || tree.root().equals(checkpoint.root)) return
    note(tree.size, 'checkpoint_mismatch', 'what was there at the checkpoint is not what is there now')
  }
  compare()
  for await (const leaf of readLeaves(db)) {
    if (leaf.position !== tree.size) {
      note(tree.size, 'leaf_mismatch', 'leaves are missing in the tree')
      return findings
    }
    tree.add(leaf.hash)
    compare()
  }
  if (checkpoint && checkpoint.size > tree.size) {
    const msg = `there were ${checkpoint.size} leaves at the checkpoint, and there are ${tree.size}`
    note(tree.size, 'checkpoint_mismatch', msg)
  }
  if (stored.size !== tree.size || !stored.root().equals(tree.root())) {
    note(stored.size, 'leaf_mismatch', 'the leaves are not those that the tree was made of')
  }
  return findings
}
