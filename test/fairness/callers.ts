import { Agent, request as httpRequest } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { ProcessorTimes, type Serving } from './processor.js'
import type { Owner } from './world.js'

/** What one request was answered, and after how long. */
export interface Answer {
  status: number
  body: string
  headers: Record<string, string | string[] | undefined>
  durationMs: number
}

/** Sends requests over connections that stay open, from one address of this machine. */
export class Callers {
  readonly #port: number
  readonly #agent: Agent

  constructor(port: number, from = '127.0.0.1') {
    this.#port = port
    this.#agent = new Agent({ keepAlive: true, maxSockets: 500, localAddress: from })
  }

  /** Sends one request with a body; rejects when the connection is lost. */
  send(method: string, path: string, token: string, body: string | Buffer): Promise<Answer> {
    const start = performance.now()
    const headers = {
      authorization: `Bearer ${token}`,
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(body),
    }
    return new Promise((resolve, reject) => {
      const options = { host: '127.0.0.1', port: this.#port, agent: this.#agent, method, path, headers }
      const request = httpRequest(options, response => {
        const chunks: Buffer[] = []
        response.on('data', chunk => chunks.push(chunk))
        response.on('error', reject)
        response.on('end', () => {
          const text = Buffer.concat(chunks).toString('latin1')
          const durationMs = performance.now() - start
          resolve({ status: response.statusCode ?? 0, body: text, headers: response.headers, durationMs })
        })
      })
      request.on('error', reject)
      request.end(body)
    })
  }

  /** An update of an agent's fields. */
  update({ token, agentId }: Owner, fields: object, query = ''): Promise<Answer> {
    const mask = Object.keys(fields).join(',')
    return this.send('PATCH', `/persona/${agentId}?update_mask=${mask}${query}`, token, JSON.stringify(fields))
  }

  close(): void {
    this.#agent.destroy()
  }
}

/** What the quiet callers met in one slot of time. */
export interface Served {
  latenciesMs: number[]
  /** The same without what the threads that serve a request have waited for a processor. */
  processedMs: number[]
  statuses: Record<number, number>
  /** Requests that got no answer at all. */
  lost: number
}

/** The pause of a quiet caller between two updates: under the quota of 600 a minute, also when answers take no time. */
const PAUSE_MS = 105

/** What a quiet caller stores, and how long they pause between two updates. */
export interface QuietUpdates {
  /** The length of a prompt; without one a description is updated. */
  promptLength?: number
  pauseMs?: number
}

/** Each owner updates their agent again and again until the time is over, on a busy machine once at least. */
export async function quietUpdates(
  callers: Callers,
  owners: readonly Owner[],
  durationMs: number,
  serving: Serving,
  { promptLength, pauseMs = PAUSE_MS }: QuietUpdates = {},
): Promise<Served> {
  const served: Served = { latenciesMs: [], processedMs: [], statuses: {}, lost: 0 }
  const times = new ProcessorTimes(serving)
  const end = performance.now() + durationMs
  const fields = (text: string) =>
    promptLength === undefined ? { description: text } : { system_prompt: text.padEnd(promptLength, 'x') }
  const run = async (owner: Owner, place: number) => {
    await sleep((place * pauseMs) / owners.length)
    let n = 0
    do {
      const processedMs = times.begin()
      try {
        const { status, durationMs: ms } = await callers.update(owner, fields(`${place} ${n++} ${end}`))
        served.latenciesMs.push(ms)
        served.processedMs.push(processedMs(ms))
        served.statuses[status] = (served.statuses[status] ?? 0) + 1
      } catch {
        served.lost += 1
      }
      await sleep(pauseMs)
    } while (performance.now() < end)
  }
  await Promise.all(owners.map(run))
  times.close()
  return served
}

/** The value that a share of all values does not exceed. */
export function percentile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0
}
