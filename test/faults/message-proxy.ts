import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'

export interface WireMessage {
  from: 'service' | 'server'
  /** The type byte. Empty for the first message of a connection, which has none. */
  type: string
  bytes: Buffer
  /** The process id of the connection's server process; 0 until the server has sent it. */
  pid: number
}

/** What happens to a message. `cut` delivers the first `after` bytes, then closes both sides. */
export type Act = { do: 'pass' } | { do: 'drop' } | { do: 'cut'; after: number }

export interface MessageProxyOptions {
  host: string
  port: number
  /** Changes the process id that the service receives, as poolers do. */
  disguised?: boolean
}

/** A proxy between the service and its database. `decide` returns the action for each message. */
export class MessageProxy {
  decide: (message: WireMessage) => Act = () => ({ do: 'pass' })
  readonly #sockets = new Set<Socket>()

  private constructor(
    private readonly server: Server,
    readonly port: number,
  ) {}

  /** Opens a proxy. Each new connection uses the current host and port in `target`. */
  static async open(target: MessageProxyOptions): Promise<MessageProxy> {
    const server = createServer()
    await once(server.listen(0, '127.0.0.1'), 'listening')
    const proxy = new MessageProxy(server, (server.address() as AddressInfo).port) // the server listens on TCP
    server.on('connection', near => {
      const { host, port, disguised = false } = target
      const far = host.startsWith('/') ? connect(`${host}/.s.PGSQL.${port}`) : connect(port, host)
      const ends = { pid: 0, disguised }
      proxy.#pass('service', near, far, ends)
      proxy.#pass('server', far, near, ends)
    })
    return proxy
  }

  cut(): void {
    for (const socket of this.#sockets) socket.destroy()
  }

  async close(): Promise<void> {
    this.cut()
    await once(this.server.close(), 'close')
  }

  #pass(from: WireMessage['from'], source: Socket, target: Socket, ends: { pid: number; disguised: boolean }): void {
    let rest: Buffer = Buffer.alloc(0)
    let isTyped = from === 'server'
    this.#sockets.add(source)
    source.setNoDelay(true)
    source.on('error', () => {})
    source.on('close', () => {
      this.#sockets.delete(source)
      target.destroySoon()
    })
    source.on('data', data => {
      rest = Buffer.concat([rest, data])
      for (let length = lengthOf(rest, isTyped); length <= rest.length; length = lengthOf(rest, isTyped)) {
        const bytes = rest.subarray(0, length)
        rest = rest.subarray(length)
        const type = isTyped ? String.fromCharCode(bytes[0] ?? 0) : ''
        isTyped = true
        if (from === 'server' && type === 'K') {
          ends.pid = bytes.readInt32BE(5) // the process id in BackendKeyData follows type and length
          if (ends.disguised) bytes.writeInt32BE(ends.pid + 1_000_000, 5)
        }
        const act = this.decide({ from, type, bytes, pid: ends.pid })
        if (act.do === 'cut') {
          // The bytes before the cut are delivered, while the sender's connection closes at once.
          target.end(bytes.subarray(0, act.after), () => target.destroy())
          source.destroy()
          return
        }
        if (act.do === 'pass' && target.writable) target.write(bytes)
      }
    })
  }
}

/** Returns the length of the message at the start of `bytes`, or infinity while the length is unknown. */
function lengthOf(bytes: Buffer, isTyped: boolean): number {
  const at = isTyped ? 1 : 0
  return bytes.length < at + 4 ? Number.POSITIVE_INFINITY : bytes.readInt32BE(at) + at
}
