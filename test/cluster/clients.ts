import { Agent } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import type { ResourceKind } from '../../src/db/tables.js'
import { exchange, type Sent } from '../faults/load.js'
import { range } from '../faults/world.js'
import type { Way } from './layout.js'

/** A request and its end, with what the checker needs to know of the client that sent it. */
export interface Recorded extends Sent {
  kind: ResourceKind
  way: Way
  /** No two clients have the same name; each sends one request after the other, but for the probes. */
  client: string
  port: number
  /** On the clock of `performance.now()`. */
  startedAt: number
  /** The newest version of the resource that this client had been acknowledged when it sent this request; 0 is none. */
  floor: number
  /** The version that the answer names: the stored one after 200, the current one after 412; 0 is none. */
  version: number
  /** The version in which a 412 says that this very update is stored; 0 is none. */
  storedVersion: number
  isRead: boolean
  /** How often the same request was sent before, each time without learning what became of it. */
  attempt: number
}

export interface Resource {
  kind: ResourceKind
  id: number
}

interface Draft {
  method: string
  path: string
  body: string
  ifMatch: string | undefined
  marker: string
  isRead: boolean
}

const PAUSE_MS = 50
const PAUSE_AFTER_TROUBLE_MS = 200
/** A client that does not learn what became of its update asks no longer than this. */
const REPEAT_FOR_MS = 60_000
const WRITE_SHARE = 0.6
const CONDITION_SHARE = 0.75

/** Counts through all clients of this process, so that no two updates are alike. */
let serial = 0

/** Where a client sends its next request. */
export type Route = () => number

/**
 * A client that reads and updates the agents and tools of its way in, most updates on the condition that nothing changed
 * since it saw them. What it sent and was answered stands in `sent`, which all clients of a trial share.
 */
export class Client {
  readonly #tags = new Map<string, string>()
  readonly #acknowledged = new Map<string, number>()
  readonly #agent = new Agent({ keepAlive: true })
  #isRunning = true

  constructor(
    readonly name: string,
    readonly way: Way,
    readonly route: Route,
    readonly token: string,
    readonly sent: Recorded[],
  ) {}

  /** Sends one request after the other until `stop`; resolves when the last has its end. */
  async run(resources: readonly Resource[]): Promise<void> {
    while (this.#isRunning) {
      const resource = resources[Math.floor(Math.random() * resources.length)] as Resource // there is at least one
      const draft = Math.random() < WRITE_SHARE ? this.#update(resource) : readOf(resource, this.way)
      const { status } = await this.#settled(resource, draft)
      await sleep(status === 200 || status === 412 ? PAUSE_MS : PAUSE_AFTER_TROUBLE_MS)
    }
    this.#agent.destroy()
  }

  /** Updates the resource whatever its version. */
  async probe(resource: Resource): Promise<void> {
    await this.send(resource, updateOf(resource, undefined, this.way), 0)
  }

  stop(): void {
    this.#isRunning = false
  }

  close(): void {
    this.#agent.destroy()
  }

  /** An update with a condition whose outcome stays open is sent again, as it was, until it is settled. */
  async #settled(resource: Resource, draft: Draft): Promise<Recorded> {
    const until = performance.now() + REPEAT_FOR_MS
    for (let attempt = 0; ; attempt++) {
      const sent = await this.send(resource, draft, attempt)
      const isOpen = !draft.isRead && (sent.status === 0 || sent.outcome === 'unknown')
      // A repeat that was refused says nothing about the attempts before it.
      const isRefused = attempt > 0 && sent.status === 503
      const mayRepeat = draft.ifMatch !== undefined && performance.now() < until
      if (!(isOpen || isRefused) || !mayRepeat) return sent
      await sleep(PAUSE_AFTER_TROUBLE_MS)
    }
  }

  async send(resource: Resource, draft: Draft, attempt: number): Promise<Recorded> {
    const key = keyOf(resource)
    const port = this.route()
    const { isRead, ...request } = draft
    const sent: Recorded = {
      ...request,
      ...resource,
      way: this.way,
      client: this.name,
      port,
      startedAt: performance.now(),
      floor: this.#acknowledged.get(key) ?? 0,
      dryRun: isRead,
      isRead,
      attempt,
      version: 0,
      storedVersion: 0,
      status: 0,
      endedAt: 0,
      durationMs: 0,
      etag: undefined,
      retryAfter: undefined,
      outcome: undefined,
      reason: undefined,
      text: '',
    }
    this.sent.push(sent)
    const answer = await exchange(this.#agent, port, { ...request, token: this.token })
    this.#note(sent, answer, key)
    return sent
  }

  #note(sent: Recorded, answer: Awaited<ReturnType<typeof exchange>>, key: string): void {
    const { headers, text } = answer
    const body = parsed(headers, text)
    // What is not of the service is its balancer's: the service has not answered.
    const status = body === undefined ? 0 : answer.status
    const tag = status === 412 ? body?.current_etag : headers.etag
    Object.assign(sent, {
      status,
      endedAt: performance.now(),
      durationMs: performance.now() - sent.startedAt,
      etag: headers.etag,
      retryAfter: headers['retry-after'],
      outcome: body?.outcome,
      reason: body?.reason,
      version: versionOf(tag),
      storedVersion: versionOf(body?.applied_etag),
      text: status === 200 ? '' : `${status === answer.status ? '' : `${answer.status} `}${text}`,
    })
    if (typeof tag === 'string') this.#tags.set(key, tag)
    if (status === 200 && !sent.dryRun) {
      this.#acknowledged.set(key, Math.max(sent.version, this.#acknowledged.get(key) ?? 0))
    }
  }

  #update(resource: Resource): Draft {
    const ifMatch = Math.random() < CONDITION_SHARE ? this.#tags.get(keyOf(resource)) : undefined
    return updateOf(resource, ifMatch, this.way)
  }
}

interface Body {
  outcome?: string
  reason?: string
  current_etag?: string
  applied_etag?: string | null
}

function parsed(headers: Record<string, unknown>, text: string): Body | undefined {
  if (!String(headers['content-type']).startsWith('application/json')) return undefined
  return JSON.parse(text) as Body // every field is checked where it is used
}

/** The version in an entity tag such as `"persona-1-7"`; 0 where there is none. */
export function versionOf(tag: unknown): number {
  return Number(/-(\d+)"$/.exec(typeof tag === 'string' ? tag : '')?.[1] ?? 0)
}

export function keyOf({ kind, id }: Resource): string {
  return `${kind} ${id}`
}

function updateOf({ kind, id }: Resource, ifMatch: string | undefined, way: Way): Draft {
  const marker = `${way}-${process.pid}-${++serial}`
  const body = JSON.stringify({ description: marker })
  const common = { body, marker, ifMatch, isRead: false }
  return kind === 'persona'
    ? { ...common, method: 'PATCH', path: `/persona/${id}?update_mask=description` }
    : { ...common, method: 'PUT', path: `/admin/tool/custom/${id}` }
}

/** A read: the dry run of an update that names no field. */
function readOf({ kind, id }: Resource, way: Way): Draft {
  const common = { body: '{}', marker: `${way}-read-${++serial}`, ifMatch: undefined, isRead: true }
  return kind === 'persona'
    ? { ...common, method: 'PATCH', path: `/persona/${id}?update_mask=&dry_run=true` }
    : { ...common, method: 'PUT', path: `/admin/tool/custom/${id}?dry_run=true` }
}

/** The agents from `first` on and the tools from `firstTool` on, so many of each. */
export function resourcesOf(first: number, count: number, firstTool: number, toolCount: number): Resource[] {
  return [
    ...range(count).map(n => ({ kind: 'persona' as const, id: first - 1 + n })),
    ...range(toolCount).map(n => ({ kind: 'tool' as const, id: firstTool - 1 + n })),
  ]
}
