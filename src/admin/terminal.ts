import { stringifyExact } from '../schema/exact-json.js'

/*
 * The one place where text meets a terminal. Names, prompts and e-mails are written by other people: a control character
 * in one could forge a row, set the window's title or turn the direction of the text. Here each becomes a visible escape.
 */

/** A cell of a table; null and undefined show as a dash, a list with commas. */
export type Cell = string | number | readonly (string | number)[] | null | undefined

/** C0 and C1 controls with DEL, what turns the direction of text, and the separators that some terminals take for an end of line. */
const CONTROL = /[\p{Cc}\p{Bidi_Control}\p{Zl}\p{Zp}]/gu
const SHORT: Readonly<Record<string, string>> = { '\n': '\\n', '\r': '\\r', '\t': '\\t' }

/** A text as a terminal may show it, on one line: every control character as `\n`, `\x1b` or `\u202e`. */
export function harmless(text: string): string {
  return text.replace(CONTROL, character => SHORT[character] ?? escaped(character, character < '\u0100' ? 2 : 4))
}

/** The same for a text of several lines, whose ends of lines and tabs stay. */
export function harmlessLines(text: string): string {
  return text.replace(CONTROL, found => ('\n\t'.includes(found) ? found : harmless(found)))
}

function escaped(character: string, digits: 2 | 4): string {
  const code = (character.codePointAt(0) ?? 0).toString(16).padStart(digits, '0')
  return `\\${digits === 2 ? 'x' : 'u'}${code}`
}

/** JSON with the same value and no control character: inside a string JSON has an escape for each. */
export function jsonText(value: unknown): string {
  return stringifyExact(value, 2).replace(CONTROL, found => (found === '\n' ? found : escaped(found, 4)))
}

/** Rows as lines, in columns below each other. */
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
