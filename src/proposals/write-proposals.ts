import { type TObject, Type } from '@sinclair/typebox'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { withRetries } from '../db/connection/retry.js'
import { ProposalNotFound, Refused, Unavailable, VersionGone } from '../errors.js'
import { JSON_TYPE } from '../http/answer.js'
import { responses } from '../http/openapi.js'
import { IfMatch } from '../http/parameters.js'
import { addWarnings, unknownFieldWarnings } from '../http/warnings.js'
import { basisOf } from '../http/writes.js'
import type { ToolOptions } from '../tool/write-tool.js'
import { store } from '../updates/engine.js'
import type { Propose } from '../updates/resource.js'
import type { Precondition } from '../updates/tag.js'
import { unavailableFor } from '../updates/unavailable.js'
import { unknownFields } from '../validation/faults.js'
import { pathId } from '../validation/parameters.js'
import { reference } from '../validation/vocabulary.js'
import { approvalOf, endProposal } from './approval.js'
import { PROPOSAL_KINDS } from './kinds.js'
import { propose } from './propose.js'
import { ProposalSummary, proposalTag, RejectRequest, summaryOf } from './schema.js'
import { showProposal } from './show.js'
import { type ProposalRow, readProposals } from './statements.js'

/** Makes the function that stores an update as a proposal and shows it. */
export function proposer(options: Parameters<typeof showProposal>[0]): Propose {
  return async (job, message, request) => {
    const proposed = await propose(job, message)
    try {
      return { ...proposed, ...(await withRetries(() => showProposal(options, request, proposed.id))) }
    } catch (error) {
      if (error instanceof ProposalNotFound)
        throw new VersionGone('deleted', `This request stored proposal ${proposed.id}, which is hidden from you now.`)
      const { reason } = error instanceof Unavailable ? error : (unavailableFor(error) ?? { reason: 'overloaded' })
      const message = `Proposal ${proposed.id} was stored, and could not be read.`
      throw new Unavailable(reason, message, 'applied', { cause: error })
    }
  }
}

const SUMMARIES = {
  approve: 'Stores the update of a proposal by the rights of the caller. ',
  reject: 'Ends a proposal with a reason. It takes the right to update the record.',
  withdraw: 'Ends a proposal of the caller.',
}

const SEEN =
  'It takes the `ETag` of the proposal as `If-Match`, and another person than its author where `APPROVAL=another`. A field that changed since ' +
  'the base of the proposal is 409 with its name. Nothing is overwritten.'

/** `POST /proposals/{proposal_id}/approve`, `/reject` and `/withdraw`. */
export function registerDecideProposals(app: FastifyInstance, options: ToolOptions, byAnyone: boolean): void {
  const headers = Type.Object({ 'if-match': IfMatch })
  register('approve', { headers, description: SUMMARIES.approve + SEEN, refusals: [412, 428] }, approve)
  register('reject', { body: RejectRequest, description: SUMMARIES.reject, refusals: [] }, (request, id) => {
    const { reason } = request.body as typeof RejectRequest.static // validated by the route's schema
    return endProposal(options.database, executor => request.readNow(executor), { id, state: 'rejected', reason })
  })
  register('withdraw', { description: SUMMARIES.withdraw, refusals: [] }, (request, id) =>
    endProposal(options.database, executor => request.readNow(executor), { id, state: 'withdrawn' }),
  )

  function register(
    act: keyof typeof SUMMARIES,
    route: { headers?: TObject; body?: TObject; description: string; refusals: (412 | 428)[] },
    end: (request: FastifyRequest, id: number, reply: FastifyReply) => Promise<ProposalRow>,
  ): void {
    const { refusals, body, ...shown } = route
    app.post(
      `/proposals/:proposal_id/${act}`,
      {
        bodyLimit: 8 * 1024,
        config: { policy: { permission: 'basic', writes: true } },
        schema: {
          ...shown,
          ...(body && { body }),
          operationId: `${act}_proposal`,
          summary: `${act.charAt(0).toUpperCase()}${act.slice(1)} Proposal`,
          params: Type.Object({ proposal_id: pathId() }),
          response: responses(
            {
              200: {
                description: 'The proposal as it is now.',
                body: reference(ProposalSummary),
                headers: ['etag', 'warning'],
              },
            },
            [404, 409, ...refusals],
          ),
        },
      },
      async (request, reply) => {
        const { proposal_id: id } = request.params as { proposal_id?: number }
        if (id === undefined) throw new ProposalNotFound()
        if (body) addWarnings(reply, unknownFieldWarnings(unknownFields(body, request.body as object)))
        const row = await end(request, id, reply)
        reply.header('etag', proposalTag(row)).type(JSON_TYPE)
        return JSON.stringify(summaryOf(row))
      },
    )
  }

  async function approve(request: FastifyRequest, id: number, reply: FastifyReply): Promise<ProposalRow> {
    const { 'if-match': seen } = request.headers as unknown as { 'if-match'?: Precondition } // parsed by the route's schema
    const [row] = await withRetries(() => readProposals(options.database.db, request.caller, { proposal: id }))
    if (row === undefined) throw new ProposalNotFound()
    if (seen?.kind !== 'tags') throw new Refused('PRECONDITION_REQUIRED', IF_MATCH_REQUIRED)
    const ends: { row: ProposalRow } = { row }
    const approval = {
      id,
      seen,
      byAnyone,
      ring: options.ring,
      ended: (row: ProposalRow) => Object.assign(ends, { row }),
    }
    const { kind, record_id } = row
    const basis = { ...basisOf(request, 'update', options), precondition: { kind: 'any' } as const, minimal: true }
    const asked = { ...basis, kind, id: record_id, fields: {}, key: null }
    const resource = approvalOf(PROPOSAL_KINDS[kind], approval)
    const { decision } = await store({ database: options.database, resource, request: asked }, null)
    const { notes = [] } = decision as { notes?: string[] } // of a tool
    addWarnings(reply, notes)
    return ends.row
  }
}

const IF_MATCH_REQUIRED =
  'An approval must have If-Match with the ETag of GET /proposals/{id}: what was seen is approved.'
