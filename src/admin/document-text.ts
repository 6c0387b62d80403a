import { Document, Scalar, visit } from 'yaml'
import { withoutMarks } from './written-numbers.js'

/*
 * Writes documents and definitions as text that any reader of JSON or YAML understands, also YAML 1.1. A plain scalar starts with a letter,
 * has no special character, and is no word that a reader takes for another value. All other texts are quoted.
 */

/**
 * Control and format characters, line ends other than "\
 * ", and characters that no text should contain.
 */
const INVISIBLE = /(?!\n)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Noncharacter_Code_Point}]/gu
const PLAIN = /^\p{L}[\p{L}\p{M}\p{N}_.,;()'/@+!?=-]*(?: [\p{L}\p{M}\p{N}_.,;()'/@+!?=-]+)*$/u
const OTHER_VALUES = /^(?:y|yes|n|no|on|off|true|false|null|nan|inf)$/i
/** Texts of several lines that a YAML block can hold. */
const BLOCK = /^\S.*\n/

/** A value as YAML text. Marked numbers keep the form in which they were read. */
export function yamlText(value: unknown): string {
  const document = new Document(value, { aliasDuplicateObjects: false })
  visit(document, {
    Scalar: (key, scalar) => {
      if (typeof scalar.value === 'string') scalar.type = styleOf(scalar.value, key === 'key')
    },
  })
  const text = document.toString({
    lineWidth: 0,
    blockQuote: 'literal',
    doubleQuotedMinMultiLineLength: Number.MAX_SAFE_INTEGER,
  })
  // Only quoted text has such characters, so each can be escaped. The caller adds the last newline.
  return withoutMarks(text.replace(INVISIBLE, yamlEscape)).replace(/\n$/, '')
}

/** A value as JSON text. */
export function jsonDocumentText(value: unknown): string {
  return withoutMarks(JSON.stringify(value, null, 2)).replace(INVISIBLE, jsonEscape)
}

function styleOf(text: string, isKey: boolean): Scalar.Type {
  if (PLAIN.test(text) && !OTHER_VALUES.test(text)) return Scalar.PLAIN
  return !isKey && BLOCK.test(text) && text.search(INVISIBLE) < 0 ? Scalar.BLOCK_LITERAL : Scalar.QUOTE_DOUBLE
}

function yamlEscape(character: string): string {
  const code = character.codePointAt(0) ?? 0
  return code > 0xffff ? `\\U${hex(code, 8)}` : `\\u${hex(code, 4)}`
}

function jsonEscape(character: string): string {
  return character.length === 1
    ? yamlEscape(character)
    : [...Array(2).keys()].map(unit => `\\u${hex(character.charCodeAt(unit), 4)}`).join('')
}

function hex(code: number, digits: number): string {
  return code.toString(16).padStart(digits, '0')
}
