import type { TSchema } from '@sinclair/typebox'
import { HTTPValidationError } from '../validation/faults.js'
import { reference } from '../validation/vocabulary.js'

/* The answers of operations, for the OpenAPI document. `test/openapi-document.ts` explains headers and refusals. */

/** The headers of answers. Pages of other origins may read them (CORS). */
export const HEADER_NAMES = [
  ...(['dry-run', 'etag', 'idempotent-replayed', 'link', 'location', 'preference-applied', 'ratelimit'] as const),
  ...(['ratelimit-policy', 'retry-after', 'token-expires-at', 'warning', 'www-authenticate', 'x-request-id'] as const),
]
export type HeaderName = (typeof HEADER_NAMES)[number]

/** An answer of one operation. Without `body` it has none. */
export interface OwnAnswer {
  description: string
  body?: object
  headers: readonly HeaderName[]
}

/** The answers of an operation by status: its `own`, 422, and its refusals in addition to those that every operation has. */
export function responses(
  own: Readonly<Record<number, OwnAnswer>>,
  refusals: readonly number[] = [],
  invalid: TSchema = HTTPValidationError,
): Record<number, object> {
  const faults: OwnAnswer = {
    description: 'Every fault of the request.',
    body: reference(invalid),
    headers: ['warning'],
  }
  const answers = Object.entries({ ...own, 422: faults }).map(([status, { body = { type: 'null' }, ...shown }]) => {
    return [status, { ...body, ...shown }] as const
  })
  return Object.fromEntries([...answers, ...refusals.map(status => [status, {}] as const)])
}

/** The answers of a read, whose body has the schema `found`. */
export function readResponses(
  found: object,
  description: string,
  more: readonly HeaderName[] = [],
  refusals: readonly number[] = [],
) {
  const headers = ['etag', ...more] as const
  const unchanged = { description: 'The caller has it already.', headers }
  return responses({ 200: { description, body: found, headers }, 304: unchanged }, refusals)
}

/** A sentence on the limits of a body: its size in bytes and its nesting depth. `others` has further limits. */
export function bodyBounds(bytes: number, depth: number, others = ''): string {
  return `The body takes at most ${bytes} bytes (else 413) and nests at most ${depth} deep (else 422). ${others}`.trim()
}
