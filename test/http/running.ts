import { connect, type Socket } from 'node:net'
import type { LightMyRequestResponse } from 'fastify'
import type { Test } from 'tap'
import { mintToken } from '../../src/auth/token.js'
import { readConfig } from '../../src/config.js'
import type { Database } from '../../src/db/database.js'
import { openUrl } from '../../src/db/open.js'
import { makeLogger } from '../../src/http/logging.js'
import { Metrics } from '../../src/http/metrics.js'
import { eventually } from '../eventually.js'
import { listening, type ServiceOptions, startedService, type TestService, type WithTeardown } from '../test-service.js'
import { worldDatabase } from '../world.js'

export { eventually }

/** Returns the number of requests in progress, from the metrics. */
export async function inWork({ metrics }: Pick<Running, 'metrics'>): Promise<number> {
  return Number(/agents_http_requests_in_work (\d+)/.exec(await metrics.registry.metrics())?.[1])
}

/** Waits until `count` requests are in progress. */
export async function whenInWork(service: Pick<Running, 'metrics'>, count: number): Promise<void> {
  await eventually(async () => (await inWork(service)) === count)
}

/** The service as its process builds it, on its own database. The log is kept in memory. */
export interface Running extends Started {
  /** A token of an administrator. */
  token: string
  /** A token of an inactive user. */
  inactiveToken: string
  /** The open port; 0 without `listen`. */
  port: number
}

/** Builds the service on a database as its process does. Closes the service after the test. */
export async function observedService(
  t: WithTeardown,
  url: string,
  { metrics = new Metrics(), settings = {}, ...options }: Omit<ServiceOptions, 'logger'> = {},
): Promise<Started> {
  const config = readConfig({ LOG_LEVEL: 'trace', ...settings })
  const log: string[] = []
  const logger = makeLogger(config.server.logLevel, { write: line => log.push(line) })
  const database = openUrl(url, config)
  t.teardown(() => database.close())
  const statements: string[] = []
  database.pool.on('connect', client => {
    const query = client.query.bind(client)
    const kept = (...sent: [{ text?: string }]) => {
      statements.push(sent[0].text ?? String(sent[0]))
      return Reflect.apply(query, client, sent)
    }
    Object.assign(client, { query: kept })
  })
  const known = { DATABASE_URL: url, ...settings }
  const started = await startedService(t, database, { ...options, settings: known, metrics, logger })
  return { ...started, database, log, statements, metrics }
}

interface Started extends TestService {
  database: Database
  metrics: Metrics
  /** The log, one JSON text per line. */
  log: string[]
  /** The statements in order: those of the service, and those that the test sends through the same database. */
  statements: string[]
}

/** Starts the service. With `listen`, opens a port on the loopback address. Without it, requests are injected. */
export async function running(
  t: WithTeardown,
  settings: Record<string, string> = {},
  { listen = false, metrics = new Metrics() }: { listen?: boolean; metrics?: Metrics } = {},
): Promise<Running> {
  const { url } = await worldDatabase(t)
  const started = await observedService(t, url, { settings: { DATABASE_POOL_SIZE: '4', ...settings }, metrics })
  return {
    ...started,
    token: await tokenOf(started.database, { email: 'alice+admin@example.com' }),
    inactiveToken: await tokenOf(started.database, { email: 'alice+gone@example.com', active: false }),
    port: listen ? await listening(started.app) : 0,
  }
}

/** Creates an administrator and returns a token. */
export async function tokenOf({ db }: Database, person: { email: string; active?: boolean }): Promise<string> {
  const { token, hash } = mintToken('person')
  const user = await db
    .insertInto('user_account')
    .values({ kind: 'person', permissions: ['basic', 'admin'], ...person })
    .returning('id')
    .executeTakeFirstOrThrow()
  await db.insertInto('token').values({ hash, user_id: user.id }).execute()
  return token
}

/** A connection that collects the received text. */
export class RawConnection {
  text = ''
  readonly closed: Promise<void>
  readonly socket: Socket

  constructor(port: number, localAddress = '127.0.0.1') {
    this.socket = connect({ port, host: '127.0.0.1', localAddress })
    this.socket.on('data', chunk => {
      this.text += chunk.toString('latin1')
    })
    this.socket.on('error', () => {}) // some tests wait for a cut connection
    this.closed = new Promise(resolve => this.socket.once('close', () => resolve()))
  }

  write(text: string): this {
    this.socket.write(text)
    return this
  }

  /** Waits until the received text matches, and returns it. */
  async until(pattern: RegExp): Promise<string> {
    await eventually(() => pattern.test(this.text)).catch(() =>
      Promise.reject(new Error(`no ${pattern}: ${this.text}`)),
    )
    return this.text
  }

  /** The JSON body of the last answer. */
  json(): Record<string, unknown> {
    return JSON.parse(this.text.slice(this.text.lastIndexOf('\r\n\r\n') + 4))
  }
}

/** Starts an update without sending its body. */
export function begin({ port, token }: Running, of = token, length = 'Content-Length: 20'): RawConnection {
  const line = 'PATCH /persona/999999?update_mask=description HTTP/1.1'
  return new RawConnection(port).write(`${line}\r\nHost: a\r\nAuthorization: Bearer ${of}\r\n${length}\r\n\r\n`)
}

/** Checks that the text and the headers of a 429 state the same limit and retry time. */
export function saysItsLimit(t: Test, { headers, json }: Pick<LightMyRequestResponse, 'headers' | 'json'>): void {
  const { 'retry-after': retryAfter, 'ratelimit-policy': policy, ratelimit } = headers
  const [, quota] = /;q=(\d+)/.exec(String(policy)) ?? []
  const [, resetS] = /;t=(\d+)/.exec(String(ratelimit)) ?? []
  t.equal(resetS, retryAfter)
  const inWords = quota === '1' ? 'one' : quota
  t.match(json().detail, new RegExp(`\\b${inWords}\\b.* Try again in ${retryAfter} s\\.$`))
}
