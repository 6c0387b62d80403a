import type { Caller } from '../auth/caller.js'
import { viewerParameters } from '../auth/viewer.js'
import type { Database } from '../db/database.js'
import { ProposalNotFound } from '../errors.js'
import { INLINE_BYTES_MAX } from '../http/body.js'
import { definitionsOf } from '../tool/definition-cache.js'
import type { ToolState } from '../tool/snapshot.js'
import { readUse, storedText } from '../tool/tool-use.js'
import type { BodyWorkers, TaskRequest } from '../tool/worker/pool.js'
import type { Change } from '../updates/audit.js'
import { NO_VERSION, type ShownChange } from '../updates/history.js'
import { inOneSnapshot } from '../updates/read.js'
import { representationTag } from '../updates/tag.js'
import { PROPOSAL_KINDS } from './kinds.js'
import { proposalTag, summaryOf } from './schema.js'
import { type ProposalRow, readFields, readProposals } from './statements.js'

/** A proposal as JSON text, and its tag. */
export interface ShownProposal {
  text: string
  tag: string
}

interface Showing {
  database: Database
  workers: BodyWorkers
}

/** Answers a proposal that the caller sees, with its difference against the record of now. Throws `ProposalNotFound`. */
export async function showProposal(
  { database, workers }: Showing,
  request: Pick<TaskRequest, 'caller' | 'raw'>,
  id: number,
): Promise<ShownProposal> {
  const { caller } = request
  const { row, state, changes, shown } = await inOneSnapshot(database, async trx => {
    const [row] = await readProposals(trx, caller, { proposal: id })
    if (row === undefined) throw new ProposalNotFound()
    const { resource, differenceOf, changesOf } = PROPOSAL_KINDS[row.kind]
    const viewer = viewerParameters(caller)
    const state = await resource.read(trx, row.record_id, viewer)
    if (state === undefined) throw new ProposalNotFound()
    const changes = differenceOf(state, await readFields(trx, id), caller)
    const [shown = []] = await changesOf(trx, state, [rowOf(row, changes)], viewer)
    return { row, state, changes, shown }
  })
  const definition = changes.find(({ field }) => field === 'definition')
  const texts = definition && (await definitionTexts(database, definition))
  const impact =
    texts !== undefined && row.may_decide
      ? await impactOf({ database, workers }, request, state as ToolState, texts.to) // only tools have definitions
      : 'null'
  const text = `${JSON.stringify(summaryOf(row)).slice(0, -1)},"changes":[${inText(shown, texts)}],"impact":${impact}}`
  return { text, tag: representationTag(proposalTag(row), text) }
}

/** The changes as a row of the history, without the definition: its text is put in as it is stored. */
function rowOf({ author, author_id, created_at }: ProposalRow, changes: readonly Change[]) {
  const others = changes.filter(({ field }) => field !== 'definition')
  const difference = Object.fromEntries(others.map(({ field, from, to }) => [field, { from, to }]))
  const place = { version: NO_VERSION, version_before: NO_VERSION, at: created_at }
  return {
    ...place,
    author,
    actor_id: author_id,
    command: null,
    request_id: '',
    fields: Object.keys(difference),
    difference,
  }
}

function inText(changes: readonly ShownChange[], texts?: { from: string; to: string }): string {
  const own = texts === undefined ? [] : [`{"field":"definition","from":${texts.from},"to":${texts.to}}`]
  return [...changes.map(change => JSON.stringify(change)), ...own].join()
}

async function definitionTexts({ db }: Database, { from, to }: Change) {
  const hashes = [from, to] as (string | null)[] // audit rows name definitions by hash
  const definitions = await definitionsOf(db, hashes)
  const [before = 'null', after = 'null'] = hashes.map(definition_hash => definitions.of({ definition_hash }))
  return { from: before, to: after }
}

/** What storing the definition would change, and for whom. */
async function impactOf(
  { database, workers }: Showing,
  { caller, raw }: { caller: Caller; raw: TaskRequest['raw'] },
  state: ToolState,
  proposed: string,
): Promise<string> {
  const { seen, others } = await readUse(database.db, state.id, caller)
  const use = { ids: seen.map(({ id }) => id), others }
  const work = { use, proposed, headerNames: state.headers.map(({ name }) => name) }
  const inWorker = Buffer.byteLength(proposed) > INLINE_BYTES_MAX
  return await workers.run(
    'proposed_impact',
    { body: {}, caller, raw },
    { ...work, inWorker },
    storedText(database, state),
  )
}
