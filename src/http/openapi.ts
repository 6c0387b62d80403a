import { STATUS_CODES } from 'node:http'
import { type TObject, type TProperties, type TSchema, Type } from '@sinclair/typebox'
import { ERROR_CODES, STALE, UNAVAILABLE_REASONS } from '../errors.js'
import { HTTPValidationError } from '../validation/faults.js'
import { list, nullable, reference, text } from '../validation/vocabulary.js'

/** The description of each answer header. CORS exposes these headers to pages of other origins. */
const HEADERS = {
  'dry-run': '`true` when nothing was stored because the request was a dry run.',
  etag: 'The entity tag. In `If-Match`, updates accept the tag of an agent or tool, but not of a list, history, proposal, `/me` or `/runtime`.',
  'idempotent-replayed':
    '`true` if an earlier request with this `Idempotency-Key` was applied. `ETag` is from the first answer, but a proposal has its current `ETag`.',
  link: 'The relative address of the next page, with `rel="next"`; absent on the last page.',
  location: 'The address of the new record or proposal.',
  'preference-applied': 'The requested preferences that were applied: `handling=strict`, `return=minimal`.',
  ratelimit: 'The requests left (`r`) and the seconds until the quota is restored (`t`), such as `"token";r=599;t=60`.',
  'ratelimit-policy':
    'The quota of the token: `"token";q=600;w=60` means 600 requests in 60 s. A 429 names the limit that was reached.',
  'retry-after': 'Seconds to wait before another attempt.',
  'token-expires-at': 'The time at which the token expires.',
  warning:
    'Notes for the caller, for example about ignored fields, further pages, or changes of others that were overwritten.',
  'www-authenticate': 'The authentication challenge (RFC 6750).',
  'x-request-id': 'The id of this request, which the log of the service also contains.',
}
type HeaderName = keyof typeof HEADERS

export const HEADER_NAMES = Object.keys(HEADERS)

const OF_CALLERS = ['ratelimit', 'ratelimit-policy', 'token-expires-at'] as const

function headersOf(names: readonly HeaderName[]) {
  const all: HeaderName[] = [...names, 'x-request-id']
  return Object.fromEntries(
    all.map(name => [name, { description: HEADERS[name], type: name === 'retry-after' ? 'integer' : 'string' }]),
  )
}

interface ErrorAnswer {
  /** The name of the schema. Generated clients use the name to distinguish refusals. */
  name: string
  meaning?: string
  members?: TProperties
  headers?: readonly HeaderName[]
}

const OUTCOME = Type.Optional(
  Type.String({ description: 'Whether the change was applied.', enum: ['not_applied', 'unknown', 'applied'] }),
)

const ERRORS = {
  400: { name: 'BadRequestError' },
  401: { name: 'UnauthorizedError', headers: ['www-authenticate', ...OF_CALLERS] },
  403: { name: 'ForbiddenError', headers: ['www-authenticate'] },
  404: { name: 'NotFoundError' },
  408: { name: 'RequestTimeoutError' },
  409: {
    name: 'ConflictError',
    meaning:
      'The request conflicts with stored data, a limit or another request. The request changed nothing. `error_code` states the reason.',
    members: {
      conflicts: Type.Optional(
        list(text(), {
          description: 'With `PROPOSAL_CONFLICT`: the proposed fields that have changed since the base version.',
        }),
      ),
      agents: Type.Optional(
        list(Type.Object({ id: Type.Integer(), name: Type.String() }), {
          description: 'With `TOOL_IN_USE`: at most 100 agents that use the tool and are visible to the caller.',
        }),
      ),
      others: Type.Optional(Type.Integer({ description: 'With `TOOL_IN_USE`: how many more agents use the tool.' })),
    },
    headers: ['retry-after'],
  },
  410: {
    name: 'GoneError',
    meaning:
      '`VERSION_GONE`: the version is no longer kept, or its record is deleted or hidden. `CURSOR_GONE`: changes cannot be read from this cursor.',
    members: {
      reason: Type.Optional(
        Type.String({
          description:
            '`pruned`: the version is no longer kept. `deleted`: its record is deleted or hidden from the caller. Absent with `CURSOR_GONE`.',
          enum: ['pruned', 'deleted'],
        }),
      ),
    },
  },
  412: {
    name: 'PreconditionFailedError',
    meaning: 'The current ETag does not match If-Match, or it matches If-None-Match.',
    members: {
      reason: Type.String({
        description:
          '`changed`: `If-Match` does not contain the current tag. `unknown_tag`: `If-Match` has only weak tags or tags that the agent or tool ' +
          'never had. `matched`: `If-None-Match` is `*` or contains the current tag. `nothing_stored`: a creation had `If-Match`.',
        enum: Object.keys(STALE),
      }),
      current_etag: nullable(text({ description: 'The current entity tag; null for a creation.' })),
      changed: Type.Unsafe<unknown>({
        type: ['array', 'null'],
        description: 'The fields that changed after the version in `If-Match`; null if unknown.',
        items: Type.Object({ field: Type.String(), by: Type.String(), at: Type.String({ format: 'date-time' }) }),
      }),
    },
  },
  413: { name: 'ContentTooLargeError' },
  415: {
    name: 'UnsupportedMediaTypeError',
    meaning: 'The body must be JSON without a Content-Encoding. A body without a Content-Type is read as JSON.',
  },
  428: { name: 'PreconditionRequiredError', meaning: 'This server, token or operation requires If-Match.' },
  429: {
    name: 'TooManyRequestsError',
    meaning:
      'RateLimit-Policy names the limit: `token` (requests per minute), `token-requests` (concurrent requests) or `token-waiting` ' +
      '(requests that wait for changes). Retry-After states when to retry.',
    headers: ['retry-after', ...OF_CALLERS],
  },
  431: { name: 'HeadersTooLargeError' },
  500: { name: 'InternalServerError', members: { outcome: OUTCOME } },
  503: {
    name: 'ServiceUnavailableError',
    meaning:
      'The request cannot be served now. `reason` states why. Retry-After, absent with `key_missing`, states when to retry.',
    members: {
      reason: Type.String({ description: 'Why the request cannot be served now.', enum: [...UNAVAILABLE_REASONS] }),
      outcome: OUTCOME,
    },
    headers: ['retry-after'],
  },
} satisfies Record<number, ErrorAnswer>

type ErrorStatus = keyof typeof ERRORS

/** The schemas of all error bodies except 422. */
export const ERROR_ANSWERS: readonly TObject[] = Object.entries<ErrorAnswer>(ERRORS).map(([status, answer]) => {
  const codes = Object.entries(ERROR_CODES).flatMap(([code, its]) => (its === Number(status) ? [code] : []))
  const shared = {
    error_code: Type.String({ enum: codes }),
    detail: Type.String({ description: 'A message for people.' }),
    request_id: Type.String({ description: 'The id of the request, as in the header `X-Request-ID` and in the log.' }),
  }
  return Type.Object({ ...shared, ...answer.members }, { $id: answer.name })
})

const ANY_OPERATION: readonly ErrorStatus[] = [400, 401, 403, 408, 429, 431, 500, 503]

interface OwnAnswer {
  description: string
  body?: object
  headers: readonly HeaderName[]
}

/** Returns the schema of each answer of an operation: `own` answers, 422, `refusals`, and the refusals that every operation has. */
export function responses(
  own: Readonly<Record<number, OwnAnswer>>,
  refusals: readonly ErrorStatus[] = [],
  invalid: TSchema = HTTPValidationError,
): Record<number, object> {
  const all: Record<number, object> = {}
  const faults: OwnAnswer = {
    description: 'The request is invalid. `detail` lists the faults.',
    body: reference(invalid),
    headers: ['warning'],
  }
  for (const [status, { description, body = { type: 'null' }, headers }] of Object.entries({ ...own, 422: faults }))
    all[Number(status)] = { ...body, description, headers: headersOf([...headers, ...OF_CALLERS]) }
  for (const status of [...ANY_OPERATION, ...refusals]) {
    const { name, meaning = STATUS_CODES[status], headers = [] }: ErrorAnswer = ERRORS[status]
    all[status] = { $ref: name, description: meaning, headers: headersOf(headers) }
  }
  return all
}

/** Returns the schema of each answer of a read. `found` is the schema of the body. */
export function readResponses(
  found: object,
  description: string,
  more: readonly HeaderName[] = [],
  refusals: readonly ErrorStatus[] = [],
) {
  const headers = ['etag', ...more] as const
  const unchanged = { description: 'Unchanged: `If-None-Match` has the current `ETag`.', headers }
  return responses({ 200: { description, body: found, headers }, 304: unchanged }, refusals)
}

/** Returns a text with the size limit and nesting limit of a body. `others` is appended. */
export function bodyBounds(bytes: number, depth: number, others = ''): string {
  return `A body of more than ${bytes} bytes gets 413. A body with more than ${depth} levels of nesting gets 422. ${others}`.trim()
}
