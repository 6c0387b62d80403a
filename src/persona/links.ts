import type { PersonaContent, Relation, Share } from './fields.js'

/** What an agent holds of a relation: ids, or ids with a level. */
export type StoredLink = number | string | Share<number | string>

/** What a link leads to. */
export function idOf(link: StoredLink): number | string {
  return typeof link === 'object' ? link.id : link
}

/** The ids of one relation, whatever the shape in which the content holds them. */
export function idsOf(content: PersonaContent, relation: Relation): (number | string)[] {
  const links: StoredLink[] = content[relation]
  return links.map(idOf)
}

/** Numbers by size, texts by their UTF-8 bytes as the database does: JavaScript's own order is that of UTF-16. */
export function compareIds(a: string | number, b: string | number): number {
  if (typeof a === 'number' && typeof b === 'number') return a - b
  return compareTexts(String(a), String(b))
}

/** The order of UTF-8 without making any: a list of a thousand texts is ten thousand comparisons. */
function compareTexts(a: string, b: string): number {
  const length = Math.min(a.length, b.length)
  for (let index = 0; index < length; index++) {
    const [one, other] = [a.charCodeAt(index), b.charCodeAt(index)]
    if (one !== other) return rank(one) - rank(other)
  }
  return a.length - b.length
}

/** Of a unit of UTF-16 among those in its place: halves of what has four bytes come behind all that has three. */
function rank(unit: number): number {
  if (unit < 0xd800) return unit
  return unit < 0xe000 ? unit + 0x2000 : unit - 0x800
}
