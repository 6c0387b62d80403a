import { randomUUID } from 'node:crypto'
import {
  type AliasedExpression,
  type Expression,
  type Insertable,
  type Selectable,
  sql,
  type Transaction,
} from 'kysely'
import { jsonBuildObject } from 'kysely/helpers/postgres'
import {
  anyOf,
  arrayOf,
  bytesOf,
  hexOf,
  instant,
  lit,
  NOW,
  on,
  queries,
  recordsOf,
  val,
} from '../db/statements/queries.js'
import type { SqlTypes } from '../db/statements/statement.js'
import type { AccessEventTable, Tables } from '../db/tables.js'
import { type Actor, commitment, GENESIS_HASH, type Shown, sha256 } from './audit.js'

const db = queries()
const nobody = lit(null).$castTo<string | null>().as('person')
const { cast } = on()

/** SQL: what decides on access, as one JSON object per subject. An event records it; `audit verify` compares the last event with the stored rows. */
export const STATES = {
  user: db
    .selectFrom('user_account as u')
    .select(({ cast, ref }) => [
      cast<string>('u.id', 'text').as('subject'),
      ref('u.email').$castTo<string | null>().as('person'),
      jsonBuildObject({ kind: ref('u.kind'), active: ref('u.active'), permissions: ref('u.permissions') }).as('detail'),
    ]),
  group: db.selectFrom('user_group as g').select(({ cast, ref, selectFrom }) => {
    const people = selectFrom('user_group_member as m').select('m.user_id').whereRef('m.user_group_id', '=', 'g.id')
    const [members, managers] = [
      people.where(({ not, ref }) => not(ref('m.is_manager'))),
      people.where(({ ref }) => ref('m.is_manager')),
    ]
    const detail = {
      name: ref('g.name'),
      permissions: ref('g.permissions'),
      members: arrayOf(members.orderBy('m.user_id')),
      managers: arrayOf(managers.orderBy('m.user_id')),
    }
    return [cast<string>('g.id', 'text').as('subject'), nobody, jsonBuildObject(detail).as('detail')]
  }),
  token: db
    .selectFrom('token as t')
    .innerJoin('user_account as u', 'u.id', 't.user_id')
    .select(({ cast, ref }) => {
      const detail = {
        user: ref('t.user_id'),
        hash: hexOf(ref('t.hash')),
        scopes: ref('t.scopes'),
        persona_ids: ref('t.persona_ids'),
        tool_ids: ref('t.tool_ids'),
        requires_if_match: ref('t.requires_if_match'),
        expires_at: instant(ref('t.expires_at')),
        revoked_at: instant(ref('t.revoked_at')),
      }
      const person = ref('u.email').$castTo<string | null>().as('person')
      return [cast<string>('t.id', 'text').as('subject'), person, jsonBuildObject(detail).as('detail')]
    }),
  document_set: db.selectFrom('document_set as s').select(({ cast, ref, selectFrom }) => {
    const users = selectFrom('document_set_user as m').select('m.user_id').whereRef('m.document_set_id', '=', 's.id')
    const groups = selectFrom('document_set_group as m')
      .select('m.user_group_id')
      .whereRef('m.document_set_id', '=', 's.id')
    const detail = {
      is_public: ref('s.is_public'),
      users: arrayOf(users.orderBy('m.user_id')),
      groups: arrayOf(groups.orderBy('m.user_group_id')),
    }
    return [cast<string>('s.id', 'text').as('subject'), nobody, jsonBuildObject(detail).as('detail')]
  }),
  mcp_server: ownedBy('mcp_server'),
  oauth_config: ownedBy('oauth_config'),
  user_file: ownedBy('user_file'),
} as const satisfies Record<string, Expression<{ subject: string; person: string | null; detail: unknown }>>

function ownedBy(table: 'mcp_server' | 'oauth_config' | 'user_file') {
  return db
    .selectFrom(`${table as 'mcp_server'} as owned`) // the other tables have the same two columns
    .select(({ cast, ref }) => {
      const detail = jsonBuildObject({ owner: ref('owned.owner_id') })
      return [cast<string>('owned.id', 'text').as('subject'), nobody, detail.as('detail')]
    })
}

export type StatefulKind = keyof typeof STATES
/** The kind of subject of an event. `keys`, `apply`, `prune` and `erasure` are operations without a stored state. */
export type AccessKind = StatefulKind | 'keys' | 'apply' | 'prune' | 'erasure'

export const STATEFUL_KINDS = Object.keys(STATES) as StatefulKind[]
export const ACCESS_KINDS: readonly AccessKind[] = [...STATEFUL_KINDS, 'keys', 'apply', 'prune', 'erasure']

/** A change of access. `subject` is an id, or empty for a kind without subjects. */
export interface AccessChange {
  kind: AccessKind
  subject: string
  /** A past participle: `created`, `deactivated`. */
  action: string
  /** The email of the person concerned, if the stored state no longer has it. */
  person?: string
  /** The details to record for a kind without a stored state. */
  detail?: unknown
}

/** One access event. Bytes are hex, `at` is UTC with microseconds, `detail` is JSON text. */
export type AccessEvent = { [Column in keyof AccessEventTable]: Shown<Selectable<AccessEventTable>[Column]> } & {
  detail: string
}

/** The state of a subject as JSON text, and the email of its person. */
interface AccessState {
  subject: string
  person: string | null
  detail: string
}

const CHANGES_AT_ONCE = 500

/** Adds an event for each change to the chain of its subject. The chains stay locked until the transaction of the change ends. */
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

/** The last event of a chain, and the current time `at`. */
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

/** Locks the chains, and creates those that are missing. Sorted by kind and subject, so that two transactions cannot deadlock. */
export async function lockChains(
  trx: Transaction<Tables>,
  changes: readonly Pick<AccessChange, 'kind' | 'subject'>[],
): Promise<Map<string, ChainHead>> {
  const wanted = trx.selectFrom(records<{ kind: string; subject: string }>(changes, { kind: 'text', subject: 'text' }))
  const first = wanted
    .select(['kind', 'subject', lit(0).as('number'), bytesOf(lit(GENESIS_HASH)).as('hash')])
    .distinct()
  await trx
    .insertInto('access_chain')
    .columns(['kind', 'subject', 'number', 'hash'])
    .expression(first.orderBy('kind').orderBy('subject'))
    .onConflict(conflict => conflict.doNothing())
    .execute()
  const rows = await trx
    .selectFrom('access_chain')
    .select(({ ref }) => ['kind', 'subject', 'number', hexOf(ref('hash')).as('hash'), instant(NOW).as('at')])
    .where(({ eb, refTuple }) =>
      eb(refTuple('kind', 'subject'), 'in', wanted.select(['kind', 'subject']).$asTuple('kind', 'subject')),
    )
    .orderBy('kind')
    .orderBy('subject')
    .forUpdate()
    .execute()
  return new Map(rows.map(row => [nameOf(row.kind, row.subject), row]))
}

/** SQL: JSON records as the rows `given`. */
function records<Row>(rows: readonly object[], types: SqlTypes<Row>) {
  return recordsOf<Row, 'given'>(cast(val(JSON.stringify(rows)), 'jsonb'), 'given', types)
}

async function readStates(
  trx: Transaction<Tables>,
  kind: StatefulKind,
  subjects: readonly string[],
): Promise<AccessState[]> {
  if (subjects.length === 0) return []
  const state: AliasedExpression<Omit<AccessState, 'detail'> & { detail: unknown }, 'state'> = STATES[kind].as('state')
  return await trx
    .selectFrom(state)
    .select(({ cast }) => ['subject', 'person', cast<string>('detail', 'text').as('detail')])
    .where('subject', '=', anyOf(val(subjects)))
    .execute()
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

/** SQL: the columns of an access event as `AccessEvent` has them. */
export const EVENT_COLUMNS = sql`kind, subject, number, at, action, actor, request_id, client_address, command, salt,
  encode(identity_hash, 'hex') as identity_hash, person, person_salt, encode(person_hash, 'hex') as person_hash,
  detail::text as detail, encode(previous_hash, 'hex') as previous_hash, encode(hash, 'hex') as hash`

/** The hash of an event in hex: SHA-256 of its fields in a fixed order. People are covered by their commitments, so that they can be erased. */
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
  const types = { kind: 'text', subject: 'text', number: 'integer', hash: 'text' }
  await trx
    .updateTable('access_chain as c')
    .from(records<Pick<ChainHead, keyof typeof types>>(chains, types))
    .set(({ ref }) => ({ number: ref('given.number'), hash: bytesOf(ref('given.hash')) }))
    .whereRef('c.kind', '=', 'given.kind')
    .whereRef('c.subject', '=', 'given.subject')
    .execute()
}

function rowOf(event: AccessEvent): Insertable<AccessEventTable> {
  const { identity_hash, person_hash, previous_hash, hash, ...others } = event
  const bytes = (hex: string) => Buffer.from(hex, 'hex')
  const hashes = { identity_hash: bytes(identity_hash), previous_hash: bytes(previous_hash), hash: bytes(hash) }
  return { ...others, ...hashes, person_hash: person_hash === null ? null : bytes(person_hash) }
}
