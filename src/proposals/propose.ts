import { withRetries } from '../db/connection/retry.js'
import type { Database } from '../db/database.js'
import { inTransaction } from '../db/transaction.js'
import { InvalidRequest, ResourceNotFound, TRY_AGAIN, Unavailable } from '../errors.js'
import { decide, readNow } from '../updates/engine.js'
import { fillKey, Repeated, takeKey } from '../updates/idempotency.js'
import { lockRow } from '../updates/new-row.js'
import type { Decision, Job, ResourceTypes } from '../updates/resource.js'
import { PROPOSAL_KINDS } from './kinds.js'
import { insertProposal } from './statements.js'

/** A stored proposal. `decision` is null for the repetition of a stored request. */
interface Proposed {
  id: number
  version: number
  decision: Decision | null
}

/**
 * Stores an update as a proposal: the engine decides it as it would the update, without the author's rights to edit. Throws what an update
 * throws, and `Refused` if there are too many proposals.
 */
export async function propose(job: Job<ResourceTypes>, message: string): Promise<Proposed> {
  const request = { ...job.request, proposes: true, preconditionRequired: true, dryRun: false }
  try {
    return await withRetries(() => proposeOnce({ ...job, request }, message))
  } catch (error) {
    if (!(error instanceof Repeated)) throw error
    const { id = 0, version } = error.first // a proposal's key has an id
    return { id, version, decision: null }
  }
}

async function proposeOnce(job: Job<ResourceTypes>, message: string): Promise<Proposed> {
  const { resource, request } = job
  const { key, id } = request
  const { fieldsOf, definitionOf } = PROPOSAL_KINDS[resource.kind]
  return await inTransaction(job.database as Database, { rollback: false }, async trx => {
    if (key !== null) await takeKey(trx, key)
    if (!(await lockRow(trx, resource, id))) throw new ResourceNotFound(resource.kind)
    const now = await readNow(trx, job)
    const { state, viewer } = now
    const { caller } = now.job.request
    if (!resource.isVisible(state, caller)) throw new ResourceNotFound(resource.kind)
    const decision = await decide(trx, now.job, state)
    if (decision.changes.length === 0) throw new InvalidRequest([NOTHING])
    const { version } = state
    const row = {
      resource_kind: resource.kind,
      resource_id: id,
      base_version: version,
      author_id: caller.userId,
      message,
    }
    const content = { fields: fieldsOf(decision), definition: definitionOf(decision) }
    const proposal = await insertProposal(trx, { ...row, ...content }, viewer)
    if (proposal === undefined)
      throw new Unavailable('overloaded', `Your rights were changed meanwhile. ${TRY_AGAIN}`, 'not_applied')
    if (key !== null) await fillKey(trx, key, { id: proposal, version })
    return { id: proposal, version, decision }
  })
}

const NOTHING = { loc: ['body'], msg: 'Nothing of this differs from what is stored', type: 'nothing_to_propose' }
