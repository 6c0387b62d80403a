import { connect, createServer, type Server, type Socket } from 'node:net'

/** One whole message of PostgreSQL's protocol, on its way. */
export interface WireMessage {
  from: 'service' | 'server'
  /** Its type byte; empty for the first one of a connection, which has none. */
  type: string
  bytes: Buffer
}

/**
 * What happens to a message:
 * - `cut`: so many bytes of it arrive, then both sides are closed;
 * - `repeat`: it arrives twice;
 * - `replace`: these bytes arrive in its place, and the connection goes on;
 * - `hold`: it and what follows it wait;
 * - `answer`: the service gets this instead, and its side is closed. With `deliver`, the server still gets and does all
 *   that was sent; without, its side is closed as well.
 */
export type Act =
  | { do: 'pass' }
  | { do: 'repeat' }
  | { do: 'replace'; bytes: Buffer }
  | { do: 'cut'; after: number }
  | { do: 'hold'; until: Promise<unknown> }
  | { do: 'answer'; bytes: Buffer; deliver: boolean }

export interface MessageProxyOptions {
  host: string
  port: number
  /** Gives the service another process id than that of the server, as poolers do. */
  disguised?: boolean
}

/** How long a server that nobody listens to any more may go on with what was sent. */
const DELIVERY_MS = 500

/** Stands between the service and its database, understands where a message ends, and does to each what a test says. */
export class MessageProxy {
  readonly port: number
  decide: (message: WireMessage) => Act = () => ({ do: 'pass' })
  /** New connections wait for it. */
  admission: Promise<unknown> = Promise.resolve()
  readonly #server: Server
  readonly #sockets = new Set<Socket>()

  private constructor(server: Server, port: number) {
    this.#server = server
    this.port = port
  }

  static async open(options: MessageProxyOptions): Promise<MessageProxy> {
    const server = createServer()
    await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
    const address = server.address()
    if (address === null || typeof address === 'string') throw new Error('the proxy has no port')
    const proxy = new MessageProxy(server, address.port)
    server.on('connection', near => {
      near.on('error', () => {})
      near.pause()
      proxy.#sockets.add(near)
      void proxy.admission.then(() => proxy.#join(near, options))
    })
    return proxy
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy()
    await new Promise(resolve => this.#server.close(resolve))
  }

  #join(near: Socket, { host, port, disguised = false }: MessageProxyOptions): void {
    const far = host.startsWith('/') ? connect(`${host}/.s.PGSQL.${port}`) : connect(port, host)
    const line = new Line(near, far, message => {
      if (disguised && message.from === 'server' && message.type === 'K') disguise(message.bytes)
      return this.decide(message)
    })
    for (const socket of [near, far]) {
      this.#sockets.add(socket)
      socket.setNoDelay(true)
      socket.on('error', () => {})
      socket.on('close', () => this.#sockets.delete(socket))
    }
    line.open()
  }
}

/** Another process id in BackendKeyData: behind type and length come id and secret. */
function disguise(bytes: Buffer): void {
  bytes.writeInt32BE(bytes.readInt32BE(5) + 1_000_000, 5)
}

/** One connection through the proxy. */
class Line {
  readonly #near: Socket
  readonly #far: Socket
  readonly #decide: (message: WireMessage) => Act
  #isAnswered = false

  constructor(near: Socket, far: Socket, decide: (message: WireMessage) => Act) {
    this.#near = near
    this.#far = far
    this.#decide = decide
  }

  open(): void {
    this.#pass('service', this.#near, this.#far)
    this.#pass('server', this.#far, this.#near)
    this.#near.on('close', () => {
      if (!this.#isAnswered) this.#far.destroy()
    })
    this.#far.on('close', () => this.#near.destroySoon())
    this.#near.resume()
  }

  #pass(from: WireMessage['from'], source: Socket, target: Socket): void {
    let rest: Buffer = Buffer.alloc(0)
    let isTyped = from === 'server'
    let isHeld = false
    const drain = () => {
      while (!isHeld) {
        const length = lengthOf(rest, isTyped)
        if (length === undefined || rest.length < length) return
        const bytes = rest.subarray(0, length)
        const message = { from, type: isTyped ? String.fromCharCode(bytes[0] ?? 0) : '', bytes }
        isTyped = true
        const act = this.#decide(message)
        rest = rest.subarray(length)
        if (act.do !== 'hold') this.#carryOut(act, message, target)
        else {
          isHeld = true
          void act.until.then(() => {
            isHeld = false
            this.#write(message, target)
            drain()
          })
        }
      }
    }
    source.on('data', data => {
      rest = Buffer.concat([rest, data])
      drain()
    })
  }

  #carryOut(act: Exclude<Act, { do: 'hold' }>, message: WireMessage, target: Socket): void {
    if (act.do === 'pass' || act.do === 'repeat') {
      for (let times = act.do === 'repeat' ? 2 : 1; times > 0; times--) this.#write(message, target)
    } else if (act.do === 'replace') {
      this.#write({ ...message, bytes: act.bytes }, target)
    } else if (act.do === 'cut') {
      // What is cut behind its last byte is delivered; the other side is gone at once.
      const source = target === this.#near ? this.#far : this.#near
      target.end(message.bytes.subarray(0, act.after), () => target.destroy())
      source.destroy()
    } else {
      this.#near.end(act.bytes)
      this.#isAnswered = true
      if (!act.deliver) this.#far.destroy()
      else {
        this.#write(message, target)
        setTimeout(() => this.#far.destroy(), DELIVERY_MS).unref()
      }
    }
  }

  #write({ from, bytes }: WireMessage, target: Socket): void {
    if (from === 'server' && this.#isAnswered) return
    if (target.writable) target.write(bytes)
  }
}

function lengthOf(bytes: Buffer, isTyped: boolean): number | undefined {
  const at = isTyped ? 1 : 0
  return bytes.length < at + 4 ? undefined : bytes.readInt32BE(at) + at
}

/** An ErrorResponse: what a server, or a pooler in its name, says before it closes a connection. */
export function fatal(code: string, message: string): Buffer {
  return errorResponse('FATAL', code, message)
}

/** The same of any severity: behind an `ERROR` the session goes on. */
export function errorResponse(severity: string, code: string, message: string): Buffer {
  const fields = Buffer.from(`S${severity}\0V${severity}\0C${code}\0M${message}\0\0`)
  const head = Buffer.alloc(5)
  head.write('E')
  head.writeInt32BE(fields.length + 4, 1)
  return Buffer.concat([head, fields])
}

/** A ReadyForQuery outside of a transaction. */
export const READY = Buffer.from('Z\0\0\0\u0005I', 'latin1')
