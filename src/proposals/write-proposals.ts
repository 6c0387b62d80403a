import { type TObject, Type } from '@sinclair/typebox'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { type Kysely, sql } from 'kysely'
import type { RoutePolicy } from '../auth/authenticate.js'
import type { Caller } from '../auth/caller.js'
import { viewerParameters, viewerWithValues } from '../auth/viewer.js'
import { withRetries } from '../db/connection/retry.js'
import type { Tables } from '../db/tables.js'
import { inTransaction } from '../db/transaction.js'
import { Forbidden, InvalidRequest, Refused, ResourceNotFound } from '../errors.js'
import { addWarnings, unknownFieldWarnings } from '../http/answer.js'
import { responses } from '../http/openapi.js'
import { IfMatchOfApproval } from '../http/parameters.js'
import { commonOf, requirePlain } from '../http/writes.js'
import type { CheckedDefinition } from '../tool/rules.js'
import type { ToolOptions } from '../tool/write-tool.js'
import { decideRequest, readAgain, store } from '../updates/engine.js'
import { fillKey, Repeated, takeKey } from '../updates/idempotency.js'
import { endProposals } from '../updates/open-proposals.js'
import type { Job, Propose, ResourceTypes, Stored, VersionedResource } from '../updates/resource.js'
import { lockRow } from '../updates/statements.js'
import { entityTag, type Precondition, preconditionHolds } from '../updates/tag.js'
import { SAME_KEY, unknownOutcome } from '../updates/unavailable.js'
import { unknownFields } from '../validation/faults.js'
import { pathId } from '../validation/parameters.js'
import { PROPOSAL_KINDS, proposedBy } from './kinds.js'
import { proposalTag, summaryOf } from './read-proposals.js'
import { RejectRequest } from './schema.js'
import { insertProposal, type ProposalRow, readFields, readProposal, requireRoom, rightsChanged } from './statements.js'

/* Every decision on a proposal first locks the agent or tool, so only one of two concurrent decisions takes effect. */

/**
 * Stores an update as a proposal, with the checks of a direct update. To propose a change of an agent, the author needs only the right to see the
 * agent. Throws the errors of an update, and `Refused` if there are too many open proposals.
 */
export const propose: Propose = async (job, message) => {
  const { database, request } = job
  const { key, kind, id } = request
  const look = `Look for the proposal with GET /proposals?kind=${kind}&id=${id}&state=open before you repeat the request.`
  const unknown = unknownOutcome('the proposal was stored', key === null ? look : SAME_KEY)
  try {
    return await withRetries(() => proposeOnce(job, message)).catch(unknown)
  } catch (error) {
    if (!(error instanceof Repeated)) throw error
    const row = await withRetries(() => readProposal(database.db, request.caller, error.first.id))
    return answerOf(row, null)
  }
}

const readState = (id: number) => `Send GET /proposals/${id}: the state of the proposal shows the outcome.`

const TAG_REQUIRED =
  'With propose=true, If-Match must be the ETag of the agent or tool, not *. A GET of the agent or tool returns the ETag.'

async function proposeOnce<T extends ResourceTypes>(job: Job<T>, message: string): Promise<Stored<T>> {
  const { resource, database } = job
  const { key, id, precondition, dryRun } = job.request
  const { kind } = resource
  if (precondition.kind === 'any') throw new Refused('PRECONDITION_REQUIRED', TAG_REQUIRED)
  const asking = { ...job, request: { ...job.request, preconditionRequired: true } }
  return await inTransaction(database, { rollback: dryRun }, async trx => {
    if (key !== null) await takeKey(trx, key)
    await lockRow(trx, kind, id)
    const now = await readAgain(trx, asking)
    const { caller } = now.request
    if (!resource.isVisible(now.state, caller)) throw new ResourceNotFound(kind)
    const decision = await decideRequest(trx, { resource, request: now.request }, now.state)
    if (decision.changes.length === 0) throw new InvalidRequest([NOTHING])
    const { definition = null } = decision as { definition?: CheckedDefinition | null } // only tools have a definition
    const { version } = now.state
    const content = { message, fields: proposedBy(decision), definition }
    const proposal = await insertProposal(trx, caller, { kind, id, version, ...content })
    const row = await readProposal(trx, caller, proposal)
    await requireRoom(trx, row)
    if (key !== null) await fillKey(trx, key, { id: proposal, version })
    return answerOf(row, decision)
  })
}

const NOTHING = { loc: ['body'], msg: 'The proposal would change nothing: change a field', type: 'nothing_to_propose' }

function answerOf<T extends ResourceTypes>(row: ProposalRow, decision: T['Decision'] | null): Stored<T> {
  const proposal = { location: `/proposals/${row.id}`, tag: proposalTag(row) }
  const { id, version } = row.record
  return { snapshot: summaryOf(row), id, version: version ?? 0, decision, overwritten: [], proposal }
}

const ACTS = {
  approve:
    'Approves a proposal and stores its update with the rights of the caller. Requires the `ETag` of the proposal as `If-Match`. Authors cannot ' +
    'approve their own proposals, unless the service runs with `APPROVAL=anyone`. If a proposed field has changed since the base version, ' +
    'nothing is stored, and 409 names the field.',
  reject: 'Rejects a proposal with a reason. Requires the right to update the record.',
  withdraw: 'Withdraws a proposal. Only its author may do so.',
}

/** `POST /proposals/{proposal_id}/approve`, `/reject` and `/withdraw`. `byAnyone`: authors may approve their own proposals. */
export function registerDecideProposals(app: FastifyInstance, options: ToolOptions, byAnyone: boolean): void {
  const { database, ring } = options
  register('approve', { headers: Type.Object({ 'if-match': IfMatchOfApproval }) }, async (request, row, reply) => {
    const { 'if-match': seen } = request.headers as unknown as { 'if-match'?: Precondition } // the route's schema parses the header
    if (seen?.kind !== 'tags') throw new Refused('PRECONDITION_REQUIRED', IF_MATCH_REQUIRED)
    const { kind, record } = row
    const basis = { ...commonOf(request, 'update', options), requireApproval: NONE, precondition: ANY, minimal: true }
    const resource = approvalOf(row, { seen, byAnyone, ring })
    const asked = { ...basis, kind, id: record.id, fields: {}, key: null }
    const { decision, version } = await store({ database, resource, request: asked }, null)
    const viewer = viewerParameters(request.caller)
    if (decision !== null) addWarnings(reply, await PROPOSAL_KINDS[kind].warningsOf(database.db, decision, viewer))
    reply.header('etag', entityTag(kind, record.id, version))
  })
  register('reject', { body: RejectRequest }, async (request, row, reply) => {
    const { reason } = request.body as typeof RejectRequest.static // the route's schema validates the body
    requirePlain(reason, ['body', 'reason'])
    addWarnings(reply, unknownFieldWarnings(unknownFields(RejectRequest, request.body as object)))
    await end(request, row, { state: 'rejected', reason }, requireDecider)
  })
  register('withdraw', {}, async (request, row) => {
    await end(request, row, { state: 'withdrawn' }, ({ author }, { userId }) => {
      if (author.id !== userId) throw new Forbidden('Only the author of this proposal may withdraw it.')
    })
  })

  function register(
    act: keyof typeof ACTS,
    asked: { headers?: TObject; body?: TObject },
    run: (request: FastifyRequest, row: ProposalRow, reply: FastifyReply) => Promise<void>,
  ): void {
    const done = { description: 'The new state of the proposal was stored.', headers: ['etag', 'warning'] } as const
    const schema = {
      operationId: `${act}_proposal`,
      summary: `${act.charAt(0).toUpperCase()}${act.slice(1)} Proposal`,
      description: ACTS[act],
      params: Type.Object({ proposal_id: pathId() }),
      ...asked,
      response: responses({ 204: done }, act === 'approve' ? [404, 409, 412, 428] : [404, 409]),
    }
    const policy: RoutePolicy = { permission: 'basic', writes: true, ...(act === 'withdraw' && { proposes: true }) }
    app.post(
      `/proposals/:proposal_id/${act}`,
      { bodyLimit: 8 * 1024, config: { policy }, schema },
      async (request, reply) => {
        const { proposal_id: id } = request.params as { proposal_id?: number }
        await run(request, await withRetries(() => readProposal(database.db, request.caller, id)), reply)
        return reply.code(204).send()
      },
    )
  }

  async function end(
    request: FastifyRequest,
    { id, kind, record }: ProposalRow,
    given: { state: 'rejected' | 'withdrawn'; reason?: string },
    require: (row: ProposalRow, caller: Caller) => void,
  ): Promise<void> {
    const work = () =>
      inTransaction(database, { rollback: false }, async trx => {
        await lockRow(trx, kind, record.id)
        const { caller } = await request.readNow(trx)
        const row = await readOpen(trx, caller, id)
        require(row, caller)
        const { grantsStand } = viewerWithValues(viewerParameters(caller))
        const match = sql<boolean>`id = ${id} and ${grantsStand}`
        if ((await endProposals(trx, { ...given, by: caller.userId }, match)) === 0) throw rightsChanged()
      })
    await withRetries(work).catch(unknownOutcome(`the proposal was ${given.state}`, readState(id)))
  }
}

const NONE = 'none' as const // an approval needs no further approval
const ANY = { kind: 'any' } as const
const IF_MATCH_REQUIRED = 'An approval must have If-Match with the ETag that GET /proposals/{id} returns.'

interface Approval {
  /** The tag from the approval's `If-Match`. */
  seen: Precondition
  byAnyone: boolean
  ring: ToolOptions['ring']
}

/** Returns a resource whose update applies a proposal with the rights of the approver. Its `write` also ends the proposal. */
function approvalOf({ id, kind }: ProposalRow, { seen, byAnyone, ring }: Approval): VersionedResource<ResourceTypes> {
  const { resource, updateOf } = PROPOSAL_KINDS[kind]
  return {
    ...resource,
    isAlone: () => false,
    remedy: readState(id),
    decide: async (db, state, request, locks) => {
      const { caller } = request
      const row = await readOpen(db, caller, id)
      if (row.author.id === caller.userId && !byAnyone)
        throw new Refused('OWN_PROPOSAL', 'This proposal is your own: another user has to approve it.')
      requireDecider(row)
      const tag = proposalTag(row)
      if (!preconditionHolds(seen, tag))
        throw new Refused('PRECONDITION_FAILED', STALE_READ, {
          extra: { reason: 'changed', current_etag: tag, changed: null },
        })
      const { conflicts } = row
      if (conflicts?.length !== 0) throw new Refused('PROPOSAL_CONFLICT', CONFLICT, { extra: { conflicts } })
      const asked = { ...request, ...(await updateOf(db, await readFields(db, row), ring)) }
      const decision = await resource.decide(db, state, asked, locks).catch(error => {
        throw error instanceof InvalidRequest ? unusable(error) : error
      })
      if (decision.changes.length === 0)
        throw new Refused('PROPOSAL_UNUSABLE', 'The record already has the proposed values. Reject the proposal.')
      return { ...decision, command: `approve --proposal ${id} --author ${row.author.id}` }
    },
    write: async (db, state, decision, viewer, entry) => {
      const version = await resource.write(db, state, decision, viewer, entry)
      const approved = { state: 'approved', by: viewer.user } as const
      if (version === undefined || (await endProposals(db, approved, sql<boolean>`id = ${id}`)) > 0) return version
      throw new Refused('PROPOSAL_CLOSED', 'This proposal has ended, because its author was erased.')
    },
  }
}

const STALE_READ =
  'If-Match is not the current ETag of this proposal, because its agent or tool has changed or the tag is wrong. Send GET /proposals/{id} again.'
const CONFLICT =
  'Proposed fields have changed since the base version, so you cannot approve this proposal. Its author can propose the change again.'

async function readOpen(db: Kysely<Tables>, caller: Caller, id: number): Promise<ProposalRow> {
  const row = await readProposal(db, caller, id)
  if (row.state === 'open') return row
  throw new Refused('PROPOSAL_CLOSED', `This proposal is no longer open: it is ${row.state}.`)
}

function requireDecider({ may_decide }: ProposalRow): void {
  if (!may_decide) throw new Forbidden('Deciding on a proposal requires the right to update its agent or tool.')
}

const FAULTS_NAMED_MAX = 5

/** The error for a proposal that was valid when it was stored but is not valid now. */
function unusable({ faults }: InvalidRequest): Refused {
  const named = faults.slice(0, FAULTS_NAMED_MAX).map(({ loc: [, ...place], msg }) => `${place.join('.')}: ${msg}`)
  return new Refused('PROPOSAL_UNUSABLE', `You cannot approve this proposal. Its faults: ${named.join('; ')}`)
}
