import { STATUS_CODES } from 'node:http'
import { type TObject, type TProperties, type TSchema, Type } from '@sinclair/typebox'
import type { FastifyContextConfig, FastifySchema } from 'fastify'
import { ERROR_CODES, STALE_REASONS, UNAVAILABLE_REASONS } from '../errors.js'
import { HTTPValidationError } from '../validation/faults.js'
import { nullable, reference, text, withReferences } from '../validation/vocabulary.js'

/* The parts of the OpenAPI document that all operations share: headers and error answers. */

/** A header for the document's plugin, which turns the schema's description into the header's. */
const header = (description: string) => ({ description, type: 'string' })

const everyAnswer = { 'x-request-id': header('The id of this request, in every answer and every log line of it.') }

/** The fields of draft-ietf-httpapi-ratelimit-headers; absent if a limit is disabled. */
const rateLimitHeaders = {
  'ratelimit-policy': header(
    'The quota that this request counted against: `"token";q=600;w=60` is 600 requests in 60 s. Of a 429 the limit that refused it.',
  ),
  ratelimit: header('What is left of the quota, and the seconds until it is whole again: `"token";r=599;t=60`.'),
}

const retryAfter = {
  'retry-after': { description: 'Seconds to wait before another attempt.', type: 'integer', minimum: 1 },
}

const challenge = { 'www-authenticate': header('The bearer challenge, with what is wrong.') }

/** An error answer: its schema's name, by which generated clients tell refusals apart, and what it has beyond code, sentence and request id. */
interface ErrorAnswer {
  name: string
  /** By default the name of the status. */
  meaning?: string
  members?: TProperties
  headers?: object
}

/** The error answers by status; 422 has its own. */
const ERRORS = {
  400: { name: 'BadRequestError' },
  401: { name: 'UnauthorizedError', headers: { ...challenge, ...rateLimitHeaders } },
  403: { name: 'ForbiddenError', headers: challenge },
  404: { name: 'NotFoundError' },
  408: { name: 'RequestTimeoutError' },
  409: {
    name: 'ConflictError',
    meaning:
      'The answer would be too large for what is attached to the agent, agents use the tool that should be deleted, or a request with the ' +
      'same Idempotency-Key is under way (with Retry-After); nothing was changed.',
    members: {
      agents: Type.Optional(
        Type.Array(Type.Object({ id: Type.Integer(), name: Type.String() }), {
          description: 'Of `TOOL_IN_USE`: the agents that use the tool and that the caller may see, at most 100.',
        }),
      ),
      others: Type.Optional(Type.Integer({ description: 'Likewise: how many more use it.' })),
    },
    headers: retryAfter,
  },
  410: {
    name: 'GoneError',
    meaning: 'There was such a version, and its content is no longer kept; `reason` says why.',
    members: {
      reason: Type.String({
        description: '`pruned` by retention, or `deleted`: it is gone, or another has its id now.',
        enum: ['pruned', 'deleted'],
      }),
    },
  },
  412: {
    name: 'PreconditionFailedError',
    meaning: 'The stored state is not the one that If-Match names, or it is one that If-None-Match excludes.',
    members: {
      reason: Type.String({
        description:
          '`changed` since a tag that was sent; `unknown_tag`: the agent or tool never had one of them; `matched`: ' +
          '`If-None-Match` names the stored state; `nothing_stored`: a creation has no state for `If-Match`.',
        enum: [...STALE_REASONS],
      }),
      current_etag: nullable(text({ description: 'The tag of the stored state; null before a creation.' })),
      changed: Type.Unsafe<unknown>({
        type: ['array', 'null'],
        description: 'What changed since the tag that was sent; null if that is not known.',
        items: Type.Object({ field: Type.String(), by: Type.String(), at: Type.String({ format: 'date-time' }) }),
      }),
    },
  },
  413: { name: 'ContentTooLargeError' },
  415: { name: 'UnsupportedMediaTypeError', meaning: 'A body without a Content-Type is read as JSON.' },
  428: { name: 'PreconditionRequiredError', meaning: 'This server, or this token, demands If-Match.' },
  429: {
    name: 'TooManyRequestsError',
    meaning:
      'A limit is used up, and RateLimit-Policy names it: `token` (requests of this token, 600 a minute unless set otherwise), ' +
      '`token-requests` (its requests at a time). Retry-After says when to come back.',
    headers: { ...retryAfter, ...rateLimitHeaders },
  },
  431: { name: 'HeadersTooLargeError' },
  500: { name: 'InternalServerError' },
  503: {
    name: 'ServiceUnavailableError',
    meaning: 'Not possible now; `reason` says why, Retry-After when to try again.',
    members: {
      reason: Type.String({ description: 'Why it is not possible now.', enum: [...UNAVAILABLE_REASONS] }),
      outcome: Type.Optional(
        Type.String({ description: 'What became of the change.', enum: ['not_applied', 'unknown', 'applied'] }),
      ),
    },
    headers: retryAfter,
  },
} satisfies Record<number, ErrorAnswer>

type ErrorStatus = keyof typeof ERRORS

function errorSchema(status: ErrorStatus): TObject {
  const { name, members }: ErrorAnswer = ERRORS[status]
  const codes = Object.entries(ERROR_CODES).flatMap(([code, its]) => (its === status ? [code] : []))
  return Type.Object(
    {
      error_code: Type.String({ enum: codes }),
      detail: Type.String({ description: 'A sentence for people.' }),
      request_id: Type.String({ description: 'As in the header `X-Request-ID`, and in the log.' }),
      ...members,
    },
    { $id: name },
  )
}

/** The schemas of all error bodies except 422, for the components of the document. */
export const ERROR_ANSWERS: readonly TObject[] = Object.keys(ERRORS).map(
  status => errorSchema(Number(status) as ErrorStatus), // the keys of the table above
)

/** The refusals of HTTP itself, which any request can get. */
const ANY_REQUEST = [408, 431] as const

/** The error answers of an operation by status, with those that any request can get. */
export function errorResponses(...statuses: ErrorStatus[]) {
  return Object.fromEntries(
    [...statuses, ...ANY_REQUEST].map(status => {
      const { meaning = STATUS_CODES[status], headers }: ErrorAnswer = ERRORS[status]
      return [
        status,
        { ...reference(errorSchema(status)), description: meaning, headers: { ...headers, ...everyAnswer } },
      ]
    }),
  )
}

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The body that the document shows for the route; by default that of its schema. */
    documentedBody?: TObject
  }
}

/** An operation for the document: named schemas become references, and the common parts are added. */
export function documented(schema: FastifySchema, { documentedBody }: FastifyContextConfig = {}): FastifySchema {
  const { properties = {} } = (schema.headers ?? {}) as Partial<TObject> // all routes have TypeBox schemas
  const headers = Type.Object({ ...properties, 'x-request-id': Type.Optional(requestId) })
  const shown = { tags: ['public'], security: [{ bearer: [] }], ...schema, headers }
  if (documentedBody !== undefined) return { ...shown, body: reference(documentedBody) }
  return schema.body === undefined ? shown : { ...shown, body: withReferences(schema.body) }
}

const requestId = Type.String({
  description: 'Echoed and logged, if it is 1 to 64 letters, digits, `-` and `_`; another is replaced.',
})

/** A sentence on the limits of a body: its size in bytes and its nesting depth. `others` has further limits. */
export function bodyBounds(bytes: number, depth: number, others = ''): string {
  return `The body takes at most ${bytes} bytes (else 413) and nests at most ${depth} deep (else 422). ${others}`.trim()
}

export const answerHeaders = {
  warning: header('What the caller should know: ignored or kept fields, a change of somebody else that was replaced.'),
  'preference-applied': header(
    'Which preferences made a difference: `handling=strict` and `return=minimal` when asked for.',
  ),
  'token-expires-at': header('When the token expires, if it does.'),
  ...rateLimitHeaders,
  ...everyAnswer,
}

const { 'preference-applied': preferenceApplied, ...ofAnyWrite } = answerHeaders

export const deletionHeaders = {
  'idempotent-replayed': header(
    '`true` when the same request with this `Idempotency-Key` was stored before: the tag is that of its version.',
  ),
  'dry-run': header('`true` when nothing was stored because the request was a dry run.'),
  ...ofAnyWrite,
}

export const updateHeaders = {
  etag: header('The strong entity tag of the stored state.'),
  'preference-applied': preferenceApplied,
  ...deletionHeaders,
}

export const creationHeaders = { ...updateHeaders, location: header('Where it is read.') }

export const readHeaders = {
  etag: header('The entity tag of this representation; as `If-Match` of an update it stands for the stored version.'),
  ...everyAnswer,
  ...rateLimitHeaders,
}

export const readOneHeaders = {
  ...readHeaders,
  warning: header('What of an earlier version is left out, because it was deleted since or the caller may not see it.'),
}

export const pageHeaders = {
  link: header('The next page, relative to this address, with `rel="next"`; absent on the last.'),
  warning: header('Without `limit`: there are more than this page has.'),
  ...readHeaders,
}

/** The 422 of an operation. `of` names the checked part in its description. */
export function invalidResponse(of: string, schema: TSchema = HTTPValidationError) {
  const warning = header('How to change single fields, when required ones are missing and there is no `update_mask`.')
  const headers = { warning, ...rateLimitHeaders, ...everyAnswer }
  return { 422: { ...reference(schema), description: `Every fault of the ${of}.`, headers } }
}

/** The answers of a read: `found`, 304 for an unchanged one, and errors. */
export function readResponses(found: object, headers: object, unchanged: string, statuses: ErrorStatus[]) {
  return {
    200: { headers, ...found },
    304: { description: unchanged, type: 'null', headers },
    422: { ...reference(HTTPValidationError), description: 'Every fault of the request.' },
    ...errorResponses(...statuses),
  }
}

export function readOneResponses(record: TSchema, title: 'agent' | 'tool') {
  return readResponses(
    {
      ...reference(record),
      description: `The ${title} as it is now, or as \`version\` says.`,
      headers: readOneHeaders,
    },
    readOneHeaders,
    `The ${title} is still what the caller has.`,
    [400, 401, 403, 404, 409, 410, 429, 500, 503],
  )
}
