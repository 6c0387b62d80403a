import { type ChildProcess, fork, type SendHandle } from 'node:child_process'
import type { Server } from 'node:net'
import { fileURLToPath } from 'node:url'

/**
 * So many connections are accepted in each turn of the event loop. With more of them who connects and hangs up all the time, two thousand times
 * a second, slows those who are connected (p99 of 130 ms with sixteen, 50 with three, 33 with one); with fewer whoever connects anew waits.
 */
const ACCEPTED_MAX = 3

/** As Node's own. */
const BACKLOG = 511

/** A process takes some 50 ms to start. */
const WITHIN_MS = 10_000

/** What Node listens with; it has no public name. */
interface Handle {
  onconnection(error: number, client: { close(): void } | undefined): void
  listen(backlog: number): number
  close(): void
}

/**
 * Has a server that listens accept several connections in each turn of the event loop. Node accepts one for each handle: of four hundred
 * that came at once, while many asked for much, whoever came last waited for seconds before anything of theirs was read. The further
 * handles are copies of the first, so there is one queue, and what they accept is the server's own. Only a process that is sent a
 * handle makes a copy of it, so one is asked for them and ends. Where that fails all is as it was. Answers how many handles there are.
 */
export async function acceptOften(server: Server): Promise<number> {
  const first = handleOf(server)
  if (first === undefined) return 1
  const copies: Handle[] = []
  let isClosed = false
  let child: ChildProcess
  try {
    child = fork(ECHO, { execArgv: [], env: {}, stdio: 'ignore' })
  } catch {
    return 1 // of most failures it tells by an event
  }
  const hasEnded = new Promise(resolve => {
    child.on('exit', resolve).on('error', resolve)
  })
  const areThere = new Promise(resolve => {
    child.on('message', (_message, handle) => {
      const copy = handle as unknown as Handle // what was sent
      if (isClosed) {
        copy.close()
        return
      }
      copies.push(copy)
      copy.onconnection = (error, client) => first.onconnection(error, client)
      copy.listen(BACKLOG)
      if (copies.length === ACCEPTED_MAX - 1) resolve(undefined)
    })
    setTimeout(resolve, WITHIN_MS).unref()
  })
  const close = server.close.bind(server)
  server.close = callback => {
    isClosed = true
    child.kill('SIGKILL') // it listens as well
    for (const copy of copies.splice(0)) copy.close()
    return close(callback)
  }
  for (let n = 1; n < ACCEPTED_MAX; n++) child.send({}, first as unknown as SendHandle, () => undefined) // what fails here, `exit` tells
  await Promise.race([areThere, hasEnded])
  child.kill('SIGKILL')
  await hasEnded
  return 1 + copies.length
}

const ECHO = fileURLToPath(new URL('./handle-echo.js', import.meta.url))

function handleOf(server: Server): Handle | undefined {
  const { _handle: handle } = server as Server & { _handle?: Partial<Handle> | null }
  return typeof handle?.onconnection === 'function' ? (handle as Handle) : undefined // it is as it is known
}
