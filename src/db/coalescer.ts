import pg from 'pg'
import { classifyDatabaseError } from './sqlstate.js'

/** Answers several questions with one statement: one answer for each, in their order. */
export type AnswerAll<Q, A> = (questions: readonly Q[]) => Promise<readonly A[]>

interface Asked<Q, A> {
  question: Q
  resolve(answer: A): void
  reject(error: unknown): void
}

/** More are not asked together: their answers would wait for one another longer than they save. */
const TOGETHER_MAX = 32

/**
 * Asks together what is asked in the same turn of the event loop. Sending a statement, starting it and waking those who
 * wait cost more than one look-up itself: requests that arrive together share them. Nobody waits for company: what one
 * turn brought is sent at its end, and a question alone goes alone. Every answer is as fresh as if it were asked alone, for
 * the statement begins after the question.
 */
export class Coalescer<Q, A> {
  readonly #answerAll: AnswerAll<Q, A>
  #asked: Asked<Q, A>[] = []

  constructor(answerAll: AnswerAll<Q, A>) {
    this.#answerAll = answerAll
  }

  /** Answers a question, or rejects with the error of the statement that should have answered it. */
  ask(question: Q): Promise<A> {
    return new Promise((resolve, reject) => {
      if (this.#asked.length === 0) setImmediate(() => this.#send())
      this.#asked.push({ question, resolve, reject })
    })
  }

  #send(): void {
    const asked = this.#asked
    this.#asked = []
    for (let i = 0; i < asked.length; i += TOGETHER_MAX) void this.#answer(asked.slice(i, i + TOGETHER_MAX))
  }

  async #answer(asked: readonly Asked<Q, A>[]): Promise<void> {
    try {
      const answers = await this.#answerAll(asked.map(({ question }) => question))
      asked.forEach(({ resolve }, i) => {
        resolve(answers[i] as A) // one for each: the contract of `AnswerAll`
      })
    } catch (error) {
      // One row that cannot be read must not fail the requests that came along with it.
      if (asked.length > 1 && isAboutOneQuestion(error)) for (const one of asked) void this.#answer([one])
      else for (const { reject } of asked) reject(error)
    }
  }
}

/** Whether another question may well have an answer: not when the server is gone, busy or out of something. */
function isAboutOneQuestion(error: unknown): boolean {
  return error instanceof pg.DatabaseError && classifyDatabaseError(error).kind === 'other'
}
