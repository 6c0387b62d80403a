const VALUE = '[{"s'

/** The offset, in UTF-16 units, at which a text stops being JSON; -1 when it is JSON. `JSON.parse` often omits it. */
export function offsetOfSyntaxError(text: string): number {
  const open: string[] = []
  let allowed = VALUE // the tokens that may come, `s` for a number or a word
  let isKey = false
  for (let at = endOf(blanks, text, 0); at < text.length; at = endOf(blanks, text, at)) {
    const token = '[]{},:"'.includes(text.charAt(at)) ? text.charAt(at) : 's'
    if (!allowed.includes(token)) return at
    if (token === '"') {
      const end = endOfString(text, at)
      if (end < 0) return -1 - end
      at = end
    } else if (token === 's') {
      const end = endOf(scalar, text, at)
      if (end < 0) return at
      at = end
    } else at++
    if (token === '[' || token === '{') {
      open.push(token)
      isKey = token === '{'
      allowed = isKey ? '"}' : `${VALUE}]`
    } else if (token === ',') {
      isKey = open.at(-1) === '{'
      allowed = isKey ? '"' : VALUE
    } else if (token === ':' || (token === '"' && isKey)) {
      allowed = token === ':' ? VALUE : ':'
      isKey = false
    } else {
      if (token === ']' || token === '}') open.pop()
      isKey = false
      allowed = open.length === 0 ? '' : open.at(-1) === '{' ? ',}' : ',]'
    }
  }
  return allowed === '' ? -1 : text.length
}

const blanks = /[ \t\n\r]*/y
const scalar = /true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y
// biome-ignore lint/suspicious/noControlCharactersInRegex: JSON allows none in a string
const unescaped = /[^"\\\u0000-\u001f]*/y
const escaped = /\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})/y

/** Where what a sticky pattern matches at a place ends; -1 where it does not match. No text is made for it. */
function endOf(pattern: RegExp, text: string, at: number): number {
  pattern.lastIndex = at
  return pattern.test(text) ? pattern.lastIndex : -1
}

/** The offset behind a string, or -1 minus the offset of what is wrong in it. */
function endOfString(text: string, start: number): number {
  for (let at = start + 1; ; ) {
    at = endOf(unescaped, text, at)
    if (text.charAt(at) === '"') return at + 1
    const end = endOf(escaped, text, at)
    if (end < 0) return -1 - at
    at = end
  }
}
