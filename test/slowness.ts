import { openSync, readSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Test } from 'tap'

/*
 * No test may depend on a fast or a quiet machine. Where a limit is a time, these say how many times slower than the reference machine
 * this one is at this moment, and the limit grows by that. A fixed piece of plain work is the control: what it takes on the reference
 * machine, quiet, is written below.
 */

/** Of one piece of the control on the reference machine when nothing else runs: two cores of an AMD EPYC, Node 20. */
const REFERENCE_MS = 0.6
/** The control is compiled in its first rounds. */
const WARM_PIECES = 40
/** How often the control is taken beside other work, in ms. */
const SAMPLED_EACH_MS = 100

const ATTEMPTS = 3

const TEXT = JSON.stringify(
  Array.from({ length: 300 }, (_, i) => ({ id: i, name: `name ${i}`, tags: [`a${i}`, `b${i % 7}`], at: { x: i / 3 } })),
)

let isWarm = false

/**
 * How many times slower than the reference machine this one is right now by the clock, so with what other work leaves of the processor;
 * at least 1. For limits on what was measured by the clock. Takes 0.6 ms for each piece, and so many times longer.
 */
export function slowness(pieces = 20): number {
  return ratio(pieces, () => performance.now())
}

/**
 * How many times slower the processor itself is right now than that of the reference machine, whoever else waits for it; at least 1.
 * For limits on processor time and on `threadMs`. Other work still shows in it: it takes the caches and the other half of the core.
 */
export function processorSlowness(pieces = 20): number {
  return ratio(pieces, threadMs)
}

/**
 * The mean `slowness` while some work is under way, taken now and then. A thread that mostly waits gets the processor at once for its
 * first few milliseconds: with few pieces this says what load does to one that answers now and then, with many what it does to one
 * that is busy. The thread that asks is held meanwhile.
 */
export async function slownessDuring<Result>(
  work: Promise<Result>,
  pieces = 10,
): Promise<{ result: Result; slowness: number }> {
  let isOver = false
  const ended = work.then(
    () => undefined,
    () => undefined,
  )
  void ended.then(() => {
    isOver = true
  })
  const samples = [slowness(pieces)]
  while (!isOver) {
    await Promise.race([sleep(SAMPLED_EACH_MS), ended])
    samples.push(slowness(pieces))
  }
  return { result: await work, slowness: samples.reduce((sum, each) => sum + each, 0) / samples.length }
}

/**
 * Holds when some work of this thread takes at most so many ms of the thread's time, as many more as the processor is slower than that
 * of the reference machine; the best of a few attempts.
 */
export function requireWithin(t: Test, name: string, mostMs: number, work: () => void): void {
  let best = Infinity
  let slow = 1
  for (let attempt = 0; attempt < ATTEMPTS && best > mostMs * slow; attempt++) {
    const started = threadMs()
    work()
    best = Math.min(best, threadMs() - started)
    if (best > mostMs) slow = processorSlowness()
  }
  t.ok(best <= mostMs * slow, `${name}: ${best.toFixed(1)} ms of ${(mostMs * slow).toFixed(0)}`)
}

function ratio(pieces: number, now: () => number): number {
  if (!isWarm) for (let i = 0; i < WARM_PIECES; i++) piece()
  isWarm = true
  const started = now()
  for (let i = 0; i < pieces; i++) piece()
  return Math.max(1, (now() - started) / (pieces * REFERENCE_MS))
}

/** What the service does most: reads JSON, goes through it, keeps things by their names, writes it again. */
function piece(): number {
  const known = new Map<unknown, number>()
  const pending: unknown[] = [JSON.parse(TEXT)]
  for (let value = pending.pop(); value !== undefined; value = pending.pop()) {
    known.set(value, known.size)
    if (typeof value !== 'object' || value === null) continue
    for (const key of Object.keys(value)) pending.push((value as Record<string, unknown>)[key])
  }
  return known.size + JSON.stringify([...known.keys()].slice(0, 200)).length
}

const waits = Buffer.alloc(100)
let waitsFile: number | undefined

/**
 * The clock less what this thread has waited for a processor, in ms: what it takes is the time of the thread itself, without that of the
 * threads that collect garbage beside it. On Linux; elsewhere the clock.
 */
export function threadMs(): number {
  if (process.platform !== 'linux') return performance.now()
  // Both times change while the thread waits: they are asked together.
  waitsFile ??= openSync('/proc/thread-self/schedstat', 'r')
  const length = readSync(waitsFile, waits, 0, waits.length, 0)
  const waited = Number(waits.toString('latin1', 0, length).split(' ')[1])
  return performance.now() - waited / 1e6
}
