/** Errors that `http/error-handler.ts` turns into answers. Their messages are for clients and contain no SQL, file paths or secrets. */

/** The HTTP status of every `error_code`. A 422 has no error code (DECISIONS section 2). */
export const ERROR_CODES = {
  BUILTIN_READ_ONLY: 400,
  BAD_REQUEST: 400,
  UNAUTHENTICATED: 401,
  INVALID_TOKEN: 401,
  TOKEN_EXPIRED: 401,
  INSUFFICIENT_PERMISSIONS: 403,
  OWN_PROPOSAL: 403,
  APPROVAL_REQUIRED: 403,
  PERSONA_NOT_FOUND: 404,
  NOT_FOUND: 404,
  VERSION_NOT_FOUND: 404,
  METHOD_NOT_ALLOWED: 405,
  REQUEST_TIMEOUT: 408,
  SNAPSHOT_TOO_LARGE: 409,
  IDEMPOTENCY_KEY_IN_USE: 409,
  TOOL_IN_USE: 409,
  PROPOSAL_CLOSED: 409,
  PROPOSAL_CONFLICT: 409,
  PROPOSAL_UNUSABLE: 409,
  PROPOSALS_FULL: 409,
  VERSION_GONE: 410,
  CURSOR_GONE: 410,
  PRECONDITION_FAILED: 412,
  PAYLOAD_TOO_LARGE: 413,
  UNSUPPORTED_MEDIA_TYPE: 415,
  PRECONDITION_REQUIRED: 428,
  RATE_LIMITED: 429,
  HEADERS_TOO_LARGE: 431,
  INTERNAL_ERROR: 500,
  SERVICE_UNAVAILABLE: 503,
} as const

export type ErrorCode = keyof typeof ERROR_CODES

/** The location of a value in a request: `body`, `path`, `query` or `header`, then property names and array indexes. */
export type Loc = (string | number)[]

/** A fault of a request, as in a 422 answer. If pydantic v2 reports the same fault, `type` and `msg` are pydantic's. */
export interface Fault {
  loc: Loc
  msg: string
  type: string
}

/** The request is invalid. `extra` has further properties of the answer's body, each as JSON text. */
export class InvalidRequest extends Error {
  constructor(
    readonly faults: Fault[],
    readonly extra?: Readonly<Record<string, string>>,
  ) {
    super('the request is invalid')
  }
}

/** A tool's header in the request has a mask that matches no stored value. If `If-Match` has an older version, the mask can be of that version. */
export class UnknownRedaction extends InvalidRequest {}

/** A refusal with an error code. Invalid requests use `InvalidRequest`. */
export class Refused extends Error {
  readonly extra: Readonly<Record<string, unknown>>
  readonly headers: Readonly<Record<string, string>>

  constructor(
    readonly code: ErrorCode,
    message: string,
    { extra = {}, headers = {}, ...options }: ErrorOptions & Partial<Pick<Refused, 'extra' | 'headers'>> = {},
  ) {
    super(message, options)
    this.extra = extra
    this.headers = headers
  }
}

/** A fault of the program or the database. `outcome` states whether the update was stored. */
export class Failed extends Refused {
  constructor(outcome: Outcome | undefined, cause: unknown) {
    const message = 'An internal error occurred. With this request id, the operator can find the cause in the log.'
    super('INTERNAL_ERROR', message, { cause, extra: { outcome } })
  }
}

const REALM = 'Bearer realm="agents"'

export class NotAuthenticated extends Refused {
  constructor(code: 'UNAUTHENTICATED' | 'INVALID_TOKEN' | 'TOKEN_EXPIRED', message: string) {
    const fault = code === 'UNAUTHENTICATED' ? '' : `, error="invalid_token", error_description="${message}"`
    super(code, message, { headers: { 'www-authenticate': `${REALM}${fault}` } })
  }
}

/** The connection closed before the answer was sent. Only the log shows this error. */
export class ClientGone extends Refused {
  constructor() {
    super('BAD_REQUEST', 'The connection was closed before the answer was sent.')
  }
}

/** The caller has no right to make this request. `scope`: the permission that would allow the request. */
export class Forbidden extends Refused {
  constructor(message: string, scope?: string) {
    const headers = { 'www-authenticate': `${REALM}, error="insufficient_scope", scope="${scope}"` }
    super('INSUFFICIENT_PERMISSIONS', message, scope === undefined ? {} : { headers })
  }
}

/** The resource does not exist or is hidden from the caller. Both cases get the same answer. */
export class ResourceNotFound extends Refused {
  constructor(kind: 'persona' | 'tool' | 'proposal') {
    if (kind === 'persona') super('PERSONA_NOT_FOUND', 'No agent with this id.')
    else super('NOT_FOUND', `No ${kind} with this id.`)
  }
}

/** The stored data makes the answer larger than the size limit. */
export class SnapshotTooLarge extends Refused {
  constructor(what: string, bytes: number, bytesMax: number, advice: string) {
    super('SNAPSHOT_TOO_LARGE', `${what} ${bytes} bytes, but an answer can contain at most ${bytesMax}. ${advice}`)
  }
}

export const STALE = {
  changed:
    'If-Match does not contain the current ETag. Read the record again, then repeat the change with the new ETag.',
  unknown_tag:
    'If-Match contains only weak tags (W/) or tags that this agent or tool never had. Read the record and send its ETag.',
  matched:
    'If-None-Match contains the current ETag or *, so nothing was changed. Omit If-None-Match, or send If-Match instead.',
  nothing_stored: 'A creation cannot have If-Match, because nothing is stored yet. Omit If-Match.',
}

/** A field that changed after the version in `If-Match`. `by` is the email of the user who changed the field. */
export interface FieldChange {
  field: string
  by: string
  at: string
}

/** A precondition failed. `changed`: the fields that changed after the version in `If-Match`; null if unknown. */
export class PreconditionFailed extends Refused {
  constructor(reason: keyof typeof STALE, currentTag: string | null, changed: FieldChange[] | null = null) {
    super('PRECONDITION_FAILED', STALE[reason], { extra: { reason, current_etag: currentTag, changed } })
  }
}

export class IdempotencyKeyInUse extends Refused {
  constructor() {
    const message = 'Another request with this Idempotency-Key is in progress. Wait for its answer, then try again.'
    super('IDEMPOTENCY_KEY_IN_USE', message, { headers: RETRY_AFTER })
  }
}

export class VersionGone extends Refused {
  constructor(reason: 'pruned' | 'deleted', message: string) {
    super('VERSION_GONE', message, { extra: { reason } })
  }
}

export const QUOTA_WINDOW_S = 60

/** The limits of a token. `token`: requests per minute. `token-requests`: concurrent requests. `token-waiting`: requests that wait for changes. */
export type Limit = 'token' | 'token-requests' | 'token-waiting'

/** Returns the headers of a limit (draft-ietf-httpapi-ratelimit-headers, version 8). `resetS`: seconds until the quota is restored. */
export function rateLimitHeaders(limit: Limit, quota: number, remaining: number, resetS: number) {
  const unit = limit === 'token' ? `w=${QUOTA_WINDOW_S}` : 'qu="concurrent-requests"'
  return {
    'ratelimit-policy': `"${limit}";q=${quota};${unit}`,
    ratelimit: `"${limit}";r=${remaining};t=${resetS}`,
  }
}

export class RateLimited extends Refused {
  constructor(
    readonly limit: Limit,
    quota: number,
    resetS = RETRY_AFTER_S,
    work = 'requests',
  ) {
    const sentences = {
      token: `This token has reached its limit of requests per minute (${quota}).`,
      'token-requests': `This token has reached its limit of concurrent ${work} (${quota}). Wait for answers before you send more.`,
      'token-waiting': 'This token already has a request that waits for changes; only one is allowed.',
    }
    super('RATE_LIMITED', `${sentences[limit]} Try again in ${resetS} s.`, {
      headers: { 'retry-after': String(resetS), ...rateLimitHeaders(limit, quota, 0, resetS) },
    })
  }
}

const RETRY_AFTER_S = 1
const RETRY_AFTER = { 'retry-after': String(RETRY_AFTER_S) }
export const TRY_AGAIN = `Try again in ${RETRY_AFTER_S} s.`

export const UNAVAILABLE_REASONS = [
  'database_unreachable',
  'database_full',
  'schema_behind',
  'schema_ahead',
  'migrating',
  'key_missing',
  'not_recorded',
  'overloaded',
  'draining',
] as const
export type UnavailableReason = (typeof UNAVAILABLE_REASONS)[number]

/** Whether the service can serve requests. `detail` is one or two sentences with the cause and the remedy. */
export type Readiness = { status: 'ready' } | { status: 'unavailable'; reason: UnavailableReason; detail: string }

/** Whether a failed request has applied its update. */
export type Outcome = 'applied' | 'not_applied' | 'unknown'

/** The service cannot serve the request at present. `outcome`: whether an update was applied. */
export class Unavailable extends Refused {
  /** True if the transaction found no stored update with the request's `Idempotency-Key`. */
  isKeyLookedUp = false

  constructor(
    readonly reason: UnavailableReason,
    message: string,
    readonly outcome: Outcome,
    options: ErrorOptions = {},
  ) {
    const headers = reason === 'key_missing' ? {} : RETRY_AFTER // waiting does not restore a missing key
    super('SERVICE_UNAVAILABLE', message, { ...options, extra: { reason }, headers })
  }
}
