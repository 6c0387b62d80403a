import { type ChildProcess, spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { eventually } from '../eventually.js'
import type { WithTeardown } from '../test-service.js'
import { ended, freePort } from './cluster.js'

export interface Readiness {
  status: number
  reason?: string
  detail?: string
}

/** The number of last characters of the log to keep. The log is cut only at twice this length, because each cut copies the log. */
const LOG_KEPT = 1_000_000

const OWN_SETTINGS = {
  HOST: '127.0.0.1',
  RATE_LIMIT_PER_MINUTE: '0',
  EVENT_LOOP_DELAY_MAX_MS: '0', // the machine may be busy
  DEMO: 'off',
  METRICS_PORT: '0',
  HISTORY_VERSIONS_MAX: '100000', // the tests read the whole history
}

/** Sends a request with a token. Returns the answer with its body, which is JSON or empty. */
export async function ask(
  { port }: { port: number },
  token: string,
  method: string,
  path: string,
  { body, headers = {}, signal = null }: Sent = {},
) {
  const response = await fetch(`http://127.0.0.1:${port}${path}`, {
    method,
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json', ...headers },
    body: body === undefined ? null : JSON.stringify(body),
    signal,
  })
  const [etag, replayed] = ['etag', 'idempotent-replayed'].map(name => response.headers.get(name) ?? undefined)
  const answer = JSON.parse((await response.text()) || '{}') as Record<string, unknown>
  return { status: response.status, etag, replayed, body: answer }
}

interface Sent {
  body?: object
  headers?: Record<string, string>
  signal?: AbortSignal | null
}

/** The real service in its own process, on a free port. */
export class ServiceProcess {
  #child: ChildProcess | undefined
  #log = ''

  constructor(
    readonly port: number,
    private readonly env: Record<string, string>,
  ) {}

  /** Starts the service with the settings `env` and waits until it is ready. With `t`, kills it after the test. */
  static async start(env: Record<string, string>, t?: WithTeardown): Promise<ServiceProcess> {
    const service = new ServiceProcess(await freePort(), env)
    t?.teardown(async () => void (await service.stop('SIGKILL')))
    service.launch()
    await service.ready()
    return service
  }

  get log(): string {
    return this.#log
  }

  get pid(): number {
    return this.#child?.pid ?? 0
  }

  /** The port of the metrics server, read from the log. */
  get metricsPort(): number {
    const line = this.#log.split('\n').find(text => text.includes('listening for metrics requests'))
    return JSON.parse(line ?? '{}').port
  }

  get isRunning(): boolean {
    return this.#child?.exitCode === null && this.#child.signalCode === null
  }

  launch(): void {
    const program = fileURLToPath(new URL('../../src/server.js', import.meta.url))
    const { PATH = '' } = process.env
    const child = spawn(process.execPath, [program], {
      env: { PATH, ...OWN_SETTINGS, PORT: String(this.port), ...this.env },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    child.stdout.on('data', text => this.#keep(String(text)))
    child.stderr.on('data', text => this.#keep(String(text)))
    this.#child = child
  }

  #keep(text: string): void {
    this.#log += text
    if (this.#log.length > 2 * LOG_KEPT) this.#log = this.#log.slice(-LOG_KEPT)
  }

  /** Waits until the readiness probe succeeds. */
  async ready(): Promise<void> {
    await eventually(async () => (await this.readiness()).status === 200).catch(() => {
      throw new Error(`the service does not get ready: ${this.#log.slice(-3_000)}`)
    })
  }

  async readiness(withinMs = 20_000): Promise<Readiness> {
    try {
      const response = await fetch(`http://127.0.0.1:${this.port}/readyz`, { signal: AbortSignal.timeout(withinMs) })
      const { reason, detail } = (await response.json()) as Omit<Readiness, 'status'>
      return { status: response.status, ...(reason && { reason }), ...(detail && { detail }) }
    } catch {
      return { status: 0 }
    }
  }

  /** Stops the process. Returns its exit code; null if a signal ended the process or it was never started. */
  async stop(how: NodeJS.Signals = 'SIGTERM'): Promise<number | null> {
    const child = this.#child
    if (child === undefined) return null
    child.kill(how)
    await ended(child)
    return child.exitCode
  }
}
