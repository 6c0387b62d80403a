import pg from 'pg'
import { classifyDatabaseError, isAboutConnecting } from '../connection/sqlstate.js'

/** Answers several questions with one statement: one answer for each, in their order. */
export type AnswerAll<Q, A> = (questions: readonly Q[]) => Promise<readonly A[]>

/** What is asked, and what decides with whom it may go. */
export interface Question<Q> {
  content: Q
  /** Questions with the same key go in different groups; undefined where all may go together. */
  key?: unknown
  /** About how many bytes it sends. */
  size: number
}

interface Asked<Q, A> extends Question<Q> {
  resolve(answer: A): void
  reject(error: unknown): void
}

/**
 * More are not asked together. Eight save most of what can be saved, and what comes at the same time is spread over
 * several connections and processors.
 */
const BATCH_ROWS_MAX = 8
/** A question that sends more goes alone, for what it sends outweighs what sharing saves. */
const BYTES_MAX = 256 * 1024

/**
 * Asks together what is asked in the same turn of the event loop. Sending a statement, starting it, committing it and waking
 * those who wait cost more than most statements themselves: requests that arrive together share them. Nobody waits for
 * company: what one turn brought is sent at its end, and a question alone goes alone. Every answer is as fresh as if it
 * were asked alone, for the statement begins after the question.
 */
export class Batcher<Q, A> {
  readonly #answerAll: AnswerAll<Q, A>
  #asked: Asked<Q, A>[] = []

  constructor(answerAll: AnswerAll<Q, A>) {
    this.#answerAll = answerAll
  }

  /** Answers a question, or rejects with the error of the statement that should have answered it. */
  ask({ content, key, size }: Question<Q>): Promise<A> {
    return new Promise((resolve, reject) => {
      if (this.#asked.length === 0) setImmediate(() => this.#send())
      this.#asked.push({ content, key, size, resolve, reject })
    })
  }

  #send(): void {
    const asked = this.#asked
    this.#asked = []
    for (const group of grouped(asked)) void this.#answer(group)
  }

  async #answer(asked: readonly Asked<Q, A>[]): Promise<void> {
    try {
      const answers = await this.#answerAll(asked.map(({ content }) => content))
      asked.forEach(({ resolve }, i) => {
        resolve(answers[i] as A) // one for each: the contract of `AnswerAll`
      })
    } catch (error) {
      // One row that the server cannot read or write must not fail the requests that came along with it.
      if (asked.length > 1 && isAboutOneQuestion(error)) for (const one of asked) void this.#answer([one])
      else for (const { reject } of asked) reject(error)
    }
  }
}

/** In the order asked, each as long as it may become. */
function grouped<T extends Question<unknown>>(asked: readonly T[]): T[][] {
  const groups: T[][] = []
  let keys = new Set<unknown>()
  let size = 0
  for (const question of asked) {
    const group = groups.at(-1)
    const isFull = group === undefined || group.length >= BATCH_ROWS_MAX || size + question.size > BYTES_MAX
    if (isFull || keys.has(question.key)) {
      groups.push([question])
      keys = new Set()
      size = 0
    } else {
      group.push(question)
    }
    size += question.size
    if (question.key !== undefined) keys.add(question.key)
  }
  return groups
}

/**
 * Whether the others may well have an answer: the server refused the statement, so nothing of it was applied, for what was
 * in it and not for the state that the server is in. One that took too long, or was cancelled, may have done so for one row.
 */
function isAboutOneQuestion(error: unknown): boolean {
  if (!(error instanceof pg.DatabaseError)) return false
  const { kind } = classifyDatabaseError(error)
  if (kind === 'statement_timeout' || kind === 'lock_timeout') return true
  return !isAboutConnecting(error) && (kind === 'other' || kind === 'constraint')
}
