import { Type } from '@sinclair/typebox'
import { TypeCompiler } from '@sinclair/typebox/compiler'
import { type Kysely, sql, type Transaction } from 'kysely'
import type { Tables } from '../db/tables.js'
import { type AccessEvent, EVENT_COLUMNS, eventHash, STATEFUL_KINDS, STATES } from '../updates/access-events.js'
import { commitment, GENESIS_HASH } from '../updates/audit.js'
import { isPruningMark } from '../updates/prune.js'
import { inOneSnapshot } from '../updates/read.js'
import { RESOURCE_KINDS } from '../updates/resource-pages.js'
import type { AuditFinding, AuditVerification, Erasures, Problem } from './audit-verification/finding.js'
import { verifyResources } from './audit-verification/resources.js'
import { checkpointFindings, headFindings } from './checkpoint.js'
import { scan } from './scan.js'

/**
 * Recomputes every chain in one database snapshot. Reports rows and events that were edited, emptied, erased, deleted or reordered without
 * a pruning or erasure event; content and access that changed without a row; and differences from a checkpoint. `checkpoint` is the path of
 * a file whose signature was checked.
 */
export async function verifyAudit(db: Kysely<Tables>, checkpoint?: string): Promise<AuditVerification> {
  const verify = async (trx: Transaction<Tables>) => {
    const result: AuditVerification = { chains: 0, rows: 0, findings: [] }
    const erasures = await readErasures(trx)
    for (const kind of RESOURCE_KINDS) await verifyResources(trx, kind, erasures, result)
    await verifyEvents(trx, erasures, result)
    const msg = 'the last row from before the upgrade to 2.0 is missing or was replaced'
    result.findings.push(
      ...(await definitionFindings(trx)),
      ...(await accessFindings(trx)),
      ...(await headFindings(trx, sql`audit_upgrade_head`, { problem: 'head_mismatch', msg })),
      ...(checkpoint === undefined ? [] : await checkpointFindings(trx, checkpoint)),
    )
    return result
  }
  return await (db.isTransaction ? verify(db as Transaction<Tables>) : inOneSnapshot({ db }, verify)) // `isTransaction` is true
}

/** Each definition is stored under the SHA-256 of its text: recompute it. */
async function definitionFindings(trx: Transaction<Tables>): Promise<AuditFinding[]> {
  const { rows } = await sql<Pick<AuditFinding, 'kind' | 'subject' | 'msg'>>`
    select 'tool_definition' as kind, encode(hash, 'hex') as subject,
      'the text of the definition is not the one that its hash was made of' as msg
    from tool_definition where hash <> sha256(convert_to(content::text, 'UTF8'))
    union all
    select 'tool', id::text, 'the text of its definition is gone' from tool t
    where not exists (select from tool_definition d where d.hash = t.definition_hash) and definition_hash is not null
    order by 1 desc, 2`.execute(trx)
  return rows.map(row => ({ ...row, number: 0, problem: 'content_mismatch' }))
}

const EVENTS_AT_ONCE = 50

interface EventChain {
  kind: string
  subject: string
  number: number
  hash: string
  /** Versions up to 1.3 kept only the last pruning event of a resource. Earlier ones may be missing up to this number. */
  upgraded_number: number
}

/** Verifies the chain of access events of each subject, and adds to the result. */
async function verifyEvents(trx: Transaction<Tables>, erasures: Erasures, result: AuditVerification): Promise<void> {
  const chains = scan(
    trx,
    'event_chains',
    sql<EventChain>`
      select kind, subject, coalesce(c.number, 0) as number,
        coalesce(encode(c.hash, 'hex'), ${sql.lit(GENESIS_HASH)}) as hash, coalesce(u.number, 0) as upgraded_number
      from (select kind, subject from access_chain union select kind, subject from access_event) existing
      left join access_chain c using (kind, subject) left join audit_upgrade_head u using (kind, subject)
      order by kind, subject`,
    EVENTS_AT_ONCE,
  )
  const all = sql<AccessEvent>`select ${EVENT_COLUMNS} from access_event order by kind, subject, number`
  const events = scan(trx, 'access_events', all, EVENTS_AT_ONCE)
  let event = (await events.next()).value
  for await (const { kind, subject, upgraded_number, ...end } of chains) {
    const note = (number: number, problem: AuditFinding['problem'], msg: string) =>
      result.findings.push({ kind, subject, number, problem, msg })
    const isLate = kind === 'prune' && event !== undefined && event.number <= upgraded_number
    let [number, head] = isLate && event ? [event.number - 1, event.previous_hash] : [0, GENESIS_HASH]
    for (; event?.kind === kind && event.subject === subject; event = (await events.next()).value) {
      result.rows++
      const problem = problemOf(event, erasures)
      if (problem) note(event.number, ...problem)
      if (event.number > number + 1) note(number + 1, 'deleted', `events are missing before number ${event.number}`)
      else if (event.previous_hash !== head)
        note(event.number, 'reordered', 'the event does not follow the one before it')
      number = event.number
      head = event.hash
    }
    if (number < end.number) note(number + 1, 'deleted', `the last events are missing, up to number ${end.number}`)
    else if (number !== end.number || head !== end.hash) {
      note(number, 'head_mismatch', 'the last event is not the one that its chain names as its head')
    }
    result.chains++
  }
}

const EDITED: Problem = ['edited', 'the event does not have the content that its hash was made of']

function problemOf(event: AccessEvent, erasures: Erasures): Problem | undefined {
  const { salt, actor, client_address, person, person_salt, person_hash } = event
  if (eventHash(event) !== event.hash || !isReadable(event)) return EDITED
  if (salt === null || commitment(salt, actor, client_address) !== event.identity_hash) return EDITED
  if (person_hash === null) return person === null ? undefined : EDITED
  if (person !== null) return commitment(person_salt ?? '', person) === person_hash ? undefined : EDITED
  const erasure = erasures.get(`${event.kind}:${event.subject}:${event.number}`)
  if (person_salt !== null || erasure === undefined) return ['erased', 'a person was erased, and no erasure says so']
  return erasure === event.hash ? undefined : EDITED
}

/** True if the details that verification relies on have the expected shape. */
function isReadable({ kind, detail }: AccessEvent): boolean {
  if (kind === 'prune') return isPruningMark(JSON.parse(detail))
  return kind !== 'erasure' || ERASURE.Check(JSON.parse(detail))
}

/** The details of an erasure event: the place and hash of each erased row or event. */
const ERASURE = TypeCompiler.Compile(Type.Object({ erased: Type.Array(Type.Tuple([Type.String(), Type.String()])) }))

/** Reads the erasure events. */
async function readErasures(trx: Transaction<Tables>): Promise<Erasures> {
  const { rows } = await sql<{ detail: string }>`
    select detail::text as detail from access_event where kind = 'erasure'`.execute(trx)
  const details = rows.map(({ detail }): unknown => JSON.parse(detail)).filter(detail => ERASURE.Check(detail))
  return new Map(details.flatMap(({ erased }) => erased))
}

/** Compares the stored access of each user, group, token and so on with its last event. */
async function accessFindings(trx: Transaction<Tables>): Promise<AuditFinding[]> {
  const findings: AuditFinding[] = []
  for (const kind of STATEFUL_KINDS) {
    const { rows } = await sql<{ subject: string; number: number | null }>`
      select subject, e.number from (${STATES[kind]}) state
      full join (
        select distinct on (subject) subject, number, person, detail from access_event
        where kind = ${kind} order by subject, number desc) e using (subject)
      where case when e.number is null
          then not exists (select from access_chain c where c.kind = ${kind} and c.subject = state.subject and c.number > 0)
        else coalesce(state.detail::text, 'null') <> e.detail::text or (${kind} = 'user' and state.person <> e.person) end
      order by subject`.execute(trx)
    for (const { subject, number } of rows) {
      const unrecorded = { problem: 'unrecorded', msg: 'it exists, and no event records its creation' } as const
      const other = { problem: 'content_mismatch', msg: 'what is stored is not what the last event says' } as const
      findings.push({ kind, subject, number: number ?? 0, ...(number === null ? unrecorded : other) })
    }
  }
  return findings
}
