import { Document, visit } from 'yaml'

/** Control and format characters and line ends other than "\n", which a reviewer would not see. */
const INVISIBLE = /(?!\n)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Noncharacter_Code_Point}]/u

/** A value as YAML text that readers of YAML 1.1 and 1.2 take for the same. Invisible characters are escaped. */
export function yamlText(value: unknown): string {
  const document = new Document(value, { aliasDuplicateObjects: false, compat: 'yaml-1.1' })
  visit(document, {
    Scalar: (_, scalar) => {
      if (typeof scalar.value === 'string' && INVISIBLE.test(scalar.value)) scalar.type = 'QUOTE_DOUBLE'
    },
  })
  const text = document.toString({ lineWidth: 0, blockQuote: 'literal' })
  return text.replaceAll(new RegExp(INVISIBLE, 'gu'), escaped).replace(/\n$/, '') // the caller adds the last one
}

/** A value as JSON text without invisible characters. */
export function jsonText(value: unknown): string {
  const escapedUnits = (found: string) => [...Array(found.length).keys()].map(at => escaped(found.charAt(at))).join('')
  return JSON.stringify(value, null, 2).replaceAll(new RegExp(INVISIBLE, 'gu'), escapedUnits)
}

/** Only quoted text has such characters. */
function escaped(character: string): string {
  const code = character.codePointAt(0) ?? 0
  return code > 0xffff ? `\\U${hex(code, 8)}` : `\\u${hex(code, 4)}`
}

function hex(code: number, digits: number): string {
  return code.toString(16).padStart(digits, '0')
}
