import type { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { Type } from '@sinclair/typebox'
import type { FastifyInstance } from 'fastify'
import type { Caller } from '../auth/caller.js'
import { viewerParameters } from '../auth/viewer.js'
import { withRetries } from '../db/connection/retry.js'
import type { Database } from '../db/database.js'
import { RateLimited, Refused, TRY_AGAIN, Unavailable } from '../errors.js'
import { JSON_TYPE } from '../http/answer.js'
import type { Gate } from '../http/gate.js'
import { HistoryEntry } from '../http/lists.js'
import { responses } from '../http/openapi.js'
import type { SchemaTypes } from '../http/validation.js'
import { ACTIONS, authorOf } from '../updates/history.js'
import { type Parsed, parameter, queryChoice, queryInteger } from '../validation/parameters.js'
import { enumeration, list, reference, text } from '../validation/vocabulary.js'
import { type FeedRow, ROWS_MAX, readEnds, readFeed } from './feed.js'

const KINDS = ['persona', 'tool', 'proposal'] as const
const PROPOSAL_ACTIONS = ['proposed', 'approved', 'rejected', 'withdrawn', 'closed'] as const
const ROWS = 100
const WAIT_MAX_S = 60

const { version, at, fields, actor } = HistoryEntry.properties

export const ChangePage = Type.Object(
  {
    changes: list(
      Type.Object({
        kind: enumeration(KINDS),
        id: Type.Integer(),
        version,
        action: enumeration([...ACTIONS, 'gone', ...PROPOSAL_ACTIONS], {
          description: '`gone`: since this change, the caller can no longer see the record.',
        }),
        at,
        fields: Type.Optional({ ...fields, description: 'Like `actor`: only if the caller may edit the record.' }),
        actor: Type.Optional(actor),
      }),
    ),
    next: text({ description: 'The value of `after` for the next page.' }),
  },
  { $id: 'ChangePage' },
)

const CURSOR = /^(first|-\d{1,6}|[\da-f-]{36}(\.\d{1,18}){2})$/
const NO_CURSOR = { msg: 'Input should be `first`, `-500` or the `next` of a page', type: 'string_pattern_mismatch' }
const cursor = parameter(
  {
    type: 'string',
    pattern: CURSOR.source,
    description:
      'The `next` of the previous page. If absent, the answer is empty and `next` is the current end. `first` starts with the oldest change that is kept, `-500` with the newest 500, including those that the caller cannot see.',
  },
  (value, loc): Parsed<string> => (CURSOR.test(value) ? { value } : { faults: [{ loc, ...NO_CURSOR }] }),
)

type Service = { readonly isDraining: boolean }

interface Asked {
  limit?: number
  kind?: (typeof KINDS)[number]
}

/** `GET /changes`: the changes after a cursor that the caller can see. */
export function registerReadChanges(app: FastifyInstance, database: Database, service: Service, gate: Gate): void {
  const { db } = database
  const waiting = new Waiting(database, service)
  app.withTypeProvider<SchemaTypes>().get(
    '/changes',
    {
      config: { policy: { permission: 'basic' } },
      schema: {
        operationId: 'list_changes',
        summary: 'List Changes',
        description:
          'Lists the changes of the agents and tools that the caller can see, in the order of their commits. None is missed or repeated. ' +
          `At most ${ROWS_MAX} changes are examined for a page, including those that the caller cannot see: if \`next\` differs from \`after\`, an empty page is not the last. ` +
          'Changes to group memberships and token bindings are not listed. If such a change hides a record from the caller, reading the record answers 404.',
        querystring: Type.Object({
          after: Type.Optional(cursor),
          limit: queryInteger(1, ROWS_MAX, `Maximum number of changes in a page. Default: ${ROWS}.`),
          kind: queryChoice(KINDS, 'Only changes of this kind.'),
          wait: queryInteger(
            0,
            WAIT_MAX_S,
            'How many seconds to wait if there is no change yet. Only one request of a token can wait at a time.',
          ),
        }),
        response: responses({ 200: { description: 'The changes.', body: reference(ChangePage), headers: [] } }, [410]),
      },
    },
    async (request, reply) => {
      const { after: given, wait: waitS = 0, ...asked } = request.query
      reply.type(JSON_TYPE)
      const isCursor = given?.includes('.')
      const ends = isCursor ? undefined : await withRetries(() => readEnds(db, -Number(given) || 0))
      if (given === undefined) return JSON.stringify({ changes: [], next: ends?.now })
      const after = ends?.first ?? given
      if (waitS > 0) gate.leave(request)
      const { changes, next } = await (waitS > 0
        ? waiting.wait(request.caller.token.id, after, waitS * 1_000, request.raw.socket, async place => {
            const { caller } = await withRetries(() => request.readNow(db))
            return await readPage(database, caller, place, asked)
          })
        : readPage(database, request.caller, after, asked))
      return JSON.stringify({ changes, next })
    },
  )
}

async function readPage({ db }: Database, caller: Caller, after: string, asked: Asked): Promise<Page> {
  const { limit: rows = ROWS, kind = null } = asked
  const [feed, transaction = '', place = ''] = after.split('.')
  const question = { ...viewerParameters(caller), kind, rows, transaction, place }
  const page = await withRetries(() => readFeed.first(db, question))
  if (page?.feed !== feed || page?.is_kept !== true) {
    const message =
      'The feed of changes cannot continue from this cursor. Request a new one without `after`, then read everything again.'
    throw new Refused('CURSOR_GONE', message)
  }
  const changes = page.rows ?? []
  return { changes: changes.map(changeOf), next: page.last ?? changes.at(-1)?.cursor ?? after }
}

function changeOf(row: FeedRow): object {
  const { kind, id, version, action, at, fields, is_seen, may_edit } = row
  const isGone = kind !== 'proposal' && action !== 'deleted' && !is_seen
  const shown = { kind, id, version, action: isGone ? 'gone' : action, at }
  return may_edit ? { ...shown, fields, actor: authorOf(row) } : shown
}

/** The maximum number of waiting requests. Each token can have only one. */
const WAITING_MAX = 200
const POLL_MS = 1_000

interface Page {
  changes: object[]
  next: string
}

/**
 * Requests that wait for changes. They hold no database connection. One query a second finds the newest change for all of them. When there is a new
 * change, they read one after another, so that other requests are not delayed.
 */
class Waiting {
  readonly #tokens = new Set<number>()
  #head: Promise<string> | undefined
  #turn: Promise<unknown> = Promise.resolve()

  constructor(
    readonly database: Database,
    readonly service: Service,
  ) {}

  /** Waits until there are changes after a cursor, the time is over, the client disconnects or the service drains. Throws `RateLimited` and `Unavailable`. */
  async wait(token: number, after: string, waitMs: number, socket: Socket, read: (after: string) => Promise<Page>) {
    if (this.#tokens.has(token)) throw new RateLimited('token-waiting', 1)
    if (this.#tokens.size >= WAITING_MAX) {
      const message = `At most ${WAITING_MAX} requests can wait for changes at once. ${TRY_AGAIN}`
      throw new Unavailable('overloaded', message, 'not_applied')
    }
    this.#tokens.add(token)
    const ended = new AbortController()
    const end = () => ended.abort()
    socket.once('close', end)
    const deadline = performance.now() + waitMs
    const over = sleep(waitMs, undefined, { signal: ended.signal }).catch(() => undefined)
    const isGone = () => socket.destroyed || this.service.isDraining
    try {
      let page: Page = { changes: [], next: after }
      for (let head: unknown = ''; ; head = await Promise.race([this.#nextHead(), over])) {
        const last = page
        if (head !== last.next) page = await this.#inTurn(async () => (isGone() ? last : await read(last.next)), over)
        if (page.changes.length > 0 || performance.now() >= deadline || isGone()) return page
      }
    } finally {
      end()
      socket.off('close', end)
      this.#tokens.delete(token)
    }
  }

  /** Reads the end of the feed after one second. All waiting requests share the query. */
  #nextHead(): Promise<string> {
    this.#head ??= sleep(POLL_MS)
      .then(() => withRetries(() => readEnds(this.database.db)))
      .then(({ now }) => now)
      .finally(() => {
        this.#head = undefined
      })
    return this.#head
  }

  /** Reads a page when all earlier reads have ended. A request whose time is over reads immediately, because an empty answer must mean that nothing changed. */
  #inTurn(read: () => Promise<Page>, over: Promise<unknown>): Promise<Page> {
    const page = Promise.race([this.#turn, over]).then(read)
    this.#turn = Promise.all([this.#turn, page.catch(() => undefined)])
    return page
  }
}
