import { type TSchema, Type } from '@sinclair/typebox'
import type { FastifyInstance } from 'fastify'
import type { Caller } from '../auth/caller.js'
import type { Database } from '../db/database.js'
import type { ResourceKind } from '../db/tables.js'
import type { OperationOptions } from '../updates/resource.js'
import { contentTag } from '../updates/tag.js'
import { queryInteger, queryText } from '../validation/parameters.js'
import { INT4_MAX, reference } from '../validation/vocabulary.js'
import { answerTagged } from './answer.js'
import { pageHeaders, readResponses } from './openapi.js'
import { IfNoneMatch } from './parameters.js'
import type { SchemaTypes } from './validation.js'
import { addWarnings } from './warnings.js'

/** The most records of a page; `PAGE_RECORDS` is the default. */
export const PAGE_RECORDS_MAX = 100
const PAGE_RECORDS = 50

/** The most characters of a name that is looked for. */
export const NAME_LENGTH_MAX = 255

/** The query of a list: a name filter and the page. */
const PageQuery = Type.Object({
  name: queryText(NAME_LENGTH_MAX, 'Only those with exactly this name.'),
  limit: queryInteger(1, PAGE_RECORDS_MAX, `Records of the page; ${PAGE_RECORDS} unless it is said.`),
  after: queryInteger(0, INT4_MAX, 'Only those with a larger id: where the page before ended.'),
})

export interface AskedPage {
  name?: string
  limit?: number
  after?: number
}

/** A record of a list: its id, and its JSON text; null if it did not fit on the page. */
export interface PageRow {
  id: number
  record: string | null
}

/** A list of resources of one kind. */
interface List {
  resource: ResourceKind
  /** The plural noun in messages. */
  title: 'agents' | 'tools'
  record: TSchema
  /** Reads at most `rows` visible rows with larger ids than `after`, sorted by id. */
  read(database: Database, caller: Caller, asked: AskedPage, after: number, rows: number): Promise<PageRow[]>
}

/** `GET /persona` or `GET /tool`: the resources that the caller sees, as small records in pages. */
export function registerList(app: FastifyInstance, { database, bounds }: OperationOptions, list: List): void {
  const { resource, title, record, read } = list
  app.withTypeProvider<SchemaTypes>().get(
    `/${resource}`,
    {
      exposeHeadRoute: true,
      config: { policy: { permission: 'basic', resource } },
      schema: {
        operationId: `list_${resource}s`,
        summary: resource === 'persona' ? 'List Personas' : 'List Tools',
        description:
          `Lists the ${title} that the caller sees, in the order of their ids. \`Link\` with \`rel="next"\` is the next page; without ` +
          'it this is the last. A page of long descriptions has fewer records than asked for. The `etag` of a record is what an update takes as `If-Match`.',
        querystring: PageQuery,
        headers: Type.Object({ 'if-none-match': IfNoneMatch }),
        response: readResponses(
          { type: 'array', items: reference(record), description: `The ${title} of this page.` },
          pageHeaders,
          'The page is still what the caller has.',
          [400, 401, 403, 429, 500, 503],
        ),
      },
    },
    async (request, reply) => {
      const { query, caller, headers } = request
      const { limit = PAGE_RECORDS, after = 0 } = query
      const rows = await bounds.expensive(String(caller.token.id), () =>
        read(database, caller, query, after, limit + 1),
      )
      const shown = rows.slice(0, limit).filter(({ record }) => record !== null)
      const last = shown.at(-1)
      const link = rows.length > shown.length && last !== undefined ? nextLink(query, last.id) : ''
      if (link !== '') reply.header('link', link)
      if (link !== '' && query.limit === undefined)
        addWarnings(reply, [`there are more ${title}: Link names the next page`])
      const text = `[${shown.map(({ record }) => record).join()}]`
      const tag = contentTag(link, text) // the tag changes when a next page appears
      return answerTagged(reply, tag, text, headers['if-none-match'])
    },
  )
}

/** The link is relative to this page, so that it works behind a proxy's path prefix (RFC 8288, section 3.1). */
function nextLink({ name, limit }: AskedPage, after: number): string {
  const query = new URLSearchParams({
    ...(name !== undefined && { name }),
    ...(limit !== undefined && { limit: String(limit) }),
    after: String(after),
  })
  return `<?${query}>; rel="next"`
}
