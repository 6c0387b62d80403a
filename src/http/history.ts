import { Type } from '@sinclair/typebox'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { RoutePolicy } from '../auth/hook.js'
import type { ResourceKind } from '../db/tables.js'
import { ResourceNotFound } from '../errors.js'
import { type AskedHistory, entryOf, type HistoryPage, type ShownChange } from '../updates/history.js'
import { contentTag } from '../updates/tag.js'
import { pathId, queryInteger } from '../validation/parameters.js'
import { INT4_MAX, list, nullable, reference, text, uuid } from '../validation/vocabulary.js'
import { answerTagged } from './answer.js'
import { pageHeaders, readResponses } from './openapi.js'
import { IfNoneMatch } from './parameters.js'
import type { SchemaTypes } from './validation.js'
import { addWarnings } from './warnings.js'

const ENTRIES = 20
const ENTRIES_MAX = 100
/** A page ends early after this many bytes. */
const ANSWER_BYTES_MAX = 2 ** 20

const ShortenedValue = Type.Object({
  digest: text({ description: 'SHA-256 in hex.' }),
  bytes: nullable(Type.Integer()),
  href: text({ description: 'Leads to the version that has the value, relative to this address.' }),
})

export const HistoryEntry = Type.Object(
  {
    version: Type.Integer(),
    at: text({ format: 'date-time' }),
    action: Type.String({
      enum: ['created', 'updated', 'deleted', 'restored', 'applied'],
      description: '`applied`: by the operator, from a document.',
    }),
    actor: Type.Object({
      id: nullable(uuid()),
      email: Type.Optional(text({ description: 'An address below `erased.invalid` once the person was erased.' })),
      command: Type.Optional(text({ description: "The operator's command: then `id` is null." })),
    }),
    request_id: text(),
    fields: list(text()),
    changes: Type.Unsafe<ShownChange[] | null>({
      type: ['array', 'null'],
      description: 'Null where the content is no longer kept.',
      items: Type.Object({
        field: text(),
        from: Type.Optional(
          Type.Unknown({
            description:
              'As a snapshot shows it, with names beside ids (`null` for a file that the caller may not see). Absent where it is shortened.',
          }),
        ),
        to: Type.Optional(Type.Unknown({ description: 'Likewise.' })),
        shortened: Type.Optional(
          Type.Object(
            { from: Type.Optional(ShortenedValue), to: Type.Optional(ShortenedValue) },
            { description: 'In place of a `from` or `to` above 4 KiB.' },
          ),
        ),
        operations: Type.Optional(
          list(Type.Object({ kind: text(), operation: text(), argument: Type.Optional(text()), msg: text() }), {
            description: 'Of a definition: what it changes for a model, the first 100.',
          }),
        ),
        more: Type.Optional(Type.Integer({ description: 'How many more changes there are.' })),
      }),
    }),
  },
  { $id: 'HistoryEntry' },
)

/** The history of one kind of resource. */
interface HistoryRoute {
  resource: ResourceKind
  lookup: NonNullable<RoutePolicy['lookup']>
  /** Reads a page, and the changes of each row. `prefetched` is the result of the lookup. Throws `Forbidden`, `ResourceNotFound`. */
  read(
    request: FastifyRequest,
    id: number,
    prefetched: object,
    asked: AskedHistory,
  ): Promise<{ page: HistoryPage; changes: ShownChange[][]; notes?: string[] }>
}

/** `GET /persona/{persona_id}/history` or `GET /tool/{tool_id}/history`. */
export function registerHistory(app: FastifyInstance, { resource, lookup, read }: HistoryRoute): void {
  const isAgent = resource === 'persona'
  app.withTypeProvider<SchemaTypes>().get(
    `/${resource}/:${lookup.parameter}/history`,
    {
      exposeHeadRoute: true,
      config: { policy: { permission: 'basic', resource, lookup } },
      schema: {
        operationId: `read_${resource}_history`,
        summary: isAgent ? 'Read Persona History' : 'Read Tool History',
        description:
          `Lists the changes of ${isAgent ? 'an agent' : 'a tool'}, newest first, to callers who may ${isAgent ? 'edit' : 'update'} it` +
          `${isAgent ? '; of a deleted agent to its owner and administrators' : ''}. \`Link\` with \`rel="next"\` is the next page; ` +
          'without it this is the last. Secrets are masks, and names are those of now. A `Warning` says from which version on contents are kept.',
        params: Type.Object({ [lookup.parameter]: pathId() }),
        querystring: Type.Object({
          limit: queryInteger(1, ENTRIES_MAX, `Entries of the page; ${ENTRIES} unless it is said.`),
          before: queryInteger(1, INT4_MAX, 'Only older versions than this: where the page before ended.'),
        }),
        headers: Type.Object({ 'if-none-match': IfNoneMatch }),
        response: readResponses(
          { type: 'array', items: reference(HistoryEntry), description: 'The changes of this page.' },
          pageHeaders,
          'The page is still what the caller has.',
          [400, 401, 403, 404, 429, 500, 503],
        ),
      },
    },
    async (request, reply) => {
      const { params, query, prefetched, headers } = request
      const id = params[lookup.parameter]
      if (id === undefined || prefetched === null) throw new ResourceNotFound(resource)
      const { limit = ENTRIES, before } = query
      const { page, changes, notes = [] } = await read(request, id, prefetched, { limit, before })
      const texts: string[] = []
      for (
        let bytes = 0;
        texts.length < page.rows.length && bytes <= ANSWER_BYTES_MAX;
        bytes += texts.at(-1)?.length ?? 0
      ) {
        const row = page.rows[texts.length]
        if (row !== undefined) texts.push(JSON.stringify(entryOf(row, page, changes[texts.length])))
      }
      const last = page.rows[texts.length - 1]
      const hasMore = page.hasMore || texts.length < page.rows.length
      const link = hasMore && last !== undefined ? nextLink(query.limit, last.version) : ''
      if (link !== '') reply.header('link', link)
      if (link !== '' && query.limit === undefined) notes.push('there are more changes: Link names the next page')
      const isOnPage = page.keptFrom > 1 && (last === undefined || last.version <= page.keptFrom || !hasMore)
      if (isOnPage) notes.push(`contents are kept from version ${page.keptFrom} on`)
      addWarnings(reply, notes)
      const answer = `[${texts.join(',')}]`
      return answerTagged(reply, contentTag(link, answer), answer, headers['if-none-match'])
    },
  )
}

function nextLink(limit: number | undefined, before: number): string {
  const query = new URLSearchParams({ ...(limit !== undefined && { limit: String(limit) }), before: String(before) })
  return `<?${query}>; rel="next"`
}
