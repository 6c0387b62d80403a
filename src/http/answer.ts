import { Readable } from 'node:stream'
import type { FastifyReply } from 'fastify'
import type { Loc } from '../errors.js'
import type { Overwritten } from '../updates/resource.js'
import type { Precondition } from '../updates/tag.js'
import { shortened } from '../validation/parameters.js'
import { NO_PRECONDITION } from './parameters.js'

/** The media type of JSON answers. It has a charset, because otherwise Fastify would append the charset to each answer. */
export const JSON_TYPE = 'application/json; charset=utf-8'

/** Sets `Preference-Applied` to the preferences that were applied (RFC 7240, section 3). */
export function notePreferences(reply: FastifyReply, preferences: Readonly<Record<string, boolean>>): void {
  const applied = Object.keys(preferences).filter(name => preferences[name])
  if (applied.length > 0) reply.header('preference-applied', applied.join(', '))
}

/** Sends a 200 with the JSON `text`, or a 304 if `If-None-Match` is `*` or contains `tag`. */
export function answerTagged(
  reply: FastifyReply,
  tag: string,
  text: string,
  ifNoneMatch: Precondition = NO_PRECONDITION,
): string | FastifyReply {
  reply.header('etag', tag)
  if (ifNoneMatch.kind === 'any' || (ifNoneMatch.kind === 'tags' && ifNoneMatch.tags.includes(tag))) {
    // Even an empty string would add Content-Type and Content-Length to the 304. For HEAD, an empty stream prevents Fastify from adding a wrong
    // Content-Length (RFC 9110, section 8.6).
    return reply.code(304).send(reply.request.method === 'HEAD' ? Readable.from([]) : undefined)
  }
  reply.type(JSON_TYPE)
  return text
}

const WARNINGS_MAX = 5

/** Adds warnings to the `Warning` header as `299 - "text"` (RFC 7234). Of more than five warnings, the fifth states how many are omitted. */
export function addWarnings(reply: FastifyReply, texts: readonly string[]): void {
  if (texts.length === 0) return
  const left = texts.length - WARNINGS_MAX + 1
  const shown = left > 1 ? [...texts.slice(0, -left), `and ${left} more warnings`] : texts
  const header = shown.map(text => `299 - "${quotable(text)}"`).join(', ')
  const before = reply.getHeader('warning')
  reply.header('warning', before === undefined ? header : `${before}, ${header}`)
}

export function unknownFieldWarnings(places: readonly Loc[]): string[] {
  return places.map(loc => `unknown field ${shortened(loc.join('.'))} was ignored`)
}

export function notRestoredWarning(name: string): string {
  return `field ${name} was not restored`
}

export function overwriteWarning({ field, by, ageS }: Overwritten): string {
  return `field ${field} overwrites a change that ${by} made ${ageS} s ago`
}

/** Converts text to printable ASCII for a quoted header value. Quotes and backslashes become `'`; characters outside ASCII become `?`. */
function quotable(text: string): string {
  return text.replaceAll(/[^\x20-\x7e]/g, '?').replaceAll(/["\\]/g, "'")
}
