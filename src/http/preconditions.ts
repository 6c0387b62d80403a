import type { Fault } from '../errors.js'
import type { Precondition } from '../revisions/tag.js'

const ENTITY_TAG = /^(W\/)?"[\x21\x23-\x7e\x80-\xff]*"$/

/** Where a quoted tag may end a list item: commas inside the quotes do not. */
const LIST_ITEM = /(?:W\/)?"[^"]*"|[^,"]+/g

/**
 * Reads an `If-Match` header (RFC 9110, section 13.1.1): `*`, or a list of entity tags. Weak tags are allowed and never
 * match. Anything else is a fault at `["header","if-match"]`, so that a damaged tag does not become an unguarded write.
 */
export function parseIfMatch(header: string | undefined): Precondition | { fault: Fault } {
  if (header === undefined) return { kind: 'none' }
  if (header.trim() === '*') return { kind: 'any' }
  const items = (header.match(LIST_ITEM) ?? []).map(item => item.trim()).filter(item => item !== '')
  const rest = header.replaceAll(LIST_ITEM, '').replaceAll(/[\s,]/g, '')
  if (items.length === 0 || rest !== '' || !items.every(item => ENTITY_TAG.test(item))) {
    return {
      fault: {
        loc: ['header', 'if-match'],
        msg: 'Input should be * or a list of entity tags in double quotes, such as "persona-12-7"',
        type: 'string_pattern_mismatch',
      },
    }
  }
  return { kind: 'tags', tags: items.filter(item => !item.startsWith('W/')) }
}

/** Whether a `Prefer` header asks for strict handling (RFC 7240): unknown and kept fields become errors. */
export function prefersStrict(header: string | string[] | undefined): boolean {
  const text = Array.isArray(header) ? header.join(',') : (header ?? '')
  return /(^|[,;])\s*handling\s*=\s*"?strict"?\s*($|[,;])/i.test(text)
}
