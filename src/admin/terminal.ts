import { stringifyExact } from '../schema/exact-json.js'

/*
 * The one place where text meets a terminal. Names, prompts and e-mails are written by other people: a control character
 * in one could forge a row, set the window's title or turn the direction of the text. Here each becomes a visible escape.
 */

const COLOUR = { red: 31, green: 32, yellow: 33, dim: 2, bold: 1 } as const

/** A text in a colour. Only `rendered` makes it one, after the text was made harmless. */
export interface Coloured {
  text: string
  colour: keyof typeof COLOUR
}

export type Piece = string | Coloured

/** A cell of a table; null and undefined show as a dash, a list with commas. */
export type Cell = Piece | number | readonly (string | number)[] | null | undefined

/** C0 and C1 controls with DEL, what turns the direction of text, and the separators that some terminals take for an end of line. */
const CONTROL = /[\p{Cc}\p{Bidi_Control}\p{Zl}\p{Zp}]/gu
const SHORT: Readonly<Record<string, string>> = { '\n': '\\n', '\r': '\\r', '\t': '\\t' }

/** A text as a terminal may show it, on one line: every control character as `\n`, `\x1b` or `\u202e`. */
export function harmless(text: string): string {
  return text.replace(CONTROL, character => SHORT[character] ?? escaped(character.codePointAt(0) ?? 0))
}

/** The same for a text of several lines, whose ends of lines and tabs stay. */
export function harmlessLines(text: string): string {
  const harmlessText = text.replace(CONTROL, character =>
    '\n\t'.includes(character) ? character : harmless(character),
  )
  return withoutCommands(harmlessText)
}

/**
 * Lines that a runner of continuous integration does not take for its commands: GitHub Actions obeys `::` where a line begins, blanks
 * aside, and `##[` anywhere.
 */
function withoutCommands(text: string): string {
  return text.replace(/^([^\S\n]*):(?=:)/gm, '$1\\x3a').replaceAll('##[', '#\\x23[')
}

function escaped(code: number): string {
  return code < 0x100 ? `\\x${code.toString(16).padStart(2, '0')}` : `\\u${code.toString(16).padStart(4, '0')}`
}

/** JSON with the same value and no control character: inside a string JSON has an escape for each. */
export function jsonText(value: unknown): string {
  const text = stringifyExact(value, 2)
  const unicode = (character: string) => `\\u${(character.codePointAt(0) ?? 0).toString(16).padStart(4, '0')}`
  const harmlessText = text.replace(CONTROL, character => (character === '\n' ? character : unicode(character)))
  // As in `withoutCommands`; no line of JSON begins with a colon.
  return harmlessText.replaceAll('##[', '#\\u0023[')
}

/** Pieces as one line, in colours where there are any. */
export function rendered(pieces: readonly Piece[], colours: boolean): string {
  const line = pieces
    .map(piece => {
      if (typeof piece === 'string') return harmless(piece)
      const text = harmless(piece.text)
      return colours ? `\u001b[${COLOUR[piece.colour]}m${text}\u001b[0m` : text
    })
    .join('')
  return withoutCommands(line)
}

/** Rows in columns below each other. */
export function tableLines(rows: readonly (readonly Cell[])[]): Piece[][] {
  const cells = rows.map(row => row.map(cellOf))
  const widths: number[] = []
  for (const row of cells) {
    for (const [index, { text }] of row.entries()) widths[index] = Math.max(widths[index] ?? 0, [...text].length)
  }
  return cells.map(row => {
    const last = row.findLastIndex(cell => cell.text !== '')
    return row.slice(0, last + 1).flatMap((cell, index): Piece[] => {
      const space = index === last ? '' : ' '.repeat((widths[index] ?? 0) - [...cell.text].length + 2)
      return [cell.colour === undefined ? cell.text : { text: cell.text, colour: cell.colour }, space]
    })
  })
}

function cellOf(cell: Cell): { text: string; colour?: Coloured['colour'] } {
  if (cell === null || cell === undefined) return { text: '-' }
  if (Array.isArray(cell)) return { text: harmless(cell.join(', ')) }
  if (typeof cell === 'object') return { ...(cell as Coloured), text: harmless((cell as Coloured).text) }
  return { text: harmless(String(cell)) }
}
