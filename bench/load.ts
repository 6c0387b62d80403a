import { connect, type Socket } from 'node:net'

/** Returns the bytes of a connection's next request. */
export type NextRequest = () => Buffer

export interface LoadResult {
  perSecond: number
  requests: number
  p50Ms: number
  p99Ms: number
}

/**
 * Sends requests to 127.0.0.1 for `durationMs` over `connections` keep-alive connections, one at a time on each, and measures response times. Uses
 * sockets, because `node:http` needs more processor time. Throws if a response's status does not begin with the first digit of `status`.
 */
export async function load(
  port: number,
  source: (connection: number) => NextRequest,
  { connections, durationMs, status }: { connections: number; durationMs: number; status: number },
): Promise<LoadResult> {
  const latenciesMs: number[] = []
  const lines = await Promise.all(Array.from({ length: connections }, (_, i) => open(port, source(i), status)))
  const start = performance.now()
  await Promise.all(lines.map(line => line.run(start + durationMs, latenciesMs)))
  const seconds = (performance.now() - start) / 1000
  for (const { socket } of lines) socket.destroy()
  latenciesMs.sort((a, b) => a - b)
  const at = (part: number) => latenciesMs[Math.floor(latenciesMs.length * part)] ?? Number.NaN
  return { perSecond: latenciesMs.length / seconds, requests: latenciesMs.length, p50Ms: at(0.5), p99Ms: at(0.99) }
}

async function open(port: number, next: NextRequest, status: number) {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true })
  await new Promise<void>((resolve, reject) => {
    socket.once('connect', resolve)
    socket.once('error', reject)
  })
  return { socket, run: (deadline: number, latenciesMs: number[]) => run(socket, next, status, deadline, latenciesMs) }
}

function run(socket: Socket, next: NextRequest, status: number, deadline: number, latenciesMs: number[]) {
  return new Promise<void>((resolve, reject) => {
    let parts: Buffer[] = []
    let missingBytes = -1
    let sentAt = 0
    const send = () => {
      parts = []
      missingBytes = -1
      sentAt = performance.now()
      socket.write(next())
    }
    const readHead = () => {
      const bytes = Buffer.concat(parts)
      const end = bytes.indexOf('\r\n\r\n')
      if (end < 0) return
      const head = bytes.toString('latin1', 0, end)
      if (head[9] !== String(status)[0])
        reject(new Error(`expected status ${status}, but received: ${bytes.toString('utf8').slice(0, 1000)}`))
      const length = /\r\ncontent-length: (\d+)/i.exec(head)?.[1] ?? 0 // a 204 response has no Content-Length
      missingBytes = Number(length) - (bytes.length - end - 4)
    }
    socket.on('data', bytes => {
      parts.push(bytes)
      if (missingBytes >= 0) missingBytes -= bytes.length
      else readHead()
      if (missingBytes !== 0) return
      const now = performance.now()
      latenciesMs.push(now - sentAt)
      if (now > deadline) resolve()
      else send()
    })
    socket.on('error', reject)
    socket.on('close', () => reject(new Error('the server closed a connection')))
    send()
  })
}
