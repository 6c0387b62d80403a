import { setTimeout as sleep } from 'node:timers/promises'
import { Type } from '@sinclair/typebox'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { Kysely } from 'kysely'
import type { Caller } from '../auth/caller.js'
import { viewerParameters } from '../auth/viewer.js'
import { withRetries } from '../db/connection/retry.js'
import type { Database } from '../db/database.js'
import type { Tables } from '../db/tables.js'
import { RateLimited, Refused, TRY_AGAIN, Unavailable } from '../errors.js'
import { JSON_TYPE } from '../http/answer.js'
import type { Gate } from '../http/gate.js'
import { HistoryEntry } from '../http/lists.js'
import { responses } from '../http/openapi.js'
import type { SchemaTypes } from '../http/validation.js'
import { ACTIONS, authorOf } from '../updates/history.js'
import { patterned, queryChoice, queryInteger } from '../validation/parameters.js'
import { enumeration, list, reference, text } from '../validation/vocabulary.js'
import { type ChangeKind, type FeedRow, KINDS, ROWS_MAX, readEnds, readFeed } from './feed.js'

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
        version: { ...version, description: 'For a proposal: 1 when it is created, 2 when it is no longer open.' },
        action: enumeration([...ACTIONS, 'gone', ...PROPOSAL_ACTIONS], {
          description: '`gone`: because of this change, the caller can no longer see the record.',
        }),
        at,
        fields: Type.Optional({
          ...fields,
          description: '`fields` and `actor` are present only if the caller can edit the record.',
        }),
        actor: Type.Optional(actor),
      }),
    ),
    next: text({ description: 'The value of `after` for the next page.' }),
  },
  { $id: 'ChangePage' },
)

const cursor = patterned(
  /^(first|-\d{1,6}|[\da-f-]{36}(\.\d{1,18}){2})$/,
  'The `next` of the previous page. Without this parameter, `changes` is empty, and `next` is the current end of the feed. `first` starts at the oldest stored change. `-500` starts at the 500th newest change; changes that the caller cannot see also count.',
  'Input should be `first`, a negative number such as `-500`, or the `next` of a page',
  value => value,
)

/** Registers `GET /changes`, which returns the visible changes after a cursor. */
export function registerReadChanges(app: FastifyInstance, { db }: Database, service: Service, gate: Gate): void {
  const wait = waitingRoom(db, service)
  app.withTypeProvider<SchemaTypes>().get(
    '/changes',
    {
      config: { policy: { permission: 'basic' } },
      schema: {
        operationId: 'list_changes',
        summary: 'List Changes',
        description:
          'Lists the changes of agents, tools and proposals that the caller can see, in a fixed order. A client that sends each `next` as `after` gets each change once. ' +
          `At most ${ROWS_MAX} changes are examined for a page, including those that the caller cannot see, so a page can be empty although more changes follow. Read on until \`next\` equals \`after\`. ` +
          "Changes to the caller's own rights, such as group memberships, are not listed. If such a change hides a record from the caller, reading the record answers 404.",
        querystring: Type.Object({
          after: cursor,
          limit: queryInteger(1, ROWS_MAX, `Maximum number of changes in a page. Default: ${ROWS}.`),
          kind: queryChoice(KINDS, 'Only changes of this kind.'),
          wait: queryInteger(
            0,
            WAIT_MAX_S,
            'Seconds to wait for a change. Only one request of a token can wait at a time.',
          ),
        }),
        response: responses({ 200: { description: 'The changes.', body: reference(ChangePage), headers: [] } }, [410]),
      },
    },
    async (request, reply) => {
      const { after: given, wait: waitS = 0, ...asked } = request.query
      reply.type(JSON_TYPE)
      const ends = given?.includes('.') ? undefined : await withRetries(() => readEnds(db, -Number(given) || 0))
      if (given === undefined) return JSON.stringify({ changes: [], next: ends?.now })
      const after = ends?.first ?? given
      if (waitS === 0) return JSON.stringify(await readPage(db, request.caller, after, asked))
      gate.leave(request)
      const page = await wait(request, after, waitS * 1_000, async place => {
        const { caller } = await withRetries(() => request.readNow(db))
        return await readPage(db, caller, place, asked)
      })
      return JSON.stringify(page)
    },
  )
}

type Asked = { limit?: number; kind?: ChangeKind }
type Page = { changes: object[]; next: string }

async function readPage(db: Kysely<Tables>, caller: Caller, after: string, asked: Asked): Promise<Page> {
  const { limit: rows = ROWS, kind = null } = asked
  const [feed = '', transaction = '', place = ''] = after.split('.')
  const question = { ...viewerParameters(caller), kind, rows, feed, transaction, place }
  const page = await withRetries(() => readFeed.first(db, question))
  if (page === undefined) throw new Refused('CURSOR_GONE', CURSOR_GONE)
  const changes = page.rows ?? []
  const last = changes.length < rows ? page.last : changes.at(-1)?.cursor
  return { changes: changes.map(changeOf), next: last ?? after }
}

function changeOf(row: FeedRow): object {
  const { kind, id, version, action, at, fields, is_seen, may_edit } = row
  const isGone = kind !== 'proposal' && action !== 'deleted' && !is_seen
  const shown = { kind, id, version, action: isGone ? 'gone' : action, at }
  return may_edit ? { ...shown, fields, actor: authorOf(row) } : shown
}

const CURSOR_GONE =
  'The feed of changes cannot continue from this cursor. Get a new cursor from a request without `after`, then read all records again.'

/** The maximum number of waiting requests. Each token can have only one. */
const WAITING_MAX = 200
const POLL_MS = 1_000

type Service = { readonly isDraining: boolean }

/**
 * Returns a function that waits until there are changes after a cursor, the time is over, the client disconnects or the service drains. Waiting
 * requests hold no database connection. One query a second finds the newest change for all of them. After a new change, the waiting requests read one
 * at a time, so that connections remain for other requests. Throws `RateLimited` and `Unavailable`.
 */
function waitingRoom(db: Kysely<Tables>, service: Service) {
  const tokens = new Set<number>()
  let polled: ReturnType<typeof poll> | undefined
  let turn: Promise<unknown> = Promise.resolve()
  async function poll() {
    await sleep(POLL_MS)
    polled = undefined
    return await withRetries(() => readEnds(db))
  }
  // When its time is over, a request reads at once, because an empty page must mean that nothing changed.
  function inTurn(read: () => Promise<Page>, over: Promise<void>): Promise<Page> {
    const page = Promise.race([turn, over]).then(read)
    turn = Promise.all([turn, page.catch(() => undefined)])
    return page
  }
  return async (request: FastifyRequest, after: string, waitMs: number, read: (after: string) => Promise<Page>) => {
    const { id } = request.caller.token
    if (tokens.has(id)) throw new RateLimited('token-waiting', 1)
    if (tokens.size >= WAITING_MAX) {
      const message = `At most ${WAITING_MAX} requests can wait for changes at once. ${TRY_AGAIN}`
      throw new Unavailable('overloaded', message, 'not_applied')
    }
    tokens.add(id)
    const deadline = performance.now() + waitMs
    const over = sleep<void>(waitMs, undefined, { ref: false })
    const mustEnd = () => performance.now() >= deadline || request.socket.destroyed || service.isDraining
    try {
      let page = await inTurn(() => read(after), over)
      while (page.changes.length === 0 && !mustEnd()) {
        const { next } = page
        polled ??= poll()
        const ends = await Promise.race([polled, over])
        if (ends?.now !== next) page = await inTurn(() => read(next), over)
      }
      return page
    } finally {
      tokens.delete(id)
    }
  }
}
