const [QUOTE, COMMA, COLON, BACKSLASH] = [0x22, 0x2c, 0x3a, 0x5c]
/** The character codes of `{` and `}`. Without the bit 0x20, they are the codes of `[` and `]`. */
const [BIT, OPENS, CLOSES] = [0x20, 0x7b, 0x7d]
const STRING_OR_BLANKS = /("[^"\\]*(?:\\.[^"\\]*)*")|\s+/g
const ESCAPED = /"(?:[^"\\]*\\.)+[^"\\]*"/g

/**
 * Returns the text of `definition` in a valid JSON body. If the body repeats this key, uses the last value. Removes blanks outside strings, and
 * writes escapes as `JSON.stringify` does. Does not change numbers.
 */
export function definitionTextIn(body: string): string {
  const { text, isCompact } = writtenIn(body)
  if (isCompact && !text.includes('\\')) return text
  return text.replace(STRING_OR_BLANKS, '$1').replace(ESCAPED, each => JSON.stringify(JSON.parse(each)))
}

function writtenIn(body: string): { text: string; isCompact: boolean } {
  let [depth, quoteAt, start, isCompact] = [0, 0, 0, true]
  let found = { text: '', isCompact }
  for (let at = 0; at < body.length; at++) {
    const unit = body.charCodeAt(at)
    if (unit === QUOTE) {
      quoteAt = at
      do at = body.indexOf('"', at + 1)
      while (isEscaped(body, at))
    } else if ((unit | BIT) === OPENS) depth++
    else if (unit === COLON && depth === 1) {
      start = JSON.parse(body.slice(quoteAt, at)) === 'definition' ? at + 1 : 0
      isCompact = true
    } else if (unit === COMMA || (unit | BIT) === CLOSES) {
      if (depth === 1 && start > 0) found = { text: body.slice(start, at), isCompact }
      if (unit !== COMMA) depth--
    } else if (unit <= 0x20) isCompact = false
  }
  return found
}

/** True if an odd number of backslashes precedes the position `at`. */
function isEscaped(text: string, at: number): boolean {
  let start = at
  while (text.charCodeAt(start - 1) === BACKSLASH) start--
  return (at - start) % 2 === 1
}
