import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { QueueName, Waiter } from '../db/connection/waiter.js'
import type { Metrics } from './metrics.js'

/** Lines of the log tell of waits that took so long together: ordinary lines do not grow. */
const TOLD_MS = 100

declare module 'fastify' {
  interface FastifyRequest extends Waiter {
    /** Its waits; undefined while it has had none, as most requests. */
    waits: Waits | undefined
  }
}

/** Gives each request its `beginWait`, which the metrics and its line in the log know of. Register before whatever may have it wait. */
export function registerWaits(app: FastifyInstance, metrics: Metrics): void {
  app.decorateRequest('waits', undefined)
  app.decorateRequest('turnNumber', undefined)
  app.decorateRequest('beginWait', function (this: FastifyRequest, queue: QueueName) {
    this.waits ??= new Waits()
    const end = this.waits.begin(queue)
    return () => metrics.queueWait(queue, end())
  })
}

/** How long a request has waited in all, in ms, and in which queue longest; undefined where the log does not tell of it. */
export function toldWait({ waits }: FastifyRequest): { ms: number; longestIn: QueueName } | undefined {
  const byQueue = waits?.byQueue()
  if (byQueue === undefined) return undefined
  let ms = 0
  let longestIn: QueueName = 'thread_turns'
  for (const [queue, tookMs] of byQueue) {
    if (tookMs > (byQueue.get(longestIn) ?? 0)) longestIn = queue
    ms += tookMs
  }
  return ms < TOLD_MS ? undefined : { ms: Math.round(ms), longestIn }
}

interface Wait {
  queue: QueueName
  since: number
  /** Once it is over. */
  tookMs?: number
}

/** The waits of one request. */
class Waits {
  readonly #all: Wait[] = []

  /** Answers what ends the wait and says how long it took, in ms. */
  begin(queue: QueueName): () => number {
    const wait: Wait = { queue, since: performance.now() }
    this.#all.push(wait)
    return () => {
      wait.tookMs = performance.now() - wait.since
      return wait.tookMs
    }
  }

  /** How long it waited in each, in ms; of what it still waits for, until now. */
  byQueue(): Map<QueueName, number> {
    const now = performance.now()
    const sums = new Map<QueueName, number>()
    for (const { queue, since, tookMs = now - since } of this.#all) sums.set(queue, (sums.get(queue) ?? 0) + tookMs)
    return sums
  }
}
