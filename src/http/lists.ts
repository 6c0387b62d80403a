import { type TProperties, type TSchema, Type } from '@sinclair/typebox'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { INT4_MAX, type ResourceKind } from '../db/tables.js'
import { ResourceNotFound } from '../errors.js'
import { ACTIONS, historyEntry, historyOf } from '../updates/history.js'
import type { ReadPage } from '../updates/list.js'
import { answerPast } from '../updates/read.js'
import type { Change, OperationOptions, ResourceTypes, VersionedResource } from '../updates/resource.js'
import { contentTag, entityTag, type Precondition, representationTag } from '../updates/tag.js'
import { pathId, queryFlag, queryInteger, queryText } from '../validation/parameters.js'
import { identifier, list, nullable, reference, text, uuid } from '../validation/vocabulary.js'
import { addWarnings, answerTagged } from './answer.js'
import { readResponses } from './openapi.js'
import { IfNoneMatch, PastVersion } from './parameters.js'
import type { SchemaTypes } from './validation.js'

/* Reads of agents and tools: one resource, its history, and lists in pages. */

/** The maximum and default number of records in a page. */
export const PAGE_RECORDS_MAX = 100
export const PAGE_RECORDS = 50
const HISTORY_RECORDS = 20

export const NAME_LENGTH_MAX = 255

/** `GET /persona` or `GET /tool`: short records of the resources that the caller can see, in pages. */
export function registerList(
  app: FastifyInstance,
  { database }: OperationOptions,
  { resource, record, read }: { resource: ResourceKind; record: TSchema; read: ReadPage },
): void {
  const title = resource === 'persona' ? 'agents' : 'tools'
  app.withTypeProvider<SchemaTypes>().get(
    `/${resource}`,
    {
      exposeHeadRoute: true,
      config: { policy: { permission: 'basic', resource } },
      schema: {
        operationId: `list_${resource}s`,
        summary: resource === 'persona' ? 'List Personas' : 'List Tools',
        description:
          `Lists the ${title} that the caller can see, in the order of their ids. \`Link\` with \`rel="next"\` leads to the next page; ` +
          'the last page has no `Link`. Updates accept the `etag` of a record as `If-Match`.',
        querystring: Type.Object({
          name: queryText(NAME_LENGTH_MAX, 'Only records with exactly this name.'),
          limit: queryInteger(1, PAGE_RECORDS_MAX, `Maximum number of records in a page. Default: ${PAGE_RECORDS}.`),
          after: queryInteger(0, INT4_MAX, 'Only records after this id, the last of the previous page.'),
          ...(resource === 'persona' && { deleted: queryFlag('Only deleted agents that the caller can restore.') }),
        }),
        headers: Type.Object({ 'if-none-match': IfNoneMatch }),
        response: readResponses(list(reference(record)), `The ${title} of this page.`, ['link', 'warning']),
      },
    },
    async (request, reply) => {
      const { query, caller } = request
      const { limit = PAGE_RECORDS, after = 0 } = query
      const rows = await read(database.db, caller, { ...query, after, rows: limit + 1 })
      const shown = rows.slice(0, limit)
      const last = rows.length > shown.length ? shown.at(-1) : undefined
      const texts = shown.map(({ record }) => record)
      return answerPage(request, reply, title, { texts, next: last && { after: String(last.id) } })
    },
  )
}

export const Author = Type.Object({
  id: nullable(uuid()),
  email: Type.Optional(text({ description: 'Ends with `@erased.invalid` if the person was erased.' })),
  command: Type.Optional(text({ description: 'The command that the operator ran; present only if `id` is null.' })),
})

export const HistoryEntry = Type.Object(
  {
    version: Type.Integer(),
    at: text({ format: 'date-time' }),
    action: Type.String({ enum: [...ACTIONS], description: '`applied`: changed by the operator with `agentctl`.' }),
    actor: Author,
    proposal: Type.Optional(
      Type.Object({ id: identifier(), author: Author }, { description: 'The proposal that `actor` approved.' }),
    ),
    request_id: text(),
    fields: list(text()),
    changes: Type.Unsafe<Change[] | null>({
      type: ['array', 'null'],
      description: 'Null if the values are no longer kept.',
      items: Type.Object({
        field: text(),
        from: Type.Optional(
          Type.Unknown({
            description:
              'The old value as a read returns it, with names or emails next to ids. A name, email or file that was deleted or is hidden from ' +
              'the caller is `null`. Absent if the value is larger than 4 KiB; read the earlier version instead.',
          }),
        ),
        to: Type.Optional(Type.Unknown({ description: 'The new value. The same form and size limit as for `from`.' })),
      }),
    }),
  },
  { $id: 'HistoryEntry' },
)

interface ReadRoute<T extends ResourceTypes> {
  resource: VersionedResource<T>
  record: TSchema
  summary: string
  description: string
  query?: TProperties
  view?(request: FastifyRequest, state: T['State']): Promise<string | undefined>
}

/** `GET /persona/{persona_id}` or `GET /tool/{tool_id}`: the snapshot that updates return, plus further fields. */
export function registerRead<T extends ResourceTypes>(
  app: FastifyInstance,
  { database, ...limits }: OperationOptions,
  { resource, record, query, view, ...shown }: ReadRoute<T>,
): void {
  const { kind, reads } = resource
  const { lookup } = reads
  const described = `The ${kind === 'persona' ? 'agent' : 'tool'} as it is now, or as it was in \`version\`.`
  app.withTypeProvider<SchemaTypes>().get(
    `/${kind}/:${lookup.parameter}`,
    {
      exposeHeadRoute: true,
      config: { policy: { permission: 'basic', resource: kind, lookup } },
      schema: {
        operationId: `read_${kind}`,
        ...shown,
        params: Type.Object({ [lookup.parameter]: pathId() }),
        querystring: Type.Object({ version: PastVersion, ...query }),
        headers: Type.Object({ 'if-none-match': IfNoneMatch }),
        response: readResponses(reference(record), described, ['warning'], [404, 409, 410]),
      },
    },
    async (request, reply) => {
      const { caller, headers } = request
      const state = request.prefetched as T['State'] | null // set by the route's `lookup`
      if (state === null || !resource.isVisible(state, caller)) throw new ResourceNotFound(kind)
      const viewed = await view?.(request as FastifyRequest, state)
      const { version: asked } = request.query as { version?: number }
      const isPast = viewed === undefined && 'version' in request.query
      if (isPast) resource.requireVersions(state, caller)
      const now = async () => viewed ?? (await resource.render(database.db, state, limits.snapshotBytesMax, true))
      const { snapshot, version, notes } = isPast
        ? await answerPast({ database, resource, request: { caller, ...limits } }, state.id, asked)
        : { snapshot: await now(), version: state.version, notes: [] }
      addWarnings(reply, notes)
      // Some fields of a snapshot can change without a new version, so the tag also contains a digest of the body.
      const tag = representationTag(entityTag(kind, state.id, version), snapshot)
      return answerTagged(reply, tag, snapshot, headers['if-none-match'])
    },
  )
}

/** `GET /persona/{persona_id}/history` or `GET /tool/{tool_id}/history`. */
export function registerHistory<T extends ResourceTypes>(
  app: FastifyInstance,
  { database, ...limits }: OperationOptions,
  resource: VersionedResource<T>,
): void {
  const { kind, reads } = resource
  const { lookup } = reads
  const isAgent = kind === 'persona'
  app.withTypeProvider<SchemaTypes>().get(
    `/${kind}/:${lookup.parameter}/history`,
    {
      exposeHeadRoute: true,
      config: { policy: { permission: 'basic', resource: kind, lookup } },
      schema: {
        operationId: `read_${kind}_history`,
        summary: isAgent ? 'Read Persona History' : 'Read Tool History',
        description:
          'Lists the changes, newest first. Requires the right to update the record. `Link` with `rel="next"` leads to the next page. Secrets ' +
          'are masked, and related records have their current names. If older contents are no longer kept, a `Warning` names the oldest version ' +
          `that can be read.${isAgent ? ' Only the owner and administrators can read the history of a deleted agent.' : ''}`,
        params: Type.Object({ [lookup.parameter]: pathId() }),
        querystring: Type.Object({
          limit: queryInteger(1, PAGE_RECORDS_MAX, `Maximum number of entries in a page. Default: ${HISTORY_RECORDS}.`),
          before: queryInteger(1, INT4_MAX, 'Lists only versions older than this version.'),
        }),
        headers: Type.Object({ 'if-none-match': IfNoneMatch }),
        response: readResponses(list(reference(HistoryEntry)), 'The changes of this page.', ['link', 'warning'], [404]),
      },
    },
    async (request, reply) => {
      const { caller, query } = request
      const state = request.prefetched as T['State'] | null // set by the route's `lookup`
      if (state === null) throw new ResourceNotFound(kind)
      resource.requireVersions(state, caller)
      const job = { database, resource, request: { caller, ...limits } }
      const { limit = HISTORY_RECORDS, before } = query
      const { rows, hasMore, keptFrom, changes } = await historyOf(job, state.id, { limit, before })
      const texts = rows.map((row, index) => JSON.stringify(historyEntry(row, changes[index])))
      const last = rows.at(-1)
      const isOnPage = keptFrom > 1 && (last === undefined || last.version <= keptFrom || !hasMore)
      const notes = isOnPage ? [`the contents of versions before ${keptFrom} are no longer stored`] : []
      const next = hasMore ? last && { before: String(last.version) } : undefined
      return answerPage(request, reply, 'changes', { texts, next, notes })
    },
  )
}

/** Answers with a page. `next` contains the query parameters of the next page. `Link` is relative, in case a proxy adds a path prefix. */
export function answerPage(
  { query, headers }: { query: Readonly<Record<string, unknown>>; headers: { 'if-none-match'?: Precondition } },
  reply: FastifyReply,
  title: string,
  page: { texts: readonly string[]; next: Record<string, string> | undefined; notes?: readonly string[] },
): string | FastifyReply {
  const { texts, next, notes = [] } = page
  const { after: _, before: __, ...asked } = query
  const nextQuery = new URLSearchParams({ ...asked, ...next } as Record<string, string>) // numbers and booleans become strings
  const link = next === undefined ? '' : `<?${nextQuery}>; rel="next"`
  if (link !== '') reply.header('link', link)
  const isTold = link === '' || asked.limit !== undefined
  addWarnings(reply, isTold ? notes : [`there are more ${title}; Link has the address of the next page`, ...notes])
  const text = `[${texts.join()}]`
  return answerTagged(reply, contentTag(link, text), text, headers['if-none-match']) // the tag also changes when a next page is added
}
