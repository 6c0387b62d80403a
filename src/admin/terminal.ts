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

/** What one cell of a table shows; null and undefined as a dash. */
export type Cell = Piece | number | null | undefined

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

const GAP = '  '
const CUT = '…'
const LEAST_WIDTH = 8

/**
 * Rows in columns below each other. With `width`, the columns of the terminal, the widest columns are cut until a row fits on
 * a line; without it nothing is cut. `wholeColumns` are the indexes of columns that never are.
 */
export function tableLines(
  rows: readonly (readonly Cell[])[],
  width?: number,
  wholeColumns: readonly number[] = [],
): Piece[][] {
  const cells = rows.map(row => row.map(cellOf))
  const widths = widthsOf(cells)
  if (width !== undefined) fit(widths, width, new Set(wholeColumns))
  return cells.map(row => {
    const last = row.findLastIndex(cell => cell.text !== '')
    return row.slice(0, last + 1).flatMap((cell, index): Piece[] => {
      const text = cut(cell.text, widths[index] ?? 0)
      const space = index === last ? '' : ' '.repeat((widths[index] ?? 0) - shownWidth(text)) + GAP
      return [cell.colour === undefined ? text : { text, colour: cell.colour }, space]
    })
  })
}

/** How many columns, from the left, fit into `width` when each is cut as far as it may be; at least one. */
export function columnsThatFit(
  rows: readonly (readonly Cell[])[],
  width: number,
  wholeColumns: readonly number[] = [],
): number {
  const least = widthsOf(rows.map(row => row.map(cellOf))).map((one, index) =>
    wholeColumns.includes(index) ? one : Math.min(one, LEAST_WIDTH),
  )
  let sum = -GAP.length
  const first = least.findIndex(one => {
    sum += GAP.length + one
    return sum > width
  })
  return first === -1 ? least.length : Math.max(first, 1)
}

function widthsOf(rows: readonly (readonly { text: string }[])[]): number[] {
  const widths: number[] = []
  for (const row of rows) {
    for (const [index, cell] of row.entries()) widths[index] = Math.max(widths[index] ?? 0, shownWidth(cell.text))
  }
  return widths
}

function cellOf(cell: Cell): { text: string; colour?: Coloured['colour'] } {
  if (cell === null || cell === undefined) return { text: '-' }
  if (typeof cell === 'object') return { ...cell, text: harmless(cell.text) }
  return { text: harmless(String(cell)) }
}

function fit(widths: number[], width: number, whole: ReadonlySet<number>): void {
  const gaps = GAP.length * (widths.length - 1)
  for (;;) {
    const excess = widths.reduce((sum, one) => sum + one, gaps) - width
    const cuttable = widths.map((one, index) => (whole.has(index) ? 0 : one))
    const widest = cuttable.indexOf(Math.max(...cuttable))
    const now = cuttable[widest] ?? 0
    if (excess <= 0 || now <= LEAST_WIDTH) return
    // Down to the next widest, so that two long columns share what is missing.
    const next = Math.max(LEAST_WIDTH, ...cuttable.filter(one => one < now))
    widths[widest] = Math.max(now - excess, Math.min(next, now - 1))
  }
}

function cut(text: string, width: number): string {
  if (shownWidth(text) <= width) return text
  let kept = ''
  for (const character of text) {
    if (shownWidth(kept + character) > width - 1) break
    kept += character
  }
  return kept + CUT
}

/** Marks and joiners take no column of their own. */
const NO_WIDTH = /[\p{M}\p{Cf}]/gu
/** What a terminal draws two columns wide: East Asian scripts, full-width forms and emoji. */
const WIDE =
  /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]|\p{Emoji_Presentation}/gu

/** How many columns of a terminal a text takes. */
export function shownWidth(text: string): number {
  const visible = text.replace(NO_WIDTH, '')
  return [...visible].length + (visible.match(WIDE)?.length ?? 0)
}

/** Rows as CSV (RFC 4180): the values exactly as they are, lists as JSON. */
export function csvText(rows: readonly (readonly unknown[])[]): string {
  const field = (value: unknown) => {
    const text =
      value === null || value === undefined ? '' : typeof value === 'object' ? JSON.stringify(value) : String(value)
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
  }
  return rows.map(row => row.map(field).join(',')).join('\r\n')
}
