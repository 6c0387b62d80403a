import { Agent, request as httpRequest } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import type { ResourceKind } from '../../src/db/tables.js'
import { AGENT_COUNT, LABEL_COUNT, range, TOOL_COUNT } from './world.js'

/** One request and its end. `status` 0 is a connection error: no answer came. */
export interface Sent {
  kind: ResourceKind | 'validation'
  id: number
  /** A text that no other request sends: the description that the update sets. */
  marker: string
  dryRun: boolean
  ifMatch: string | undefined
  body: string
  path: string
  method: string
  status: number
  /** When the answer was there, on the clock of `performance.now()`. */
  endedAt: number
  durationMs: number
  etag: string | undefined
  retryAfter: string | undefined
  outcome: string | undefined
  reason: string | undefined
  /** The answer's text where it is no 200. */
  text: string
}

/** Counts through all loads of a process, so that no two requests are alike. */
let serial = 0

const CONNECTIONS = 16
const PAUSE_AFTER_STALE_TAG_MS = 10
const IS_FULL = process.env.TEST_CAMPAIGN === 'full'
/** Outside of the campaign each client rests between two requests: other tests have a part of the machine. */
const PAUSE_MS = IS_FULL ? 0 : 60
/** A client that is refused or lost tries again a little later: sixteen of them ask every 10 ms. The campaign is less patient. */
const PAUSE_AFTER_REFUSAL_MS = IS_FULL ? 10 : 150
const REQUEST_LIMIT_MS = 30_000

/** Clients that update agents and tools on sixteen connections, one request after the other on each, until they are stopped. */
export class Load {
  readonly sent: Sent[] = []
  readonly #port: () => number
  readonly #token: string
  readonly #tags = new Map<string, string>()
  readonly #agent = new Agent({ keepAlive: true, maxSockets: CONNECTIONS })
  #isRunning = false
  #workers: Promise<void>[] = []

  constructor(port: () => number, token: string) {
    this.#port = port
    this.#token = token
  }

  start(): void {
    this.#isRunning = true
    this.#workers = range(CONNECTIONS).map(() => this.#work())
  }

  /** Resolves when every request has its end. */
  async stop(): Promise<void> {
    this.#isRunning = false
    await Promise.all(this.#workers)
  }

  close(): void {
    this.#agent.destroy()
  }

  /** Sends the same request again, precondition included. */
  async repeat(sent: Sent): Promise<Sent> {
    const again = { ...sent }
    await this.#send(again)
    return again
  }

  async #work(): Promise<void> {
    while (this.#isRunning) {
      const sent = this.#next()
      this.sent.push(sent)
      await this.#send(sent)
      if (sent.etag !== undefined) this.#tags.set(`${sent.kind} ${sent.id}`, sent.etag)
      if (sent.status === 412) await sleep(PAUSE_AFTER_STALE_TAG_MS)
      else if (sent.status !== 200) await sleep(PAUSE_AFTER_REFUSAL_MS)
      else if (PAUSE_MS > 0) await sleep(PAUSE_MS)
    }
  }

  #next(): Sent {
    const marker = `m${process.pid}-${++serial}`
    const choice = Math.random()
    if (choice < 0.03) return validation(marker)
    const dryRun = choice < 0.1
    const kind = Math.random() < 0.5 ? 'persona' : 'tool'
    const id = 1 + Math.floor(Math.random() * (kind === 'persona' ? AGENT_COUNT : TOOL_COUNT))
    const ifMatch = Math.random() < 0.6 ? this.#tags.get(`${kind} ${id}`) : undefined
    const update = kind === 'persona' ? agentUpdate(id, marker) : toolUpdate(id, marker)
    const query = dryRun ? `${update.path.includes('?') ? '&' : '?'}dry_run=true` : ''
    return { ...UNSENT, ...update, path: update.path + query, kind, id, marker, dryRun, ifMatch }
  }

  async #send(sent: Sent): Promise<void> {
    const startedAt = performance.now()
    const { status, headers, text } = await exchange(this.#agent, this.#port(), { ...sent, token: this.#token })
    const refusal = status === 503 ? (JSON.parse(text) as { outcome?: string; reason?: string }) : {}
    Object.assign(sent, {
      status,
      endedAt: performance.now(),
      durationMs: performance.now() - startedAt,
      etag: headers.etag,
      retryAfter: headers['retry-after'],
      outcome: refusal.outcome,
      reason: refusal.reason,
      text: status === 200 ? '' : text,
    })
  }
}

/** A request as it is sent. */
export interface Outgoing {
  method: string
  path: string
  body: string
  token: string
  ifMatch?: string | undefined
}

/** Sends one request to a port of this machine. Status 0 is a connection error, with its message as the text. */
export function exchange(
  agent: Agent,
  port: number,
  { method, path, body, token, ifMatch }: Outgoing,
): Promise<{ status: number; headers: Record<string, unknown>; text: string }> {
  const headers = {
    authorization: `Bearer ${token}`,
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(body),
    ...(ifMatch !== undefined && { 'if-match': ifMatch }),
  }
  return new Promise(resolve => {
    const lost = (error: Error) => resolve({ status: 0, headers: {}, text: error.message })
    const options = { host: '127.0.0.1', port, agent, method, path, headers, timeout: REQUEST_LIMIT_MS }
    const request = httpRequest(options, response => {
      let text = ''
      response.setEncoding('utf8')
      response.on('data', (data: string) => {
        text += data
      })
      response.on('end', () => resolve({ status: response.statusCode ?? 0, headers: response.headers, text }))
      response.on('error', lost)
    })
    request.on('timeout', () => request.destroy(new Error('no answer in time')))
    request.on('error', lost)
    request.end(body)
  })
}

const UNSENT = {
  status: 0,
  endedAt: 0,
  durationMs: 0,
  etag: undefined,
  retryAfter: undefined,
  outcome: undefined,
  reason: undefined,
  text: '',
}

/** One in three also replaces relations: rows of several tables in one update. */
function agentUpdate(id: number, marker: string) {
  const relations = Math.random() < 0.33
  const body = relations
    ? { description: marker, tool_ids: someOf(TOOL_COUNT), label_ids: someOf(LABEL_COUNT) }
    : { description: marker }
  return {
    method: 'PATCH',
    path: `/persona/${id}?update_mask=${Object.keys(body).join(',')}`,
    body: JSON.stringify(body),
  }
}

/** One in three also replaces the secret headers, another the definition. */
function toolUpdate(id: number, marker: string) {
  const choice = Math.random()
  const body = {
    description: marker,
    ...(choice < 0.33 && { custom_headers: [{ key: 'X-Key', value: marker }] }),
    ...(choice > 0.67 && { definition: definition(marker) }),
  }
  return { method: 'PUT', path: `/admin/tool/custom/${id}`, body: JSON.stringify(body) }
}

function validation(marker: string): Sent {
  const body = JSON.stringify({ definition: definition(marker) })
  const rest = { kind: 'validation', id: 0, marker, dryRun: true, ifMatch: undefined } as const
  return { ...UNSENT, ...rest, method: 'POST', path: '/admin/tool/custom/validate', body }
}

/** A small definition that passes the check. */
export function definition(title: string) {
  const operation = { operationId: 'find', summary: 'Find', responses: { 200: { description: 'Found' } } }
  return {
    openapi: '3.1.0',
    info: { title, version: '1' },
    servers: [{ url: 'https://api.example.com' }],
    paths: { '/find': { get: operation } },
  }
}

function someOf(count: number): number[] {
  return range(count).filter(() => Math.random() < 0.4)
}
