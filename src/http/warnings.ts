import type { FastifyReply } from 'fastify'
import type { Loc } from '../errors.js'
import type { RecentChange } from '../updates/resource.js'

const WARNINGS_MAX = 5
const NAME_LENGTH_MAX = 64

/** Adds warnings to an answer as `299 - "text"` (RFC 7234), in ASCII. If there are more than five, the fifth states the number omitted. */
export function addWarnings(reply: FastifyReply, texts: readonly string[]): void {
  if (texts.length === 0) return
  const shown =
    texts.length <= WARNINGS_MAX
      ? texts
      : [...texts.slice(0, WARNINGS_MAX - 1), `and ${texts.length - WARNINGS_MAX + 1} more warnings`]
  const header = shown.map(text => `299 - "${quotable(text)}"`).join(', ')
  const before = reply.getHeader('warning')
  reply.header('warning', before === undefined ? header : `${before}, ${header}`)
}

/** Warnings about unknown fields at these places of a body. */
export function unknownFieldWarnings(places: readonly Loc[]): string[] {
  return places.map(loc => `unknown field ${shortened(loc.join('.'))} ignored`)
}

export function outsideMaskWarning(name: string): string {
  return `field ${shortened(name)} is outside the update_mask and was ignored`
}

/** Warns about a field that was not changed. `byOwner`: the owner may change it too. */
export function keptFieldWarning(name: string, byOwner = false): string {
  return `field ${name} was kept: only ${byOwner ? 'the owner or ' : ''}an administrator may change it`
}

/** Warns about a field that was not restored, because the caller must not set it or because it cannot be restored. */
export function notRestoredWarning(name: string): string {
  return `field ${name} was not restored`
}

/** Warns about a field that the creator of an agent must not set. */
export function newFieldWarning(name: string): string {
  return `field ${name} has its default value: only an administrator may set it`
}

export function keptByNullWarning(name: string): string {
  return `field ${name} was kept: null leaves it as it is, name it in update_mask to clear it`
}

export function overwriteWarning(recent: RecentChange): string {
  return `field ${recent.field} replaces a change by ${recent.by} ${recent.age_s} seconds ago`
}

export function shortened(name: string): string {
  return name.length <= NAME_LENGTH_MAX ? name : `${name.slice(0, NAME_LENGTH_MAX)}...`
}

/** Converts text to printable ASCII for a quoted header value. Quotes and backslashes become `'`, other characters `?`. */
function quotable(text: string): string {
  return text.replaceAll(/[^\x20-\x7e]/g, '?').replaceAll(/["\\]/g, "'")
}
