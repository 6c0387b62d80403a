import { Document, visit } from 'yaml'

/** Characters that a reviewer cannot see, such as control characters, format characters and unusual line separators. */
const INVISIBLE = /(?!\n)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Noncharacter_Code_Point}]/u

/** Formats a value as YAML that parsers of YAML 1.1 and 1.2 read in the same way. Escapes invisible characters. */
export function yamlText(value: unknown): string {
  const document = new Document(value, { aliasDuplicateObjects: false, compat: 'yaml-1.1' })
  visit(document, {
    Scalar: (_, scalar) => {
      if (typeof scalar.value === 'string' && INVISIBLE.test(scalar.value)) scalar.type = 'QUOTE_DOUBLE'
    },
  })
  const text = document.toString({ lineWidth: 0, blockQuote: 'literal' })
  return text.replaceAll(new RegExp(INVISIBLE, 'gu'), escaped).replace(/\n$/, '') // the caller adds the final newline
}

/** Formats a value as JSON. Escapes invisible characters. */
export function jsonText(value: unknown): string {
  const escapedUnits = (found: string) => [...Array(found.length).keys()].map(at => escaped(found.charAt(at))).join('')
  return JSON.stringify(value, null, 2).replaceAll(new RegExp(INVISIBLE, 'gu'), escapedUnits)
}

/** Returns the escape sequence of a character in YAML, or of a UTF-16 code unit in JSON. Valid only in quoted text. */
function escaped(character: string): string {
  const code = character.codePointAt(0) ?? 0
  return code > 0xffff ? `\\U${hex(code, 8)}` : `\\u${hex(code, 4)}`
}

function hex(code: number, digits: number): string {
  return code.toString(16).padStart(digits, '0')
}
