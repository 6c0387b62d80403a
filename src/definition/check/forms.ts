import { type Findings, type Place, quote, show } from './findings.js'
import { isReference } from './references.js'

/** The form that a keyword's value must have, in words, and a function that guesses the intended value. */
export interface Form {
  readonly words: string
  fits(value: unknown): boolean
  meant(value: unknown): unknown
}

const MEANT_SHOWN = 5
/** Longer texts are not guessed at. */
const MEANT_CHARACTERS = 256
const isText = (value: unknown) => typeof value === 'string'
const isNumber = (value: unknown) => typeof value === 'bigint' || Number.isFinite(value)
const isFlag = (value: unknown) => typeof value === 'boolean'
const isCount = (value: unknown) => Number.isSafeInteger(value) && (value as number) >= 0

/** Returns the boolean that a word or number stands for, if any. */
export function flagMeant(value: unknown): boolean | undefined {
  const word = typeof value === 'string' || typeof value === 'number' ? String(value).trim() : ''
  if (/^(?:true|yes|y|on|1)$/i.test(word)) return true
  return /^(?:false|no|n|off|0)$/i.test(word) ? false : undefined
}

/** Returns the number that a text stands for, if any. */
export function numberMeant(value: unknown): number | undefined {
  const isNumeric =
    typeof value === 'string' &&
    value.length <= MEANT_CHARACTERS &&
    /^\s*[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?\s*$/i.test(value)
  return isNumeric ? Number(value) : undefined
}

const flag: Form = { words: 'true or false', fits: isFlag, meant: flagMeant }
const text: Form = {
  words: 'a text',
  fits: isText,
  meant: value => (isNumber(value) || isFlag(value) ? String(value) : undefined),
}
const number: Form = { words: 'a number', fits: isNumber, meant: numberMeant }
const bound: Form = {
  words: 'a number or a flag',
  fits: value => isNumber(value) || isFlag(value),
  meant: value => numberMeant(value) ?? flagMeant(value),
}
const count: Form = {
  words: 'an integer from 0 on',
  fits: isCount,
  meant: value => [numberMeant(value)].find(isCount),
}
const listed = (value: unknown) => {
  if (typeof value === 'string') return value.length <= MEANT_CHARACTERS ? value.split(/\s*[,|]\s*/) : undefined
  return typeof value === 'object' ? Object.values(value ?? {}) : undefined
}
const texts: Form = {
  words: 'a list of texts',
  fits: value => Array.isArray(value) && value.every(isText),
  meant: value => [listed(value)].find(each => each?.every(isText)),
}
const values: Form = {
  words: 'a list of values',
  fits: value => Array.isArray(value) && value.length > 0,
  meant: value => [listed(value)].find(each => each !== undefined && each.length > 0),
}

function formsOf(...groups: [Form, string][]): ReadonlyMap<string, Form> {
  return new Map(groups.flatMap(([form, keys]) => keys.split(' ').map(key => [key, form] as const)))
}

export const SCHEMA_FORMS = formsOf(
  [flag, 'nullable readOnly writeOnly deprecated uniqueItems'],
  [text, 'title description format pattern contentEncoding contentMediaType'],
  [number, 'minimum maximum'],
  [bound, 'exclusiveMinimum exclusiveMaximum'],
  [count, 'minLength maxLength minItems maxItems minProperties maxProperties minContains maxContains'],
  [{ ...number, words: 'a number above 0', fits: value => isNumber(value) && (value as number) > 0 }, 'multipleOf'],
  [texts, 'required'],
  [values, 'enum'],
)
export const PARAMETER_FORMS = formsOf(
  [flag, 'required deprecated explode allowReserved allowEmptyValue'],
  [text, 'description style'],
)
export const BODY_FORMS = formsOf([flag, 'required'], [text, 'description'])
export const OPERATION_FORMS = formsOf([flag, 'deprecated'])

/** Warns `value_ignored` about values in a form that nothing reads, and suggests the intended value. `null` counts as absent. */
export function warnForms(
  holder: Record<string, unknown>,
  forms: ReadonlyMap<string, Form>,
  place: Place,
  findings: Findings,
): void {
  for (const key in holder) {
    const form = forms.get(key)
    if (form !== undefined) warnForm(key, holder[key], form, place, findings)
  }
}

/** Warns `value_ignored` about one value. */
export function warnForm(key: string, value: unknown, form: Form, place: Place, findings: Findings): void {
  if (value === null || value === undefined || form.fits(value) || isReference(value)) return
  const meant = form.meant(value)
  const hint = meant === undefined ? '' : `; did you mean ${shown(meant)}?`
  const held =
    form === texts && Array.isArray(value) ? `holds ${show(value.find(each => !isText(each)))}` : `is ${show(value)}`
  let msg = `${quote(key)} ${held}, and ${form.words} is wanted: it is ignored${hint}`
  if (form === texts && (typeof value === 'boolean' || flagMeant(value) !== undefined)) {
    if (value === false) return
    const name = place.up?.key === 'properties' ? show(place.key) : '...'
    msg = `"required" lists the names of properties: did you mean "required": [${name}] in the object around this one?`
  }
  findings.warn('value_ignored', msg, place, key)
}

function shown(value: unknown): string {
  if (!Array.isArray(value)) return show(value)
  return `[${value.slice(0, MEANT_SHOWN).map(show).join(', ')}${value.length > MEANT_SHOWN ? ', ...' : ''}]`
}
