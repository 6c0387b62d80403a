import {
  Agent,
  createServer,
  request as httpRequest,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http'

export const POLL_MS = 500
/** How many probes in a row must fail before an instance is left. */
const FAILURES = 2

/**
 * A balancer as one stands before several instances: it asks each for `/readyz` every half second, leaves one at the second
 * failure in a row, keeps connections, and passes each request on to the next instance. It repeats nothing.
 */
export class Balancer {
  readonly port: number
  /** How many requests each instance got, by port. */
  readonly passed = new Map<number, number>()
  readonly #server: Server
  readonly #ports: readonly number[]
  readonly #ready = new Set<number>()
  readonly #failures = new Map<number, number>()
  readonly #agents: ReadonlyMap<number, Agent>
  readonly #timers: NodeJS.Timeout[]
  #next = 0

  private constructor(server: Server, port: number, ports: readonly number[]) {
    this.#server = server
    this.port = port
    this.#ports = ports
    this.#agents = new Map(ports.map(instance => [instance, new Agent({ keepAlive: true })]))
    this.#timers = ports.map(instance => setInterval(() => this.#poll(instance), POLL_MS))
  }

  /** Opens a balancer before instances on these ports; resolves when one of them is ready. */
  static async open(ports: readonly number[]): Promise<Balancer> {
    const server = createServer()
    await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
    const address = server.address()
    if (address === null || typeof address === 'string') throw new Error('the balancer has no port')
    const balancer = new Balancer(server, address.port, ports)
    server.on('request', (request, response) => balancer.#pass(request, response))
    while (!balancer.isReady(...ports)) await new Promise(resolve => setTimeout(resolve, 50))
    return balancer
  }

  /** Whether all these instances are ready, as far as the balancer knows. */
  isReady(...ports: number[]): boolean {
    return ports.every(port => this.#ready.has(port))
  }

  async close(): Promise<void> {
    for (const timer of this.#timers) clearInterval(timer)
    for (const agent of this.#agents.values()) agent.destroy()
    this.#server.closeAllConnections()
    await new Promise(resolve => this.#server.close(resolve))
  }

  #poll(port: number): void {
    const asked = httpRequest({ host: '127.0.0.1', port, path: '/readyz', timeout: 2_000 }, response => {
      response.resume()
      this.#note(port, response.statusCode === 200)
    })
    asked.on('timeout', () => asked.destroy())
    asked.on('error', () => this.#note(port, false))
    asked.end()
  }

  #note(port: number, succeeded: boolean): void {
    const failures = succeeded ? 0 : (this.#failures.get(port) ?? 0) + 1
    this.#failures.set(port, failures)
    if (succeeded) this.#ready.add(port)
    else if (failures >= FAILURES) this.#ready.delete(port)
  }

  #pass(request: IncomingMessage, response: ServerResponse): void {
    const ready = this.#ports.filter(port => this.#ready.has(port))
    const port = ready[this.#next++ % Math.max(1, ready.length)]
    if (port === undefined) {
      response.writeHead(502).end('no instance is ready')
      return
    }
    this.passed.set(port, (this.passed.get(port) ?? 0) + 1)
    const { method, url: path, headers } = request
    const agent = this.#agents.get(port)
    const onward = httpRequest({ host: '127.0.0.1', port, method, path, headers, ...(agent && { agent }) }, answer => {
      const { connection: _, 'keep-alive': __, ...passedOn } = answer.headers
      response.writeHead(answer.statusCode ?? 502, passedOn)
      answer.pipe(response)
    })
    onward.on('error', error =>
      response.headersSent ? response.destroy() : response.writeHead(502).end(error.message),
    )
    request.pipe(onward)
  }
}
