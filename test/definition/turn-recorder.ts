import { createServer } from 'node:http'
import { isMainThread } from 'node:worker_threads'

/*
 * Loaded before the service (`--import`): says at the port `TURNS_PORT` for how long at most the thread that serves requests was held
 * since it was last asked, in ms. A timer that is due each millisecond is that much late.
 */

const DUE_MS = 1

if (isMainThread && process.env.TURNS_PORT !== undefined) record(Number(process.env.TURNS_PORT))

function record(port: number): void {
  let longestMs = 0
  let at = performance.now()
  let used = processorNow()
  const look = () => {
    const [now, usedNow] = [performance.now(), processorNow()]
    // Other work on the machine makes it late as well: what all threads used is an upper bound too.
    longestMs = Math.max(longestMs, Math.min(now - at, usedNow - used))
    at = now
    used = usedNow
    setTimeout(look, DUE_MS)
  }
  look()
  createServer((_, response) => {
    response.setHeader('connection', 'close').end(String(longestMs))
    longestMs = 0
  }).listen(port, '127.0.0.1')
}

/** Time of all threads of this process, in ms. */
function processorNow(): number {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1000
}
