/*
 * Escapes text for a terminal. Names, prompts and emails come from other people. A control character in them could forge a row, set the
 * window's title or reverse the text.
 */

/** A cell of a table. Null and undefined are shown as a dash, a list with commas. */
export type Cell = string | number | readonly (string | number)[] | null | undefined

/** Control characters (C0, C1, DEL), characters that change the direction of text, and separators that some terminals treat as a line end. */
const CONTROL = /[\p{Cc}\p{Bidi_Control}\p{Zl}\p{Zp}]/gu
const SHORT: Readonly<Record<string, string>> = { '\n': '\\n', '\r': '\\r', '\t': '\\t' }

/**
 * A text on one line, with each control character as `
 * `, `\x1b` or `\u202e`.
 */
export function harmless(text: string): string {
  return text.replace(CONTROL, character => SHORT[character] ?? escaped(character, character < '\u0100' ? 2 : 4))
}

/** The same for a text of several lines: newlines and tabs stay. */
export function harmlessLines(text: string): string {
  return text.replace(CONTROL, found => ('\n\t'.includes(found) ? found : harmless(found)))
}

function escaped(character: string, digits: 2 | 4): string {
  const code = (character.codePointAt(0) ?? 0).toString(16).padStart(digits, '0')
  return `\\${digits === 2 ? 'x' : 'u'}${code}`
}

/** JSON without control characters: each is escaped within its string. */
export function jsonText(value: unknown): string {
  return JSON.stringify(value, null, 2).replace(CONTROL, found => (found === '\n' ? found : escaped(found, 4)))
}

/** Formats rows as lines with aligned columns. */
export function tableLines(rows: readonly (readonly Cell[])[]): string[] {
  const cells = rows.map(row => row.map(cellText))
  const widths: number[] = []
  for (const row of cells) {
    for (const [index, text] of row.entries()) widths[index] = Math.max(widths[index] ?? 0, [...text].length)
  }
  const padded = (text: string, index: number) => text + ' '.repeat((widths[index] ?? 0) - [...text].length)
  return cells.map(row => row.map(padded).join('  ').trimEnd())
}

function cellText(cell: Cell): string {
  if (cell === null || cell === undefined) return '-'
  return harmless(Array.isArray(cell) ? cell.join(', ') : String(cell))
}
