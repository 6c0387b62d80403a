import { setTimeout as sleep } from 'node:timers/promises'
import {
  type Embedded,
  type EmbeddedOptions,
  EmbeddedUnavailable,
  embeddedDataExists,
  startEmbedded,
} from './embedded.js'

/** How often to see whether the server still runs, in ms. It takes two small files and no connection. */
const CHECK_MS = 200
/** The pause between attempts to start it again doubles between these, in ms. */
const RETRY_MIN_MS = 100
const RETRY_MAX_MS = 2_000

const GONE = 'its data are gone: bring the folder back, or start this program again to begin with an empty database'

/**
 * As `startEmbedded`, and looks after the server until `stop`: whatever ends it, or keeps everybody from it, it is started
 * again, by this process or by another one that uses it, under the same locks. The connection stays the same. Each death and each new reason why a
 * start fails is logged once; attempts go on until one succeeds.
 */
export async function keepEmbedded(options: EmbeddedOptions): Promise<Embedded> {
  const { log = () => undefined } = options
  const leaving = new AbortController()
  let server = await startEmbedded(options)

  const keep = async () => {
    while (await pause(CHECK_MS, leaving.signal)) {
      const reason = server.whyUnusable()
      if (reason !== undefined) await mend(reason)
    }
  }

  const mend = async (cause: string) => {
    const since = performance.now()
    let lastReason = ''
    log(`the embedded PostgreSQL ${cause}; starting it again; its log is ${server.logFile}`, 'warn')
    server.end()
    for (let pauseMs = RETRY_MIN_MS; !leaving.signal.aborted; pauseMs = Math.min(pauseMs * 2, RETRY_MAX_MS)) {
      try {
        if (!embeddedDataExists(options.dataDir)) throw new EmbeddedUnavailable(GONE) // never a new, empty one in its place
        const next = await startEmbedded(options)
        server.abandon()
        server = next
        return log(`the embedded PostgreSQL runs again after ${Math.round(performance.now() - since)} ms`, 'warn')
      } catch (error) {
        const reason = error instanceof EmbeddedUnavailable ? error.reason : String(error)
        if (reason !== lastReason) log(`the embedded PostgreSQL does not start again yet: ${reason}`, 'warn')
        lastReason = reason
      }
      await pause(pauseMs, leaving.signal)
    }
  }

  const kept = keep()
  const stop = async () => {
    leaving.abort()
    await kept
    await server.stop()
  }
  return { ...server, stop }
}

/** Waits, holding up no shutdown; false when `signal` cut it short. */
async function pause(ms: number, signal: AbortSignal): Promise<boolean> {
  await sleep(ms, undefined, { signal, ref: false }).catch(() => undefined)
  return !signal.aborted
}
