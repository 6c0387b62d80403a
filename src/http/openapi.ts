import { Type } from '@sinclair/typebox'
import { reference } from '../schema/vocabulary.js'

/*
 * What the OpenAPI document says of every operation alike: parameters, headers and error answers. These descriptions
 * validate nothing: `request-parts.ts` reads what they describe.
 */

/** The body of every error but 422. */
export const ErrorAnswer = Type.Object(
  {
    error_code: Type.String(),
    detail: Type.String(),
    request_id: Type.String(),
    reason: Type.Optional(
      Type.String({
        description: '503 only.',
        enum: ['database_unreachable', 'schema_behind', 'schema_ahead', 'key_missing', 'overloaded', 'draining'],
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

const QUERY = {
  update_mask: Type.String({
    description:
      'Field names separated by commas: only these are read and written, and the rest may be absent. Inside the mask ' +
      '`null` means null for every nullable field. The empty mask changes nothing.',
  }),
  dry_run: Type.Boolean({
    description:
      'Every check and the same answer as the real request, but nothing is stored. ETag is the stored state.',
  }),
  report: Type.String({ enum: ['full'], description: '`full` adds `warnings` to the answer.' }),
  tool_id: Type.Integer({
    description: 'Adds `impact`: what storing this definition in the tool would change, and for which agents.',
  }),
} as const

/** Path, query and header parameters of an operation. */
export function updateParameters(pathId: string | undefined, query: (keyof typeof QUERY)[]) {
  return {
    ...(pathId && { params: Type.Object({ [pathId]: Type.Integer({ minimum: 1, maximum: 2147483647 }) }) }),
    querystring: Type.Object(Object.fromEntries(query.map(name => [name, Type.Optional(QUERY[name])]))),
    headers: Type.Object({
      ...(pathId && {
        'if-match': Type.Optional(
          Type.String({
            description: '`*`, or entity tags such as `"persona-12-7"`: write only if one is the stored state.',
          }),
        ),
      }),
      prefer: Type.Optional(
        Type.String({ description: '`handling=strict`: unknown fields are 422, fields that would be kept are 403.' }),
      ),
      'x-request-id': Type.Optional(
        Type.String({ pattern: '^[A-Za-z0-9_-]{1,64}$', description: 'Echoed and logged.' }),
      ),
    }),
  }
}

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
