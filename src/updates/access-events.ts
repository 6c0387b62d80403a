import { randomUUID } from 'node:crypto'
import { type Insertable, type RawBuilder, type Selectable, sql, type Transaction } from 'kysely'
import type { AccessEventTable, Tables } from '../db/tables.js'
import { type Actor, commitment, GENESIS_HASH, type Shown, sha256 } from './audit.js'

/** The state of what decides on access, as JSON text: an event records it, and `audit verify` compares the last with what is stored. */
export const STATES = {
  user: sql`select id::text as subject, email as person,
      json_build_object('kind', kind, 'active', active, 'permissions', permissions) as detail from user_account`,
  group: sql`select id::text as subject, null as person, json_build_object('name', name, 'permissions', permissions,
        'members', array(select user_id from user_group_member m where m.user_group_id = g.id and not is_manager order by 1),
        'managers', array(select user_id from user_group_member m where m.user_group_id = g.id and is_manager order by 1)
      ) as detail from user_group g`,
  token: sql`select id::text as subject, (select email from user_account u where u.id = user_id) as person, json_build_object('user', user_id, 'hash', encode(hash, 'hex'),
        'scopes', scopes, 'persona_ids', persona_ids, 'tool_ids', tool_ids, 'requires_if_match', requires_if_match,
        'expires_at', ${utc('expires_at')}, 'revoked_at', ${utc('revoked_at')}) as detail from token`,
  document_set: sql`select id::text as subject, null as person, json_build_object('is_public', is_public,
        'users', array(select user_id from document_set_user where document_set_id = s.id order by 1),
        'groups', array(select user_group_id from document_set_group where document_set_id = s.id order by 1)
      ) as detail from document_set s`,
  mcp_server: ownedBy('mcp_server'),
  oauth_config: ownedBy('oauth_config'),
  user_file: ownedBy('user_file'),
} as const satisfies Record<string, RawBuilder<unknown>>

export type StatefulKind = keyof typeof STATES
/** What an event is about. `keys`, `apply`, `prune` and `erasure` are acts without a state of their own. */
export type AccessKind = StatefulKind | 'keys' | 'apply' | 'prune' | 'erasure'

export const STATEFUL_KINDS = Object.keys(STATES) as StatefulKind[] // the keys of this very record
export const ACCESS_KINDS: readonly AccessKind[] = [...STATEFUL_KINDS, 'keys', 'apply', 'prune', 'erasure']

/** A change of access. `subject` is an id, or of a kind without subjects the empty text. */
export interface AccessChange {
  kind: AccessKind
  subject: string
  /** In the past: `created`, `deactivated`. */
  action: string
  /** Whom it concerns, in clear text, where no state says so any more. */
  person?: string
  /** What to record where the kind has no state. */
  detail?: unknown
}

/** One access event. Bytes are hex, `at` is UTC with microseconds, `detail` is JSON text. */
export type AccessEvent = { [Column in keyof AccessEventTable]: Shown<Selectable<AccessEventTable>[Column]> } & {
  detail: string
}

/** The state of a subject as JSON text, and its clear text. */
interface AccessState {
  subject: string
  person: string | null
  detail: string
}

const CHANGES_AT_ONCE = 500

/** Adds an event for each change to the chain of its subject, in the transaction of the change, which then holds the chains. */
export async function recordAccess(
  trx: Transaction<Tables>,
  actor: Actor,
  changes: readonly AccessChange[],
): Promise<void> {
  for (let from = 0; from < changes.length; from += CHANGES_AT_ONCE) {
    const some = changes.slice(from, from + CHANGES_AT_ONCE)
    await appendEvents(trx, actor, some, await lockChains(trx, some))
  }
}

/** Adds the events to chains that `lockChains` locked. */
export async function appendEvents(
  trx: Transaction<Tables>,
  actor: Actor,
  changes: readonly AccessChange[],
  chains: Map<string, ChainHead>,
): Promise<void> {
  const states = new Map<string, AccessState>()
  for (const kind of STATEFUL_KINDS) {
    const subjects = changes.filter(change => change.kind === kind).map(({ subject }) => subject)
    for (const state of await readStates(trx, kind, subjects)) states.set(nameOf(kind, state.subject), state)
  }
  const events: AccessEvent[] = []
  for (const change of changes) {
    const name = nameOf(change.kind, change.subject)
    const chain = chains.get(name)
    if (chain === undefined) throw new Error(`the chain ${name} is missing`)
    const event = accessEvent(change, states.get(name), actor, chain)
    chains.set(name, { ...chain, number: event.number, hash: event.hash })
    events.push(event)
  }
  await store(trx, events, [...chains.values()])
}

/** The end of a chain, and the time now. */
interface ChainHead {
  kind: string
  subject: string
  number: number
  hash: string
  at: string
}

function nameOf(kind: string, subject: string): string {
  return `${kind} ${subject}`
}

/** Locks the chains, new ones too, always in one order. */
export async function lockChains(
  trx: Transaction<Tables>,
  changes: readonly Pick<AccessChange, 'kind' | 'subject'>[],
): Promise<Map<string, ChainHead>> {
  const wanted = sql`json_to_recordset(${JSON.stringify(changes)}::json) wanted (kind text, subject text)`
  await sql`
    insert into access_chain (kind, subject, number, hash)
    select distinct kind, subject, 0, decode(${GENESIS_HASH}, 'hex') from ${wanted} order by 1, 2
    on conflict do nothing`.execute(trx)
  const { rows } = await sql<ChainHead>`
    select kind, subject, number, encode(hash, 'hex') as hash,
      to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as at
    from access_chain where (kind, subject) in (select kind, subject from ${wanted})
    order by 1, 2 for update`.execute(trx)
  return new Map(rows.map(row => [nameOf(row.kind, row.subject), row]))
}

async function readStates(
  trx: Transaction<Tables>,
  kind: StatefulKind,
  subjects: readonly string[],
): Promise<AccessState[]> {
  if (subjects.length === 0) return []
  const { rows } = await sql<AccessState>`
    select subject, person, detail::text as detail from (${STATES[kind]}) state
    where subject = any(${subjects}::text[])`.execute(trx)
  return rows
}

function accessEvent(
  change: AccessChange,
  state: AccessState | undefined,
  actor: Actor,
  { number, hash, at }: ChainHead,
): AccessEvent {
  const person = change.person ?? state?.person ?? null
  const [salt, personSalt] = [randomUUID(), randomUUID()]
  const event = {
    kind: change.kind,
    subject: change.subject,
    number: number + 1,
    at,
    action: change.action,
    actor: actor.name,
    request_id: actor.requestId,
    client_address: actor.clientAddress,
    command: actor.command,
    salt,
    identity_hash: commitment(salt, actor.name, actor.clientAddress),
    person,
    person_salt: person === null ? null : personSalt,
    person_hash: person === null ? null : commitment(personSalt, person),
    detail: state?.detail ?? JSON.stringify(change.detail ?? null),
    previous_hash: hash,
  }
  return { ...event, hash: eventHash(event) }
}

/** SQL: the columns of access events. */
export const EVENT_COLUMNS = sql`kind, subject, number, at, action, actor, request_id, client_address, command, salt,
  encode(identity_hash, 'hex') as identity_hash, person, person_salt, encode(person_hash, 'hex') as person_hash,
  detail::text as detail, encode(previous_hash, 'hex') as previous_hash, encode(hash, 'hex') as hash`

/** The hash of an event: SHA-256 over its fields in a fixed order, people by their commitments. Hex. */
export function eventHash(event: Omit<AccessEvent, 'hash'>): string {
  const { kind, subject, number, at, action, identity_hash, request_id, command, person_hash, previous_hash } = event
  const said = [kind, subject, number, at, action, identity_hash, request_id, command, person_hash]
  return sha256(JSON.stringify([...said, sha256(event.detail), previous_hash]))
}

async function store(
  trx: Transaction<Tables>,
  events: readonly AccessEvent[],
  chains: readonly ChainHead[],
): Promise<void> {
  await trx.insertInto('access_event').values(events.map(rowOf)).execute()
  await sql`
    update access_chain c set number = given.number, hash = decode(given.hash, 'hex')
    from json_to_recordset(${JSON.stringify(chains)}::json) given (kind text, subject text, number integer, hash text)
    where c.kind = given.kind and c.subject = given.subject`.execute(trx)
}

function rowOf(event: AccessEvent): Insertable<AccessEventTable> {
  const { identity_hash, person_hash, previous_hash, hash, ...others } = event
  const bytes = (hex: string) => Buffer.from(hex, 'hex')
  const hashes = { identity_hash: bytes(identity_hash), previous_hash: bytes(previous_hash), hash: bytes(hash) }
  return { ...others, ...hashes, person_hash: person_hash === null ? null : bytes(person_hash) }
}

function utc(column: string): RawBuilder<string> {
  return sql`to_char(${sql.ref(column)} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`
}

function ownedBy(table: string): RawBuilder<unknown> {
  return sql`select id::text as subject, null as person, json_build_object('owner', to_jsonb(owned) -> 'owner_id') as detail
    from ${sql.table(table)} owned`
}
