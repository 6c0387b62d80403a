import { connect, type Socket } from 'node:net'

/** Where requests go: ports on this machine, over which the connections are spread. */
export type Target = readonly number[]

/** Answers the bytes of a connection's next request. It may be the same buffer each time, changed in place. */
export type NextRequest = () => Buffer

/** The requests of one case: for each of `connections` connections, numbered from 0, how its requests are made. */
export type RequestSource = (connection: number, connections: number) => NextRequest

export interface LoadOptions {
  connections: number
  /** How long to send. What is answered later does not count. */
  durationMs: number
  /** The status that a connection's requests must have; every other is an error of the benchmark. */
  status: number | ((connection: number) => number)
  /** Ends earlier when so many are answered. */
  requestsMax?: number
}

export interface LoadResult {
  /** Answered before the time was over. */
  requests: number
  /** Answered at all: what counts of work done must be divided by. */
  answered: number
  seconds: number
  /** Ascending. */
  latenciesMs: Float64Array
}

/**
 * Sends requests over keep-alive connections, one at a time on each, and times their answers. A client of its own over
 * bare sockets: it shares the processors with what it measures, and `node:http` costs several times as much.
 * Throws at the first answer of another status.
 */
export async function load(target: Target, source: RequestSource, options: LoadOptions): Promise<LoadResult> {
  const { connections, status, durationMs, requestsMax = Number.POSITIVE_INFINITY } = options
  const latenciesMs: number[] = []
  const lines = Array.from({ length: connections }, (_, i) => {
    return new Line(source(i, connections), typeof status === 'number' ? status : status(i))
  })
  await Promise.all(lines.map((line, i) => line.open(target[i % target.length] ?? 0)))
  const start = performance.now()
  await Promise.all(lines.map(line => line.run(start + durationMs, latenciesMs, requestsMax)))
  const end = performance.now()
  for (const line of lines) line.close()
  return {
    requests: latenciesMs.length,
    answered: latenciesMs.length + lines.length,
    seconds: Math.min(durationMs, end - start) / 1000,
    latenciesMs: Float64Array.from(latenciesMs).sort(),
  }
}

/** Sends each request once over one connection, in order, and answers the bodies. */
export async function sendAll(port: number, requests: readonly Buffer[], status: number): Promise<string[]> {
  let sent = 0
  const line = new Line(() => requests[sent++] ?? Buffer.alloc(0), status)
  await line.open(port)
  const bodies: string[] = []
  while (sent < requests.length) bodies.push(await line.once())
  line.close()
  return bodies
}

/** One keep-alive connection with at most one request under way. */
class Line {
  readonly #next: NextRequest
  readonly #status: number
  #socket: Socket | undefined
  #answered: (() => void) | undefined
  #failed: ((error: Error) => void) | undefined
  #parts: Buffer[] = []
  #missingBytes = -1

  constructor(next: NextRequest, status: number) {
    this.#next = next
    this.#status = status
  }

  async open(port: number): Promise<void> {
    const socket = connect({ port, host: '127.0.0.1', noDelay: true })
    this.#socket = socket
    await new Promise<void>((resolve, reject) => {
      socket.once('connect', resolve)
      socket.once('error', reject)
    })
    socket.on('data', bytes => this.#receive(bytes))
    socket.on('error', error => this.#failed?.(error))
    socket.on('close', () => this.#failed?.(new Error('the server closed a connection')))
  }

  close(): void {
    this.#failed = undefined
    this.#socket?.destroy()
  }

  /** Sends until the deadline, or until enough is answered, and adds the latency of every answer that came before it. */
  run(deadline: number, latenciesMs: number[], requestsMax: number): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#failed = reject
      let sentAt = performance.now()
      this.#answered = () => {
        const now = performance.now()
        if (now > deadline || latenciesMs.length >= requestsMax) return resolve()
        latenciesMs.push(now - sentAt)
        sentAt = now
        this.#send()
      }
      this.#send()
    })
  }

  /** Sends one request and answers the body. */
  once(): Promise<string> {
    return new Promise((resolve, reject) => {
      this.#failed = reject
      this.#answered = () => {
        const text = Buffer.concat(this.#parts).toString('utf8')
        resolve(text.slice(text.indexOf('\r\n\r\n') + 4))
      }
      this.#send()
    })
  }

  #send(): void {
    this.#parts = []
    this.#missingBytes = -1
    this.#socket?.write(this.#next())
  }

  #receive(bytes: Buffer): void {
    this.#parts.push(bytes)
    if (this.#missingBytes >= 0) this.#missingBytes -= bytes.length
    else this.#readHead()
    if (this.#missingBytes === 0) this.#answered?.()
  }

  #readHead(): void {
    const bytes = this.#parts.length === 1 ? (this.#parts[0] as Buffer) : Buffer.concat(this.#parts)
    const end = bytes.indexOf('\r\n\r\n')
    if (end < 0) return
    const head = bytes.toString('latin1', 0, end)
    if (Number(head.slice(9, 12)) !== this.#status) {
      this.#failed?.(new Error(`expected ${this.#status}, was answered: ${bytes.toString('utf8').slice(0, 1000)}`))
      return
    }
    const length = /\r\ncontent-length: (\d+)/i.exec(head)?.[1]
    // A 204 has no body and no length (RFC 9110, section 8.6).
    if (length === undefined && this.#status !== 204) this.#failed?.(new Error(`an answer without a length: ${head}`))
    this.#missingBytes = Number(length ?? 0) - (bytes.length - end - 4)
  }
}
