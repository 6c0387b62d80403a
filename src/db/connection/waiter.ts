/** What requests wait in, by the names that metrics and log have for it. */
export const QUEUES = [
  'thread_turns',
  'transfer_memory',
  'body_turns',
  'checking_thread',
  'own_heavy_requests',
  'heavy_requests',
  'row_locks',
  'single_statements',
  'shared_statements',
] as const
export type QueueName = (typeof QUEUES)[number]

/** A request that may have to wait. */
export interface Waiter {
  /** Learns that it begins to wait; answers what to call, once, when that is over. Not called where nothing is waited for. */
  beginWait(queue: QueueName): () => void
  /** The how many-th it was to ask for a turn on the thread; undefined until it does. */
  turnNumber?: number | undefined
}

/** Whose a row is that shares a statement with others'. */
export interface Sharer {
  /** Where the time of its token counts. */
  place: number
  waiter?: Waiter | undefined
}
