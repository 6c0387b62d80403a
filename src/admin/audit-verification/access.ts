import { Type } from '@sinclair/typebox'
import { TypeCompiler } from '@sinclair/typebox/compiler'
import { type Kysely, sql } from 'kysely'
import type { Database } from '../../db/tables.js'
import { type AccessEvent, eventText, readEvents, readStates, STATEFUL_KINDS } from '../../updates/access-events.js'
import { commitment, GENESIS_HASH, sha256 } from '../../updates/audit.js'
import { firstKept, isPruningMark } from '../../updates/prune.js'
import { RESOURCE_KINDS } from '../../updates/resource-pages.js'
import type { Erasures } from '../erasure.js'
import {
  type AuditFinding,
  type AuditVerification,
  grouped,
  type Leaf,
  leavesBySubject,
  notesOf,
  type Problem,
  type VerifyOptions,
} from './findings.js'

interface EventChain {
  kind: string
  subject: string
  number: number
  hash: string
}

const EVENTS_AT_ONCE = 2_000

/** Verifies the chain and the leaves of each access event, and adds to the result. */
export async function verifyEvents(
  db: Kysely<Database>,
  erasures: Erasures,
  { progress }: VerifyOptions,
  result: AuditVerification,
): Promise<void> {
  for (let after: { kind: string; subject: string } | undefined; ; ) {
    const { rows: names } = await sql<{ kind: string; subject: string }>`
      select kind, subject from (
        select kind, subject from access_chain
        union select kind, subject from access_event
        union select kind, subject from audit_leaf where kind <> all(${RESOURCE_KINDS}::text[])
      ) chain where ${after === undefined ? sql`true` : sql`(kind, subject) > (${after.kind}::text, ${after.subject}::text)`}
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

function eventFindings(
  chain: EventChain,
  events: readonly AccessEvent[],
  erasures: Erasures,
  leaves: ReadonlyMap<number, string>,
): AuditFinding[] {
  const { findings, note } = notesOf(chain.kind, chain.subject)
  let { number, head } = startOf(events)
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

/**
 * Before which event a chain begins. Up to 1.3 of the prunings of an agent or tool only the last was kept; since then each says from
 * which number on they are.
 */
function startOf(events: readonly AccessEvent[]): { number: number; head: string } {
  const [first] = events
  const last = events.at(-1)
  if (first?.kind !== 'prune' || last === undefined) return { number: 0, head: GENESIS_HASH }
  const mark: unknown = JSON.parse(last.detail)
  const kept = isPruningMark(mark) ? firstKept(mark, last.number) : 1
  return kept > 1 ? { number: kept - 1, head: first.previous_hash } : { number: 0, head: GENESIS_HASH }
}

const EDITED_EVENT: Problem = ['edited', 'the event does not have the content that its hash was made of']

function eventProblem(event: AccessEvent, erasures: Erasures): Problem | undefined {
  const { salt, actor, client_address, person, person_salt, person_hash } = event
  if (sha256(eventText(event)) !== event.hash || !isReadable(event)) return EDITED_EVENT
  if (salt === null || commitment(salt, actor, client_address) !== event.identity_hash) return EDITED_EVENT
  if (person_hash === null) return person === null ? undefined : EDITED_EVENT
  if (person !== null) return commitment(person_salt ?? '', person) === person_hash ? undefined : EDITED_EVENT
  const remains = erasures.get(`${event.kind}:${event.subject}:${event.number}`)
  if (person_salt !== null || remains === undefined) return ['erased', 'a person was erased, and no erasure says so']
  return remains === event.hash ? undefined : EDITED_EVENT
}

/** Whether what the event says can be used where verification relies on it. */
function isReadable({ kind, detail }: AccessEvent): boolean {
  if (kind === 'prune') return isPruningMark(JSON.parse(detail))
  return kind !== 'erasure' || ERASURE.Check(JSON.parse(detail))
}

/** What an erasure says, as far as verification uses it: the place and the digest of each row and event. */
const ERASURE = TypeCompiler.Compile(Type.Object({ erased: Type.Array(Type.Tuple([Type.String(), Type.String()])) }))

/** Compares who may do what with the last event of each user, group, token and so on: each has one. */
export async function accessFindings(db: Kysely<Database>): Promise<AuditFinding[]> {
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
