import { Type } from '@sinclair/typebox'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { visibleAgents } from '../auth/caller.js'
import { viewerParameters } from '../auth/viewer.js'
import { withRetries } from '../db/connection/retry.js'
import type { Database } from '../db/database.js'
import { CursorGone } from '../errors.js'
import { JSON_TYPE } from '../http/answer.js'
import { Author } from '../http/lists.js'
import { responses } from '../http/openapi.js'
import type { SchemaTypes } from '../http/validation.js'
import { ACTIONS, actorOf } from '../updates/history.js'
import { type Parsed, parameter, queryChoice, queryInteger } from '../validation/parameters.js'
import { enumeration, list, reference, text } from '../validation/vocabulary.js'
import { type FeedRow, ROWS_MAX, readFeed, readHead } from './feed.js'
import { type Page, Waiting } from './waiting.js'

const KINDS = ['persona', 'tool'] as const
const ROWS = 100
const WAIT_MAX_S = 60

export const ChangePage = Type.Object(
  {
    changes: list(
      Type.Object({
        kind: enumeration(KINDS),
        id: Type.Integer(),
        version: Type.Integer(),
        action: enumeration([...ACTIONS, 'gone'], {
          description: '`gone`: the change ended what the caller sees of the record.',
        }),
        at: text({ format: 'date-time' }),
        fields: Type.Optional(
          list(text(), { description: 'Like `actor`, only where the caller may edit the record.' }),
        ),
        actor: Type.Optional(Author),
      }),
    ),
    next: text({ description: 'What the next page takes as `after`.' }),
  },
  { $id: 'ChangePage' },
)

const CURSOR = /^[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}\.\d{1,18}\.\d{1,18}$/

const After = Type.Optional(
  parameter(
    {
      ...{ type: 'string', pattern: CURSOR.source },
      description: 'Where the page before ended: its `next`. Without it the answer is empty, and `next` is now.',
    },
    (value, loc): Parsed<string> => {
      const msg = 'Input should be the `next` of an answer'
      return CURSOR.test(value) ? { value } : { faults: [{ loc, msg, type: 'string_pattern_mismatch' }] }
    },
  ),
)

interface Asked {
  limit?: number
  kind?: (typeof KINDS)[number]
}

/** `GET /changes`: the changes after a cursor that the caller may know of. */
export function registerReadChanges(
  app: FastifyInstance,
  { database, service }: { database: Database; service: { readonly isDraining: boolean } },
): void {
  const waiting = new Waiting(database, service)
  app.withTypeProvider<SchemaTypes>().get(
    '/changes',
    {
      config: { policy: { permission: 'basic' } },
      schema: {
        operationId: 'list_changes',
        summary: 'List Changes',
        description:
          'Lists the changes of the agents and tools that the caller sees, in the order of their commits: none is missed, and none comes twice. ' +
          `At most ${ROWS_MAX} changes of everybody are looked at for a page, so an empty page with another \`next\` is not the last. ` +
          'Changes of memberships and bindings are not listed: the next read is 404.',
        querystring: Type.Object({
          after: After,
          limit: queryInteger(1, ROWS_MAX, `Changes of the page; ${ROWS} by default.`),
          kind: queryChoice(KINDS, 'Only changes of this kind.'),
          wait: queryInteger(
            0,
            WAIT_MAX_S,
            'The most seconds to wait for a change where there is none yet. One request of a token may wait at a time.',
          ),
        }),
        response: responses({ 200: { description: 'The changes.', body: reference(ChangePage), headers: [] } }, [410]),
      },
    },
    async (request, reply) => {
      const { after, wait: waitS = 0, ...asked } = request.query
      const read = (cursor: string) => readPage(request, database, cursor, asked)
      let page = after === undefined ? await firstPage(database) : await read(after)
      if (page.isEnd && page.changes.length === 0 && after !== undefined && waitS > 0) {
        request.leaveGate()
        page = await waiting.wait(request.caller.token.id, { page, waitS, socket: request.raw.socket, read })
      }
      reply.type(JSON_TYPE)
      return JSON.stringify({ changes: page.changes, next: page.next })
    },
  )
}

async function firstPage({ db }: Database): Promise<Page> {
  return { changes: [], next: await withRetries(() => readHead(db)), isEnd: true }
}

/** Reads the page after a cursor. If the caller's rights have changed, it authenticates again. Throws `CursorGone`, `NotAuthenticated`. */
async function readPage(request: FastifyRequest, database: Database, after: string, asked: Asked): Promise<Page> {
  const { caller } = request
  const { limit = ROWS, kind = null } = asked
  const [feed = '', transaction = '', place = ''] = after.split('.')
  const viewer = { ...viewerParameters(caller), personas: visibleAgents(caller.token) }
  const page = await withRetries(() =>
    readFeed.first(database.db, { ...viewer, kind, rows: limit, transaction, place }),
  )
  if (page?.feed !== feed) throw new CursorGone('reset')
  if (page.is_pruned) throw new CursorGone('pruned')
  if (!page.stands) {
    request.caller = (await request.authenticateAgain()).caller
    return await readPage(request, database, after, asked)
  }
  const rows = page.rows ?? []
  const isFull = rows.length === limit
  const last = isFull ? rows.at(-1)?.cursor : page.last
  return { changes: rows.map(changeOf), next: last ?? after, isEnd: page.looked_at < ROWS_MAX }
}

function changeOf(row: FeedRow): (typeof ChangePage.static)['changes'][number] {
  const { kind, id, version, action, at, fields } = row
  const shown = { kind, id, version, action: row.is_seen || action === 'deleted' ? action : ('gone' as const), at }
  return row.may_edit ? { ...shown, fields, actor: actorOf(row) } : shown
}
