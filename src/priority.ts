import { readdirSync } from 'node:fs'
import { getPriority, setPriority } from 'node:os'

/*
 * On Linux a thread has a priority of its own. With few processors what serves requests, and the database, go first. A filter of system
 * calls may forbid to set it: then all threads are worth the same.
 */

/** How much less a thread that gives way is worth to the scheduler. */
const NICER_BY = 5
const NICE_MAX = 19

/** Has the thread that calls this give way to those of the process that do not, and to other processes. */
export function giveWay(): void {
  if (process.platform === 'linux') lower(0)
}

/**
 * Has the threads give way that there are beside the main one, which calls this first of all: V8's, which compile and collect garbage for
 * all others, and libuv's, which read files and look names up. Those that begin later do not. Without it V8 takes more of the processors
 * at full priority than the check of a definition of 1 MB, which gives way.
 */
export function helpersGiveWay(): void {
  if (process.platform !== 'linux') return
  for (const thread of readdirSync('/proc/self/task').map(Number)) if (thread !== process.pid) lower(thread)
}

function lower(thread: number): void {
  try {
    setPriority(thread, Math.min(NICE_MAX, getPriority(thread) + NICER_BY))
  } catch {
    // It is forbidden, or the thread has ended.
  }
}
