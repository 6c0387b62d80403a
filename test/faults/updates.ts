import { setTimeout as sleep } from 'node:timers/promises'
import { REQUIRED_FIELDS } from '../app.js'
import { ask } from './service.js'
import { AGENT_COUNT, range } from './world.js'

interface Queried {
  query<R extends Record<string, unknown>>(text: string): Promise<R[]>
}

const NEW_AGENT = { ...REQUIRED_FIELDS, document_set_ids: [], tool_ids: [] }
const CREATES_EVERY = 4

/** Callers that each write to their own agent, one write after another: updates, restorations, and creations of other agents. Records each answer. */
export class Updates {
  /** Answers by request id: the status, for a 503 also the outcome, and `cut` if there was no answer. */
  readonly told = new Map<string, string>()
  readonly #lanes: Promise<unknown>
  #isOver = false

  constructor(
    private readonly port: () => number,
    private readonly token: string,
  ) {
    this.#lanes = Promise.all(range(AGENT_COUNT).map(id => this.#lane(id)))
  }

  async stop(): Promise<void> {
    this.#isOver = true
    await this.#lanes
  }

  count(answer: string): number {
    return [...this.told.values()].filter(each => each === answer).length
  }

  /** Waits for at least `least` further answers equal to `answer`. */
  async more(answer: string, least = 5): Promise<void> {
    for (const wanted = this.count(answer) + least; this.count(answer) < wanted; ) await sleep(20)
  }

  /** Returns the answers that contradict the audit trail, and answers of unexpected kinds. */
  async wrong(database: Queried): Promise<unknown[]> {
    const rows = await database.query<{ id: string }>(`select split_part(request_id, '.', 1) as id from audit`)
    return [...this.told].filter(([request, answer]) => {
      const stored = rows.filter(({ id }) => id === request).length
      if (answer === '200' || answer === '503 applied') return stored !== 1
      return stored > (/^(503 unknown|cut)$/.test(answer) ? 1 : 0) || !/^(503 (unknown|not_applied)|cut)$/.test(answer)
    })
  }

  async #lane(id: number): Promise<void> {
    let answer = ''
    let version = 0 // the agent's version; from version 3 on, the previous version differs and can be restored
    for (let number = 0; !this.#isOver; number++) {
      const request = `${process.pid}-${Math.round(performance.now() * 1_000)}-${id}-${number}`
      const restores = number % CREATES_EVERY === 2 && answer === '200' && version > 2
      const [method, path, body] = restores
        ? (['POST', `/persona/${id}/restore`, { version: version - 1 }] as const)
        : number % CREATES_EVERY === 0
          ? (['POST', '/persona', { ...NEW_AGENT, description: request }] as const)
          : (['PATCH', `/persona/${id}?update_mask=description`, { description: request }] as const)
      answer = await this.#send(request, method, path, body).catch(() => 'cut')
      const [told = '', made] = answer.split(' at ')
      answer = told
      if (method === 'PATCH' && answer === '200') version = Number(made)
      this.told.set(request, answer)
      await sleep(answer === '200' ? 10 : 100)
    }
  }

  async #send(request: string, method: string, path: string, body: object): Promise<string> {
    const sent = { body, headers: { 'x-request-id': request } }
    const { status, etag, body: answer } = await ask({ port: this.port() }, this.token, method, path, sent)
    if (status === 200) return `200 at ${/-(\d+)"$/.exec(String(etag))?.[1]}`
    return status === 201 ? '200' : `${status} ${answer.outcome ?? ''}`.trim()
  }
}
