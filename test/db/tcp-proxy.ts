import { connect, createServer, type Server, type Socket } from 'node:net'

/** Stands between the service and its database: counts what the service sends, delays it, or cuts the connection. */
export class TcpProxy {
  readonly port: number
  delayMs = 0
  /** Pieces of data that arrived from the service, one for each write that the kernel kept apart. */
  chunks = 0
  /** Called with each piece from the service; false cuts both sides instead of passing it on. */
  onForward: (data: Buffer) => boolean = () => true
  /** The same for pieces from the database. */
  onBackward: (data: Buffer) => boolean = () => true
  readonly #server: Server
  readonly #sockets = new Set<Socket>()

  private constructor(server: Server, port: number) {
    this.#server = server
    this.port = port
  }

  static async open(target: { host: string; port: number }): Promise<TcpProxy> {
    const server = createServer()
    await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
    const address = server.address()
    if (address === null || typeof address === 'string') throw new Error('the proxy has no port')
    const proxy = new TcpProxy(server, address.port)
    server.on('connection', near => proxy.#join(near, target))
    return proxy
  }

  cut(): void {
    for (const socket of this.#sockets) socket.destroy()
  }

  async close(): Promise<void> {
    this.cut()
    await new Promise(resolve => this.#server.close(resolve))
  }

  #join(near: Socket, target: { host: string; port: number }): void {
    const isSocketFolder = target.host.startsWith('/')
    const far = isSocketFolder ? connect(`${target.host}/.s.PGSQL.${target.port}`) : connect(target.port, target.host)
    this.#pass(near, far, data => {
      this.chunks++
      return this.onForward(data)
    })
    this.#pass(far, near, data => this.onBackward(data))
  }

  #pass(from: Socket, to: Socket, allow: (data: Buffer) => boolean): void {
    from.setNoDelay(true)
    this.#sockets.add(from)
    from.on('data', data => {
      if (!allow(data)) return this.cut()
      const later = setTimeout(() => {
        if (to.writable) to.write(data)
      }, this.delayMs)
      // What a silent server would have answered must not keep the test alive.
      later.unref()
    })
    from.on('error', () => {})
    from.on('close', () => {
      this.#sockets.delete(from)
      to.destroy()
    })
  }
}
