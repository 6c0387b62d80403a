import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import type { Test } from 'tap'
import { readConfig } from '../../src/config.js'
import { parseDatabaseUrl } from '../../src/db/connection/database-url.js'
import { openUrl } from '../../src/db/open.js'
import { appOver, type WorldApp } from '../app.js'
import { type Act, fatal, MessageProxy, READY, type WireMessage } from './message-proxy.js'

/** Longer than this the other writer is not waited for: it may wait for a lock that the held message would free. */
const WRITER_PATIENCE_MS = 300

export const FAULTS = {
  'cut before it': () => ({ do: 'cut', after: 0 }),
  'cut in its first byte': () => ({ do: 'cut', after: 1 }),
  'cut before its last byte': ({ bytes }: WireMessage) => ({ do: 'cut', after: bytes.length - 1 }),
  '08P01 instead of it': () => ({ do: 'answer', bytes: fatal('08P01', 'server conn crashed?'), deliver: false }),
  '08P01, and the server gets it': () => ({ do: 'answer', bytes: fatal('08P01', 'client lost'), deliver: true }),
  '57P01 instead of it': () => ({ do: 'answer', bytes: fatal('57P01', 'terminating connection'), deliver: false }),
  '57P01, and the server gets it': () => ({ do: 'answer', bytes: fatal('57P01', 'shutting down'), deliver: true }),
  '53300 and ready again, and the server gets it': () => fatalAndReady('53300'),
  '25006 and ready again, and the server gets it': () => fatalAndReady('25006'),
  "of the server's arrives twice": ({ from }: WireMessage) => ({ do: from === 'server' ? 'repeat' : 'pass' }),
  'held until somebody else has written': (_: WireMessage, written: Promise<unknown>) => ({
    do: 'hold',
    until: written,
  }),
} satisfies Record<string, (message: WireMessage, written: Promise<unknown>) => Act>
export type Fault = keyof typeof FAULTS

export interface Trial {
  at: number
  fault: Fault
  /** With the tag that is stored before; without one the update is unconditional. */
  withTag: boolean
  /** Somebody writes before this update does, so that it decides again under the lock. */
  contended: boolean
}

export interface Answer {
  status: number
  /** Of a 412: whether it says that this update was stored before. */
  wasStored: boolean
  outcome: string | undefined
  description: string | undefined
}

export interface Mode {
  name: string
  settings: Record<string, string>
  disguised: boolean
}

/** What all lanes share: the database, another way to write, and a look at what is stored. */
export interface Site {
  url: string
  token: string
  others: Pick<WorldApp, 'call'>
  witness: pg.Pool
}

/** One agent, updated by a service that reaches the database through a proxy of its own. */
export class Lane {
  readonly #site: Site
  readonly #agent: number
  readonly #mode: string
  readonly #proxy: MessageProxy
  readonly #app: Pick<WorldApp, 'call'>
  readonly #expected: { description: string; stored: readonly number[]; answer: Answer; trial: Trial }[] = []
  #trials = 0
  fired = 0

  private constructor(site: Site, agent: number, mode: string, proxy: MessageProxy, app: Pick<WorldApp, 'call'>) {
    this.#site = site
    this.#agent = agent
    this.#mode = mode
    this.#proxy = proxy
    this.#app = app
  }

  static async open(t: Test, site: Site, agent: number, { name: mode, settings, disguised }: Mode): Promise<Lane> {
    const { url } = site
    const parsed = parseDatabaseUrl(url)
    if (!parsed.ok) throw new Error(parsed.faults.join('; '))
    const server = parsed.url
    const proxy = await MessageProxy.open({ ...server, disguised })
    t.teardown(() => proxy.close())
    const { user, database: name } = parsed.url
    const through = `postgresql://${user}@127.0.0.1:${proxy.port}/${name}`
    const database = openUrl(through, readConfig({ DATABASE_POOL_SIZE: '1', ...settings }))
    t.teardown(() => database.close(500))
    return new Lane(site, agent, mode, proxy, await appOver(t, database))
  }

  /** How many messages an undisturbed update exchanges. */
  async messagesOfAnUpdate(contended: boolean): Promise<number> {
    for (let warm = 0; warm < 3; warm++) await this.#update(`warm ${warm}`, contended)
    let count = 0
    this.#proxy.decide = () => {
      count++
      return { do: 'pass' }
    }
    await this.#update('counted', contended)
    this.#proxy.decide = () => ({ do: 'pass' })
    return count
  }

  async run(trial: Trial): Promise<{ answer: Answer; wrong: string | undefined }> {
    const description = `agent ${this.#agent} ${this.#mode}, trial ${++this.#trials}`
    const tag = trial.withTag ? await this.#tag() : undefined
    const written = this.#arm(trial, description)
    const answer = await this.#update(description, trial.contended, tag)
    this.#proxy.decide = () => ({ do: 'pass' })
    await written()
    const stored = await this.#storedTimes(description)
    const allowed = allowedFor(answer)
    this.#expected.push({ description, stored: allowed, answer, trial })
    let wrong = allowed.includes(stored) ? undefined : `stored ${stored} times`
    if (answer.outcome === 'unknown' && tag !== undefined) wrong ??= await this.#wrongAfterRepeat(description, tag)
    return { answer, wrong }
  }

  /** An answer must stay true: what was not applied is not applied later. */
  async finallyWrong(): Promise<string[]> {
    const wrong = []
    for (const { description, stored: allowed, answer, trial } of this.#expected) {
      const stored = await this.#storedTimes(description)
      if (!allowed.includes(stored)) {
        wrong.push(`stored ${stored} times in the end: ${JSON.stringify(trial)} answered ${JSON.stringify(answer)}`)
      }
    }
    return wrong
  }

  /** Repeating an unknown update with its tag settles it: 200, or 412 that says whether it was stored. */
  async #wrongAfterRepeat(description: string, tag: string): Promise<string | undefined> {
    const again = await this.#update(description, false, tag)
    const stored = await this.#storedTimes(description)
    if (again.status === 200) return stored === 1 ? undefined : `repeated 200 and stored ${stored} times`
    const isTrue = again.status === 412 && stored === (again.wasStored ? 1 : 0)
    return isTrue ? undefined : `repeated ${JSON.stringify(again)}, stored ${stored} times`
  }

  /** The fault at its message; what comes behind it sees the database after somebody else has written. */
  #arm({ at, fault }: Trial, description: string): () => Promise<unknown> {
    let seen = 0
    let writing: Promise<unknown> = Promise.resolve()
    this.#proxy.decide = message => {
      if (++seen !== at) return { do: 'pass' }
      this.fired++
      writing = this.#otherWrites(`other than ${description}`)
      const patience = Promise.race([writing, sleep(WRITER_PATIENCE_MS)])
      this.#proxy.admission = patience
      return FAULTS[fault](message, patience)
    }
    return () => writing
  }

  async #otherWrites(description: string): Promise<void> {
    const { statusCode } = await this.#site.others.call('PATCH', this.#path, {
      token: this.#site.token,
      body: { description },
    })
    if (statusCode !== 200) throw new Error(`the other writer was answered ${statusCode}`)
  }

  async #update(description: string, contended: boolean, tag?: string): Promise<Answer> {
    if (contended) this.#contend()
    const headers = tag === undefined ? {} : { 'if-match': tag }
    const response = await this.#app.call('PATCH', this.#path, {
      token: this.#site.token,
      headers,
      body: { description },
    })
    const body = response.json<{ outcome?: string; description?: string; applied_etag?: string | null }>()
    const { outcome, description: told, applied_etag = null } = body
    return { status: response.statusCode, wasStored: applied_etag !== null, outcome, description: told }
  }

  /** Somebody writes after this update has read and before it writes. */
  #contend(): void {
    const decide = this.#proxy.decide
    let answers = 0
    this.#proxy.decide = message => {
      if (message.from === 'server' && message.type === 'Z') answers++
      const act = decide(message)
      if (answers !== 1 || message.from !== 'service' || act.do !== 'pass') return act
      answers++
      return { do: 'hold', until: this.#otherWrites(`before trial ${this.#trials}`) }
    }
  }

  async #tag(): Promise<string> {
    const response = await this.#site.others.call('PATCH', `/persona/${this.#agent}?update_mask=`, {
      token: this.#site.token,
      body: {},
    })
    return String(response.headers.etag)
  }

  async #storedTimes(description: string): Promise<number> {
    const { rows } = await this.#site.witness.query<{ n: number }>(
      `select count(*)::integer as n from audit where difference -> 'description' ->> 'to' = $1`,
      [description],
    )
    return rows[0]?.n ?? -1
  }

  get #path(): string {
    return `/persona/${this.#agent}?update_mask=description`
  }
}

function fatalAndReady(code: string): Act {
  return { do: 'answer', bytes: Buffer.concat([fatal(code, 'said by a pooler'), READY]), deliver: true }
}

/** How many times an update may be found stored after this answer. */
function allowedFor({ status, outcome }: Answer): readonly number[] {
  if (status === 200) return [1]
  if (status === 412) return [0]
  if (status === 503) return outcome === 'unknown' ? [0, 1] : [0]
  return []
}
