const FREE_CHARACTERS = 256 * 1024
const CHARACTERS_FOR_EACH = 16
const MOST_CHARACTERS = 32 * 1024 * 1024

/**
 * Characters that may be made of a definition of so many: a few kilobytes that make megabytes are an attack on who answers.
 * Of the documents that were measured none needed a third of it.
 */
export function mostMadeOf(characters: number): number {
  return Math.min(MOST_CHARACTERS, FREE_CHARACTERS + CHARACTERS_FOR_EACH * characters)
}
