import { type TObject, Type } from '@sinclair/typebox'
import type { FastifySchema } from 'fastify'
import { UNAVAILABLE_REASONS } from '../errors.js'
import { reference, withReferences } from '../schema/vocabulary.js'

/* What the OpenAPI document says of every operation alike: headers and error answers. */

/** The body of every error but 422. */
export const ErrorAnswer = Type.Object(
  {
    error_code: Type.String(),
    detail: Type.String(),
    request_id: Type.String(),
    reason: Type.Optional(
      Type.String({
        description: '503 only.',
        enum: [...UNAVAILABLE_REASONS],
      }),
    ),
    outcome: Type.Optional(
      Type.String({ description: '503 on updates only.', enum: ['not_applied', 'unknown', 'applied'] }),
    ),
    current_etag: Type.Optional(Type.String({ description: '412 only: the tag of the stored state.' })),
    changed: Type.Optional(
      Type.Unsafe<unknown>({
        type: ['array', 'null'],
        description: '412 only: what changed since the tag that was sent; null when that is no longer known.',
        items: {
          type: 'object',
          required: ['field', 'by', 'at'],
          properties: {
            field: { type: 'string' },
            by: { type: 'string' },
            at: { type: 'string', format: 'date-time' },
          },
        },
      }),
    ),
  },
  { $id: 'ErrorAnswer' },
)

const MEANING = {
  400: 'Built in and therefore not updatable, or a request that HTTP cannot read.',
  401: 'No token, or one that is not valid or has expired.',
  403: 'The caller, or the token, may not do this.',
  404: 'No such resource, or none that the caller may see.',
  412: 'The stored state is not the one that If-Match names.',
  413: 'The body is larger than this operation allows.',
  415: 'The body is not application/json.',
  428: 'This server, or this token, demands If-Match.',
  429:
    'Too many requests of this token (600 a minute unless set otherwise), or too many without a valid token from this ' +
    'address (20 a minute); Retry-After says when to come back.',
  500: 'A fault of the service.',
  503: 'Not possible now; `reason` says why, Retry-After when to try again.',
} as const

/** An operation as the document shows it: named schemas by reference, and what every operation has alike. */
export function documented(schema: FastifySchema): FastifySchema {
  const { properties = {} } = (schema.headers ?? {}) as Partial<TObject> // the schemas of routes are ours
  const headers = Type.Object({ ...properties, 'x-request-id': Type.Optional(requestId) })
  const body = schema.body === undefined ? {} : { body: withReferences(schema.body) }
  return { tags: ['public'], security: [{ bearer: [] }], ...schema, headers, ...body }
}

/** No route's schema holds it: a header that has not this form is replaced, not refused. */
const requestId = Type.String({ pattern: '^[A-Za-z0-9_-]{1,64}$', description: 'Echoed and logged.' })

/** What bounds an operation's body: its bytes, and how deep it may nest. `others` says what else does. */
export function bodyBounds(bytes: number, depth: number, others = ''): string {
  const said = `The body takes at most ${bytes} bytes (else 413) and nests at most ${depth} deep (else 422).`
  return others === '' ? said : `${said} ${others}`
}

/** A header as the document's plugin takes it: a schema, whose description becomes the header's. */
const text = (description: string) => ({ description, type: 'string' })

/** What every answer carries. */
const everyAnswer = { 'x-request-id': text('The id of this request, in every answer and every log line of it.') }

/** In the form of draft-ietf-httpapi-ratelimit-headers; absent where a limit is switched off. */
const rateLimitHeaders = {
  'ratelimit-policy': text('The quota that this request counted against, such as `"token";q=600;w=60`: 600 in 60 s.'),
  ratelimit: text('What is left of it, and the seconds until it is whole again: `"token";r=599;t=60`.'),
}

const retryAfter = {
  'retry-after': { description: 'Seconds to wait before another attempt.', type: 'integer', minimum: 1 },
}

const challenge = { 'www-authenticate': text('The bearer challenge, with what is wrong.') }

/** The headers of a 200 of the validation. */
export const answerHeaders = {
  warning: text('What the caller should know: ignored or kept fields, a change of somebody else that was replaced.'),
  'preference-applied': text('`handling=strict` when it was asked for.'),
  'token-expires-at': text('When the token expires, if it does.'),
  ...rateLimitHeaders,
  ...everyAnswer,
}

/** The headers of a 200 of an update. */
export const updateHeaders = {
  etag: text('The strong entity tag of the stored state.'),
  'dry-run': text('`true` when nothing was stored because the request was a dry run.'),
  ...answerHeaders,
}

const ERROR_HEADERS: { [status in keyof typeof MEANING]?: object } = {
  401: { ...challenge, ...rateLimitHeaders },
  403: challenge,
  429: { ...retryAfter, ...rateLimitHeaders },
  503: retryAfter,
}

/** The error answers of an operation, by status. */
export function errorResponses(...statuses: (keyof typeof MEANING)[]) {
  return Object.fromEntries(
    statuses.map(status => {
      const headers = { ...ERROR_HEADERS[status], ...everyAnswer }
      return [status, { ...reference(ErrorAnswer), description: MEANING[status], headers }]
    }),
  )
}
