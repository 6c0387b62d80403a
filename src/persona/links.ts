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
  return Buffer.compare(Buffer.from(String(a)), Buffer.from(String(b)))
}
