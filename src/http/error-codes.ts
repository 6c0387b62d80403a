import { UNAVAILABLE_REASONS } from '../errors.js'

/**
 * Every `error_code` of the wire, by the status that it comes with; 422 has none (DECISIONS section 2). The OpenAPI
 * document and the metrics name them from here; a code that is not here does not compile.
 */
export const ERROR_CODES = {
  400: ['BUILTIN_READ_ONLY', 'BAD_REQUEST'],
  401: ['UNAUTHENTICATED', 'INVALID_TOKEN', 'TOKEN_EXPIRED'],
  403: ['INSUFFICIENT_PERMISSIONS'],
  404: ['PERSONA_NOT_FOUND', 'NOT_FOUND', 'VERSION_NOT_FOUND'],
  405: ['METHOD_NOT_ALLOWED'],
  408: ['REQUEST_TIMEOUT'],
  409: ['SNAPSHOT_TOO_LARGE', 'IDEMPOTENCY_KEY_IN_USE'],
  410: ['VERSION_GONE'],
  412: ['PRECONDITION_FAILED'],
  413: ['PAYLOAD_TOO_LARGE'],
  414: ['URI_TOO_LONG'],
  415: ['UNSUPPORTED_MEDIA_TYPE'],
  428: ['PRECONDITION_REQUIRED'],
  429: ['RATE_LIMITED'],
  431: ['HEADERS_TOO_LARGE'],
  500: ['INTERNAL_ERROR'],
  503: ['SERVICE_UNAVAILABLE'],
} as const

export type ErrorCode = (typeof ERROR_CODES)[keyof typeof ERROR_CODES][number]

/** Why a request is refused, as log and metrics say it: a code, for 503 its reason, for 422 one word of its own. */
export const REFUSALS: readonly string[] = [
  'INVALID_REQUEST',
  ...Object.values(ERROR_CODES).flat(),
  ...UNAVAILABLE_REASONS,
]
