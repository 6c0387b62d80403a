import { type Kysely, sql, type Transaction } from 'kysely'
import type { CallerNow } from '../auth/authenticate.js'
import type { Caller } from '../auth/caller.js'
import { viewerParameters, viewerWithValues } from '../auth/viewer.js'
import { withRetries } from '../db/connection/retry.js'
import type { Database } from '../db/database.js'
import type { Executor } from '../db/statements/statement.js'
import type { Tables } from '../db/tables.js'
import { inTransaction } from '../db/transaction.js'
import {
  Forbidden,
  InvalidRequest,
  PreconditionFailed,
  ProposalNotFound,
  Refused,
  TRY_AGAIN,
  Unavailable,
} from '../errors.js'
import type { KeyRing } from '../secrets/key-ring.js'
import { lockRow } from '../updates/new-row.js'
import { endProposals } from '../updates/proposals.js'
import type { ResourceTypes, VersionedResource } from '../updates/resource.js'
import { type Precondition, preconditionHolds } from '../updates/tag.js'
import type { ProposalKind } from './kinds.js'
import { proposalTag } from './schema.js'
import { lockProposal, type ProposalRow, readFields, readProposals } from './statements.js'

/** What an approval asks for. */
export interface Approval {
  /** The id of the proposal. */
  id: number
  /** The tag of the proposal as the approver saw it. */
  seen: Precondition
  /** True if authors may approve their own proposals. */
  byAnyone: boolean
  ring: KeyRing
  /** Takes the proposal as it is after its end. */
  ended(row: ProposalRow): void
}

/** An update with the fields of a proposal, by the rights of the approver. The proposal ends in its transaction. */
export function approvalOf({ resource, updateOf }: ProposalKind, approval: Approval): VersionedResource<ResourceTypes> {
  const { id, seen, byAnyone, ring, ended } = approval
  let approver: Caller
  let opened: ProposalRow
  return {
    ...resource,
    isAlone: () => false,
    decide: async (db, state, request) => {
      approver = request.caller
      await lockProposal(db, id) // after its record
      opened = await requireOpen(db, id, approver)
      if (opened.author_id === approver.userId && !byAnyone)
        throw new Refused('OWN_PROPOSAL', 'This proposal is your own: another person has to approve it.')
      requireDecider(opened)
      const tag = proposalTag(opened)
      if (!preconditionHolds(seen, tag)) throw new PreconditionFailed('changed', tag)
      requireNoConflicts(opened)
      const asked = { ...request, ...(await updateOf(db, await readFields(db, id), ring)) }
      const decision = await resource.decide(db, state, asked).catch(error => {
        throw error instanceof InvalidRequest ? unusable(error) : error
      })
      if (decision.changes.length === 0) throw new Refused('PROPOSAL_UNUSABLE', 'Nothing of it is left to change.')
      return { ...decision, command: `approve --proposal ${id} --author ${opened.author_id}` }
    },
    write: async (db, before, decision, viewer, entry) => {
      const version = await resource.write(db, before, decision, viewer, entry)
      if (version === undefined) return undefined
      const trx = db as Transaction<Tables> // an approval is never alone
      const state = 'approved'
      const [end] = await endProposals(trx, { state, by: approver.userId }, sql<boolean>`id = ${id}`)
      const [row] = await readProposals(trx, approver, { proposal: id })
      const closed = { closed_by: approver.userId, closer: approver.email, closed_at: end?.closed_at ?? null }
      ended(row ?? { ...opened, state, ...closed }) // an approval may end the sight of the approver
      return version
    },
  }
}

/** Ends an open proposal: its author withdraws it, or one who may decide rejects it. Throws `ProposalNotFound`, `Refused`. */
export async function endProposal(
  { db }: Database,
  readCaller: (executor: Executor) => Promise<CallerNow>,
  { id, state, reason }: { id: number; state: 'rejected' | 'withdrawn'; reason?: string },
): Promise<ProposalRow> {
  const work = async (trx: Transaction<Tables>) => {
    const before = await readCaller(trx)
    const { kind, record_id } = await requireSeen(trx, id, before.caller)
    if (!(await lockRow(trx, { kind }, record_id))) throw new ProposalNotFound()
    const { caller } = await readCaller(trx)
    const row = await requireOpen(trx, id, caller)
    if (state === 'rejected') requireDecider(row)
    else if (row.author_id !== caller.userId) throw new Forbidden('Only its author may withdraw a proposal.')
    const { grantsStand } = viewerWithValues(viewerParameters(caller))
    const end = { state, by: caller.userId, ...(reason !== undefined && { reason }) }
    const ended = await endProposals(trx, end, sql<boolean>`id = ${id} and ${grantsStand}`)
    if (ended.length === 0)
      throw new Unavailable('overloaded', `Your rights were changed meanwhile. ${TRY_AGAIN}`, 'not_applied')
    return await requireSeen(trx, id, caller)
  }
  return await withRetries(() => inTransaction({ db }, { rollback: false }, work))
}

async function requireSeen(db: Kysely<Tables>, id: number, caller: Caller): Promise<ProposalRow> {
  const [row] = await readProposals(db, caller, { proposal: id })
  if (row === undefined) throw new ProposalNotFound()
  return row
}

/** Returns an open proposal that the caller sees. Throws `ProposalNotFound`, `Refused`. */
async function requireOpen(db: Kysely<Tables>, id: number, caller: Caller): Promise<ProposalRow> {
  const row = await requireSeen(db, id, caller)
  if (row.state === 'open') return row
  const extra = { state: row.state }
  throw new Refused('PROPOSAL_CLOSED', `This proposal is not open any more: it is ${row.state}.`, { extra })
}

/** Throws `Forbidden` if the caller may not update the record. */
function requireDecider({ may_decide }: ProposalRow): void {
  if (!may_decide) throw new Forbidden('Deciding on a proposal takes the right to update its agent or tool.')
}

function requireNoConflicts({ conflicts }: ProposalRow): void {
  if (conflicts.length === 0) return
  const changed = `These fields changed since the base of the proposal: ${conflicts.join(', ')}.`
  throw new Refused('PROPOSAL_CONFLICT', `${changed} Propose it again from what is stored now.`, {
    extra: { conflicts },
  })
}

const FAULTS_NAMED_MAX = 5

/** The refusal of a proposal that was valid when its author made it. */
function unusable({ faults }: InvalidRequest): Refused {
  const named = faults.slice(0, FAULTS_NAMED_MAX).map(({ loc: [, ...place], msg }) => `${place.join('.')}: ${msg}`)
  return new Refused('PROPOSAL_UNUSABLE', `You cannot store this now. ${named.join('; ')}`)
}
