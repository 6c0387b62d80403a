/*
 * Escapes text for a terminal. Names, prompts and emails come from other people. Control characters in such text could imitate table rows, set
 * the window title or reverse the order of text.
 */

/** A cell of a table. Null and undefined are shown as a dash, and lists are joined with commas. */
export type Cell = string | number | readonly (string | number)[] | null | undefined

/** Control characters, characters that change the direction of text, and separators that some terminals treat as line ends. */
const CONTROL = /[\p{Cc}\p{Bidi_Control}\p{Zl}\p{Zp}]/gu

/** Escapes control characters, including newlines, as in JSON: `\n`, `\u001b`. */
export function harmless(text: string): string {
  return text.replace(CONTROL, found => {
    const json = JSON.stringify(found).slice(1, -1)
    return json === found ? `\\u${found.charCodeAt(0).toString(16).padStart(4, '0')}` : json
  })
}

/** Like `harmless`, but keeps newlines. */
export function harmlessLines(text: string): string {
  return text.split('\n').map(harmless).join('\n')
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
