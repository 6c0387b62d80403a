import { parentPort, workerData } from 'node:worker_threads'
import { Callers, quietUpdates } from './callers.js'
import type { Serving } from './processor.js'
import type { QuietSettings } from './quiet.js'

/* Quiet callers have a thread of their own: what an attacker's client does with large answers delays none of them. */

const { port, from, owners, updates } = workerData as QuietSettings & { port: number } // what `quiet.ts` starts this thread with
const callers = new Callers(port, from)

parentPort?.on('message', ({ durationMs, serving }: { durationMs: number; serving: Serving }) => {
  void quietUpdates(callers, owners, durationMs, serving, updates).then(served => parentPort?.postMessage(served))
})
