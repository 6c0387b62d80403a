import { setTimeout as sleep } from 'node:timers/promises'
import type { Transaction } from 'kysely'
import { viewerParameters } from '../auth/viewer.js'
import { laterInstant } from '../db/clock.js'
import { withRetries } from '../db/connection/retry.js'
import type { Database } from '../db/tables.js'
import type { ServiceDatabase } from '../db/transaction.js'
import { unavailableFor } from '../db/unavailable.js'
import type { Watch } from '../db/writes-under-way.js'
import { ResourceNotFound, SnapshotTooLarge } from '../errors.js'
import {
  BATCHED_BYTES_MAX,
  ESCAPED_BYTES_MAX,
  type HeavyRequest,
  memoryFor,
  runAlone,
  runSized,
  takePlaceFor,
} from './answer-size.js'
import type { AnswerText } from './answer-text.js'
import { type AsOf, readPastOf } from './past.js'
import type { ResourceTypes, ShowPast, VersionedResource } from './resource.js'
import { writeKey } from './write.js'

/** Who reads, and what the answer may take. */
export interface ReadRequest extends HeavyRequest {
  snapshotBytesMax: number
  /** Takes memory for a large answer until the request is over; throws where there is none left. */
  reserveMemory(bytes: number): void
  /** Reserves what the answer takes, now that it is made, in place of what was reserved for it. Throws likewise. */
  holdAnswer(bytes: number): void
}

/** About what a state with long lists takes, whose size is known when it is read: where there is no memory for it, it is not. */
const LONG_LISTS_BYTES = 2 * 1024 * 1024

/**
 * The state that came with the authentication or, where large texts were left out of it or long lists cut, the whole one, read by
 * itself with memory reserved for it.
 *
 * Errors: `ResourceNotFound` where there is none, or where the caller does not see it; what `reserveMemory` throws,
 * `Unavailable`.
 */
export async function wholeState<T extends ResourceTypes>(
  database: ServiceDatabase,
  resource: VersionedResource<T>,
  prefetched: T['State'] | null,
  request: Pick<ReadRequest, 'caller' | 'reserveMemory' | 'takePlace' | 'waiter'>,
): Promise<T['State']> {
  const { caller, reserveMemory } = request
  if (prefetched === null) throw new ResourceNotFound(resource.kind)
  const { id, left_out_bytes: bytes = 0 } = prefetched
  if (bytes === 0 && resource.hasAllLinks(prefetched)) return prefetched
  if (!resource.isVisible(prefetched, caller)) throw new ResourceNotFound(resource.kind)
  if (!resource.hasAllLinks(prefetched)) {
    await request.takePlace() // what waits for its place holds no memory
    reserveMemory(LONG_LISTS_BYTES)
  }
  try {
    const reading = () => {
      if (bytes > 0) reserveMemory(bytes)
      return withRetries(() => resource.read(database.db, id, viewerParameters(caller)))
    }
    // One at a time of each caller: it may take ten times what a small state takes.
    const exclusive = `state ${caller.token.id}`
    const state = await runAlone(database, request, bytes * ESCAPED_BYTES_MAX, reading, exclusive)
    if (state === undefined) throw new ResourceNotFound(resource.kind)
    return state
  } catch (error) {
    throw unavailableFor(error) ?? error
  }
}

/** What a read found. */
export interface Read {
  snapshot: AnswerText
  version: number
  /** When the newest of what it shows was made: asked for with this time, it is answered again. Null where nothing tells. */
  at: string | null
  /** When the newest of the tools that it shows was made; null where it shows none, or nothing tells. */
  toolsAt: string | null
}

/** The same of the past, with what the caller should know of it. */
export interface PastRead extends Omit<Read, 'toolsAt'> {
  notes: string[]
}

/**
 * Answers the stored resource as an update would: its snapshot as JSON text, or what `textOf` makes of it, and its version.
 * `prefetched` is the state that came with the authentication, which need not be whole: without large texts an answer is weighed
 * too. Where somebody wrote since, state and answer are read again in one snapshot of the database, which nobody overtakes.
 *
 * Errors: `ResourceNotFound` where the caller does not see it, `SnapshotTooLarge`, what `reserveMemory` throws, `Unavailable`.
 */
export async function readResource<T extends ResourceTypes>(
  database: ServiceDatabase,
  resource: VersionedResource<T>,
  prefetched: T['State'],
  request: ReadRequest,
  textOf: (row: T['Row']) => AnswerText = row => resource.snapshot(row),
): Promise<Read> {
  const { caller, snapshotBytesMax } = request
  // No body lies between the statement that established the caller and this: it need not be done again.
  const viewer = { ...viewerParameters(caller), token: null }
  const reserve = memoryFor(request)
  try {
    const weighed = resource.hasAllLinks(prefetched)
      ? prefetched
      : await wholeState(database, resource, prefetched, request)
    const answerBytes = admit(weighed)
    await takePlaceFor(request, answerBytes, resource.isShownSlowly(weighed, null, caller)) // before its memory: what waits holds none, and one behind the other needs little
    const watch = database.writesUnderWay.watch()
    try {
      const row = await runSized(database, resource.reading(weighed, viewer), request, {
        answerBytes,
        isBatchable: resource.isReadBatchable(weighed, caller),
        executor: database.db,
        hooks: { onSend: watch.restart },
        reserve,
      })
      const { tools, ...read } = row === undefined ? await readAgain(answerBytes) : answered(row, weighed)
      return await inOrder(database, resource, weighed, read, tools, request, watch, textOf)
    } finally {
      watch.end()
    }
  } catch (error) {
    throw unavailableFor(error) ?? error
  }

  /** How many bytes the answer takes, if the caller may have it. */
  function admit(state: T['State'] | undefined): number {
    if (state === undefined || !resource.isVisible(state, caller)) throw new ResourceNotFound(resource.kind)
    resource.requireAnswerable(state, snapshotBytesMax)
    return resource.answerBytes(state, null)
  }

  async function readAgain(answerBytes: number): Promise<Read & { tools: readonly number[] }> {
    const reading = () =>
      inOneSnapshot(database, async trx => {
        const state = await resource.read(trx, prefetched.id, viewer)
        reserve(admit(state))
        const row = state && (await resource.reading(state, viewer).single(trx))
        if (state === undefined || row === undefined)
          throw new Error(`${resource.kind} ${prefetched.id} changed within one snapshot`)
        return answered(row, state)
      })
    return await runAlone(database, request, answerBytes, reading)
  }

  function answered(row: T['Row'], state: T['State']): Read & { tools: readonly number[] } {
    const { tools_at: toolsAt = null } = row
    const at = laterInstant(state.made_at, toolsAt)
    const snapshot = textOf(row)
    request.holdAnswer(snapshot.heldBytes)
    return { snapshot, version: row.version, at, toolsAt, tools: resource.shownTools(state, null) }
  }
}

/** So long an answer waits for writes that were sent before what it shows, and until it is read again: most need no longer. */
const ORDER_MS_MAX = 50

/**
 * An answer that is found again by its time. An update of the agent or of one of these tools may bear an earlier time than what the
 * answer shows, and be stored only after it: then it is awaited, and the answer is read again. Where it takes longer, the
 * answer is of no time: whoever keeps writing holds nobody up. So is one that is not small: to read it again would be as much work as
 * the first time. `state` is that of the answer, or the one that it was made of.
 */
export async function inOrder<
  T extends ResourceTypes,
  Answer extends Omit<Read, 'snapshot'> & { snapshot: AnswerText | null },
>(
  database: ServiceDatabase,
  resource: VersionedResource<T>,
  state: T['State'],
  answer: Answer,
  tools: readonly number[],
  request: ReadRequest,
  watch: Watch,
  textOf: (row: T['Row']) => AnswerText = row => resource.snapshot(row),
): Promise<Answer> {
  const { at, toolsAt, version, snapshot } = answer
  if (at === null) return answer
  database.writesUnderWay.noteShown(at)
  if (snapshot === null || tools.length === 0) return answer
  const keys = new Set([writeKey(resource.kind, state.id), ...tools.map(tool => writeKey('tool', tool))])
  const earlier = watch.earlier(keys, at, toolsAt)
  if (earlier.length === 0) return answer
  if (snapshot.length > BATCHED_BYTES_MAX) return { ...answer, at: null }
  let isLate = false
  const late = sleep(ORDER_MS_MAX, undefined, { ref: false }).then(() => {
    isLate = true
  })
  const ended = (await Promise.race([Promise.all(earlier), late])) ?? [true]
  if (!ended.includes(true)) return answer
  if (isLate) return { ...answer, at: null }
  // Where it cannot be read again, the answer is true of what was stored when it was made, but of no time.
  const again = (await ofNow(snapshot.length, at).catch(() => undefined)) ?? (await ofThen(snapshot.length, at))
  return { ...answer, at: null, ...again }

  /** The same version with the tools of now, which is one small statement. Undefined where it is another version by now. */
  async function ofNow(length: number, at: string): Promise<Partial<Answer> | undefined> {
    const { caller } = request
    const row = await runSized(database, resource.reading({ ...state, version }, viewerParameters(caller)), request, {
      answerBytes: length,
      isBatchable: resource.isReadBatchable(state, caller) && tools.length <= resource.shownTools(state, null).length,
      executor: database.db,
      hooks: { onSend: watch.restart },
    })
    const nowAt = row?.tools_at ?? null
    if (row === undefined || (toolsAt !== null && (nowAt === null || nowAt < toolsAt))) return undefined
    const latest = laterInstant(at, nowAt) ?? at
    database.writesUnderWay.noteShown(latest)
    if (watch.earlier(keys, latest, nowAt).length > 0) return undefined
    const text = textOf(row)
    request.holdAnswer(text.heldBytes)
    return { snapshot: text, at: latest, toolsAt: nowAt } as Partial<Answer> // whose fields these are
  }

  /** What was stored at this time. Little changed since: it is no more work than a few statements, unlike most of the past. */
  async function ofThen(length: number, at: string): Promise<Partial<Answer> | undefined> {
    let begun: Promise<PastRead> | undefined
    const reading = async () => {
      if (!isLate) begun = pastAt(database, resource, state.id, { at }, request)
      return await begun
    }
    const again = runAlone(database, request, length, reading).catch(() => undefined)
    await Promise.race([again, late])
    const past = begun && (await again)
    if (past === undefined || past.notes.length > 0) return undefined
    return { snapshot: past.snapshot, version: past.version, at } as Partial<Answer> // likewise
  }
}

/**
 * Answers a resource as it was, to whoever sees it now: its snapshot as JSON text, or what `show` makes of it, with the tools of
 * an agent as they were when that version was made, or at the time asked for. Names of labels, people and document sets are
 * those of now.
 *
 * Errors: `ResourceNotFound`, `VersionNotFound`, `VersionGone`, `InvalidRequest` for a time in the future, `SnapshotTooLarge`,
 * what `reserveMemory` throws, `Unavailable`.
 */
export async function readPast<T extends ResourceTypes>(
  database: ServiceDatabase,
  resource: VersionedResource<T>,
  id: number,
  asOf: AsOf,
  request: ReadRequest,
  show?: ShowPast<T>,
): Promise<PastRead> {
  await request.takePlace() // all that changed since is read, which may be as much as is kept of the resource
  return await pastAt(database, resource, id, asOf, request, show)
}

async function pastAt<T extends ResourceTypes>(
  database: ServiceDatabase,
  resource: VersionedResource<T>,
  id: number,
  asOf: AsOf,
  { caller, snapshotBytesMax, reserveMemory, holdAnswer }: ReadRequest,
  show: ShowPast<T> = resource.pastSnapshot,
): Promise<PastRead> {
  const viewer = viewerParameters(caller)
  const reserve = memoryFor({ reserveMemory })
  const reserveDefinitions = (bytes: number) => {
    if (bytes > snapshotBytesMax) throw new SnapshotTooLarge(bytes, snapshotBytesMax)
    reserve(bytes)
  }
  try {
    return await inOneSnapshot(database, async trx => {
      const state = await resource.read(trx, id, viewer)
      if (state === undefined || !resource.isVisible(state, caller)) throw new ResourceNotFound(resource.kind)
      const past = await readPastOf(trx, resource.kind, id, asOf)
      const { text: snapshot, notes } = await show(trx, state, past, viewer, reserveDefinitions)
      holdAnswer(snapshot.heldBytes)
      return { version: past.version, at: past.at, snapshot, notes }
    })
  } catch (error) {
    throw unavailableFor(error) ?? error
  }
}

/** Runs work on one snapshot of the database: what is stored, and what differs from it, must be of one moment. */
export async function inOneSnapshot<Result>(
  { db }: Pick<ServiceDatabase, 'db'>,
  work: (trx: Transaction<Database>) => Promise<Result>,
): Promise<Result> {
  return await db.transaction().setIsolationLevel('repeatable read').setAccessMode('read only').execute(work)
}
