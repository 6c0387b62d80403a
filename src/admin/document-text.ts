import { Document, visit } from 'yaml'

/** Control and format characters, and line separators other than "\n". A reviewer would not see them. */
const INVISIBLE = /(?!\n)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Noncharacter_Code_Point}]/u

/** A value as YAML text that YAML 1.1 and 1.2 parsers read alike. Invisible characters are escaped. */
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

/** A value as JSON text. Invisible characters are escaped. */
export function jsonText(value: unknown): string {
  const escapedUnits = (found: string) => [...Array(found.length).keys()].map(at => escaped(found.charAt(at))).join('')
  return JSON.stringify(value, null, 2).replaceAll(new RegExp(INVISIBLE, 'gu'), escapedUnits)
}

/** An escape sequence for a character. Escapes are valid in both formats, because invisible characters occur only in quoted text. */
function escaped(character: string): string {
  const code = character.codePointAt(0) ?? 0
  return code > 0xffff ? `\\U${hex(code, 8)}` : `\\u${hex(code, 4)}`
}

function hex(code: number, digits: number): string {
  return code.toString(16).padStart(digits, '0')
}
