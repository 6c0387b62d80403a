/** What may stand at a place: a value, a value or the end of its list, a key, and so on. */
type Expected = 'value' | 'valueOrEnd' | 'key' | 'keyOrEnd' | 'colon' | 'commaOrEnd' | 'nothing'

const keyPlaces: readonly Expected[] = ['key', 'keyOrEnd']
const scalar = /true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y
const ESCAPED_UNIT_LENGTH = '\\u0000'.length

/**
 * The offset, in UTF-16 units, at which a text stops being JSON; -1 when it is JSON. `JSON.parse` names it only in the
 * words of its message, which change with the version of Node and often leave it out. Iterative: nesting costs no stack.
 * Blanks and escapes, of which a small number of nodes may have millions, cost a comparison or two each: no text is made for them.
 */
export function offsetOfSyntaxError(text: string): number {
  const open: ('[' | '{')[] = []
  let expected: Expected = 'value'
  for (let at = 0; at < text.length; ) {
    at = endOfBlanks(text, at)
    if (at === text.length) break
    const next: Expected | 'string' | 'scalar' | undefined = step(text.charAt(at), expected, open)
    if (next === undefined) return at
    if (next === 'string' || next === 'scalar') {
      const end: number = next === 'string' ? endOfString(text, at) : endOfScalar(text, at)
      if (end < 0) return -1 - end
      at = end
      expected = keyPlaces.includes(expected) ? 'colon' : afterValue(open)
    } else {
      at++
      expected = next
    }
  }
  return expected === 'nothing' ? -1 : text.length
}

/** What a character leads to: the next expectation, a longer token to read, or nothing when it may not stand there. */
function step(character: string, expected: Expected, open: ('[' | '{')[]): Expected | 'string' | 'scalar' | undefined {
  const inside = open.at(-1)
  switch (expected) {
    case 'key':
      return character === '"' ? 'string' : undefined
    case 'keyOrEnd':
      return character === '}' ? close(open) : step(character, 'key', open)
    case 'colon':
      return character === ':' ? 'value' : undefined
    case 'commaOrEnd':
      if (character === ',') return inside === '{' ? 'key' : 'value'
      return character === (inside === '{' ? '}' : ']') ? close(open) : undefined
    case 'valueOrEnd':
      return character === ']' ? close(open) : step(character, 'value', open)
    case 'value':
      if (character === '"') return 'string'
      if (character !== '[' && character !== '{') return 'scalar'
      open.push(character)
      return character === '[' ? 'valueOrEnd' : 'keyOrEnd'
    case 'nothing':
      return undefined
  }
}

function close(open: ('[' | '{')[]): Expected {
  open.pop()
  return afterValue(open)
}

function afterValue(open: readonly string[]): Expected {
  return open.length === 0 ? 'nothing' : 'commaOrEnd'
}

/** The offset behind a string, or -1 minus the offset of what is wrong in it. */
function endOfString(text: string, start: number): number {
  for (let at = start + 1; at < text.length; at++) {
    const unit = text.charCodeAt(at)
    if (unit === 0x22) return at + 1
    if (unit < 0x20) return -1 - at
    if (unit !== 0x5c) continue
    if (isShortEscape(text.charCodeAt(at + 1))) at += 1
    else if (isEscapedUnit(text, at)) at += ESCAPED_UNIT_LENGTH - 1
    else return -1 - at
  }
  return -1 - text.length
}

/** Whether it is one of `"\\/bfnrt`. Compared one by one: a look-up in a set takes half as long again. */
function isShortEscape(unit: number): boolean {
  if (unit === 0x22 || unit === 0x5c || unit === 0x2f || unit === 0x62) return true
  return unit === 0x66 || unit === 0x6e || unit === 0x72 || unit === 0x74
}

function isEscapedUnit(text: string, start: number): boolean {
  if (text.charCodeAt(start + 1) !== 0x75) return false
  for (let at = start + 2; at < start + ESCAPED_UNIT_LENGTH; at++) if (!isHexDigit(text.charCodeAt(at))) return false
  return true
}

/** False for NaN, which is what stands behind the end of a text. */
function isHexDigit(unit: number): boolean {
  return (unit >= 0x30 && unit <= 0x39) || (unit >= 0x41 && unit <= 0x46) || (unit >= 0x61 && unit <= 0x66)
}

/** The offset behind the blanks that stand at a place. */
function endOfBlanks(text: string, start: number): number {
  for (let at = start; at < text.length; at++) {
    const unit = text.charCodeAt(at)
    if (unit > 0x20 || (unit !== 0x20 && unit !== 0x0a && unit !== 0x0d && unit !== 0x09)) return at
  }
  return text.length
}

/** The offset behind a number or a word, or -1 minus its offset when it is neither. */
function endOfScalar(text: string, start: number): number {
  scalar.lastIndex = start
  const found = scalar.exec(text)
  return found === null ? -1 - start : start + found[0].length
}
