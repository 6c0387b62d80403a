import { setTimeout as sleep } from 'node:timers/promises'
import { REQUIRED_FIELDS } from '../app.js'
import { AGENT_COUNT, range } from './world.js'

/** A database that can be asked. */
interface Queried {
  query<R extends Record<string, unknown>>(text: string): Promise<R[]>
}

const NEW_AGENT = { ...REQUIRED_FIELDS, document_set_ids: [], tool_ids: [] }
const CREATES_EVERY = 4

/** Callers that update one agent each and at times create one, one change after the other, and what each change was answered. */
export class Updates {
  /** By the description that it sets: a status, of a 503 with its outcome; `cut` where no answer came. */
  readonly told = new Map<string, string>()
  readonly #port: () => number
  readonly #token: string
  readonly #lanes: Promise<unknown>
  #isOver = false

  constructor(port: () => number, token: string) {
    this.#port = port
    this.#token = token
    this.#lanes = Promise.all(range(AGENT_COUNT).map(id => this.#lane(id)))
  }

  /** Resolves when every update has its end. */
  async stop(): Promise<void> {
    this.#isOver = true
    await this.#lanes
  }

  count(answer: string): number {
    return [...this.told.values()].filter(each => each === answer).length
  }

  /** Waits for this number of further answers of this kind. */
  async more(answer: string, least = 5): Promise<void> {
    for (const wanted = this.count(answer) + least; this.count(answer) < wanted; ) await sleep(20)
  }

  /** The updates whose answer is not true of the audit trail, and the kinds of answers that must not be. */
  async wrong(database: Queried): Promise<unknown[]> {
    const rows = await database.query<{ to: string }>(`select difference -> 'description' ->> 'to' as to from audit`)
    return [...this.told].filter(([description, answer]) => {
      const stored = rows.filter(({ to }) => to === description).length
      if (answer === '200' || answer === '503 applied') return stored !== 1
      return stored > (/^(503 unknown|cut)$/.test(answer) ? 1 : 0) || !/^(503 (unknown|not_applied)|cut)$/.test(answer)
    })
  }

  async #lane(id: number): Promise<void> {
    for (let number = 0; !this.#isOver; number++) {
      const description = `${process.pid} ${performance.now()} ${id} ${number}`
      const isCreation = number % CREATES_EVERY === 0
      const answer = await this.#change(id, description, isCreation).catch(() => 'cut')
      this.told.set(description, answer)
      await sleep(answer === '200' ? 10 : 100)
    }
  }

  async #change(id: number, description: string, isCreation: boolean): Promise<string> {
    const path = isCreation ? '/persona' : `/persona/${id}?update_mask=description`
    const response = await fetch(`http://127.0.0.1:${this.#port()}${path}`, {
      method: isCreation ? 'POST' : 'PATCH',
      headers: { authorization: `Bearer ${this.#token}`, 'content-type': 'application/json' },
      body: JSON.stringify({ ...(isCreation && NEW_AGENT), description }),
    })
    const { outcome = '' } = (await response.json()) as { outcome?: string }
    return response.status === 201 ? '200' : `${response.status} ${outcome}`.trim()
  }
}
