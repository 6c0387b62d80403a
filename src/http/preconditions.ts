import type { Fault } from '../errors.js'
import type { Precondition } from '../updates/tag.js'

const ENTITY_TAG = String.raw`(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"`
/** Elements of a list may be empty (RFC 9110, section 5.6.1), but between two tags there is a comma. */
const LIST_OF_TAGS = new RegExp(String.raw`^[ \t,]*${ENTITY_TAG}(?:[ \t]*,[ \t,]*${ENTITY_TAG})*[ \t,]*$`)

/**
 * Reads an `If-Match` header (RFC 9110, section 13.1.1): `*`, or a list of entity tags. Weak tags are allowed and never
 * match. Anything else is a fault at `["header","if-match"]`, so that a damaged tag does not become an unguarded write.
 */
export function parseIfMatch(header: string | undefined): Precondition | { fault: Fault } {
  if (header === undefined) return { kind: 'none' }
  if (header.trim() === '*') return { kind: 'any' }
  if (!LIST_OF_TAGS.test(header)) {
    return {
      fault: {
        loc: ['header', 'if-match'],
        msg: 'Input should be * or a list of entity tags in double quotes, such as "persona-12-7"',
        type: 'string_pattern_mismatch',
      },
    }
  }
  const tags = header.match(new RegExp(ENTITY_TAG, 'g')) ?? []
  return { kind: 'tags', tags: tags.filter(tag => !tag.startsWith('W/')) }
}

/** Whether a `Prefer` header asks for strict handling (RFC 7240): unknown and kept fields become errors. */
export function prefersStrict(header: string | string[] | undefined): boolean {
  const text = Array.isArray(header) ? header.join(',') : (header ?? '')
  return /(^|[,;])\s*handling\s*=\s*"?strict"?\s*($|[,;])/i.test(text)
}
