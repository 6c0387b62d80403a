/** Numbers, and what separates the members, count a few. */
const OTHER_CHARACTERS = 4
const FREE_CHARACTERS = 256 * 1024
const CHARACTERS_FOR_EACH = 16
const MOST_CHARACTERS = 32 * 1024 * 1024

/** Characters of all keys and strings of a value, not counted beyond `most`. Shared values count at every place. */
export function charactersOf(value: unknown, most = Number.POSITIVE_INFINITY): number {
  let characters = charactersAt(value)
  const pending: unknown[] = [value]
  while (pending.length > 0 && characters <= most) {
    const at = pending.pop()
    if (typeof at !== 'object' || at === null) continue
    for (const key of Object.keys(at)) {
      const member = (at as Record<string, unknown>)[key]
      characters += charactersAt(member) + (Array.isArray(at) ? 1 : key.length)
      if (characters > most) break
      if (typeof member === 'object') pending.push(member)
    }
  }
  return characters
}

/** What a value counts without its members. */
export function charactersAt(value: unknown): number {
  return typeof value === 'string' ? value.length : OTHER_CHARACTERS
}

/**
 * Characters that may be made of a definition of so many: a few kilobytes that make megabytes are an attack on who answers.
 * Of the documents that were measured none needed a third of it.
 */
export function mostMadeOf(characters: number): number {
  return Math.min(MOST_CHARACTERS, FREE_CHARACTERS + CHARACTERS_FOR_EACH * characters)
}
