import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'

export interface WireMessage {
  from: 'service' | 'server'
  /** Its type byte; empty for the first one of a connection, which has none. */
  type: string
  bytes: Buffer
  /** The id of the connection's server process; 0 until the server has named it. */
  pid: number
}

/** What happens to a message; `cut`: this number of its bytes arrive, then both sides are closed. */
export type Act = { do: 'pass' } | { do: 'drop' } | { do: 'cut'; after: number }

export interface MessageProxyOptions {
  host: string
  port: number
  /** Gives the service another process id than that of the server, as poolers do. */
  disguised?: boolean
}

/** Stands between the service and its database, understands where a message ends, and does to each what a test says. */
export class MessageProxy {
  decide: (message: WireMessage) => Act = () => ({ do: 'pass' })
  readonly #sockets = new Set<Socket>()

  private constructor(
    private readonly server: Server,
    readonly port: number,
  ) {}

  /** Each connection goes to where `target` leads then. */
  static async open(target: MessageProxyOptions): Promise<MessageProxy> {
    const server = createServer()
    await once(server.listen(0, '127.0.0.1'), 'listening')
    const proxy = new MessageProxy(server, (server.address() as AddressInfo).port) // it listens on TCP
    server.on('connection', near => {
      const { host, port, disguised = false } = target
      const far = host.startsWith('/') ? connect(`${host}/.s.PGSQL.${port}`) : connect(port, host)
      const ends = { pid: 0, disguised }
      proxy.#pass('service', near, far, ends)
      proxy.#pass('server', far, near, ends)
    })
    return proxy
  }

  /** Cuts every connection. */
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
          ends.pid = bytes.readInt32BE(5) // BackendKeyData has the process id after type and length
          if (ends.disguised) bytes.writeInt32BE(ends.pid + 1_000_000, 5)
        }
        const act = this.decide({ from, type, bytes, pid: ends.pid })
        if (act.do === 'cut') {
          // What is cut behind its last byte is delivered; the other side is gone at once.
          target.end(bytes.subarray(0, act.after), () => target.destroy())
          source.destroy()
          return
        }
        if (act.do === 'pass' && target.writable) target.write(bytes)
      }
    })
  }
}

/** Of the message that begins here; endless while that is not known. */
function lengthOf(bytes: Buffer, isTyped: boolean): number {
  const at = isTyped ? 1 : 0
  return bytes.length < at + 4 ? Number.POSITIVE_INFINITY : bytes.readInt32BE(at) + at
}
