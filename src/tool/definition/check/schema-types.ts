import { type Findings, type Place, quote } from './findings.js'

const TYPES = ['string', 'number', 'integer', 'boolean', 'array', 'object', 'null']

/** Names of types in other languages. */
const OTHER_NAMES: Record<string, string> = {
  str: 'string',
  text: 'string',
  char: 'string',
  varchar: 'string',
  uuid: 'string',
  date: 'string',
  datetime: 'string',
  'date-time': 'string',
  timestamp: 'string',
  time: 'string',
  email: 'string',
  uri: 'string',
  url: 'string',
  enum: 'string',
  binary: 'string',
  byte: 'string',
  file: 'string',
  int: 'integer',
  int32: 'integer',
  int64: 'integer',
  long: 'integer',
  short: 'integer',
  bigint: 'integer',
  float: 'number',
  double: 'number',
  decimal: 'number',
  numeric: 'number',
  real: 'number',
  bool: 'boolean',
  list: 'array',
  tuple: 'array',
  set: 'array',
  dict: 'object',
  map: 'object',
  hash: 'object',
  json: 'object',
  struct: 'object',
  none: 'null',
  nil: 'null',
  undefined: 'null',
}

/** The type of JSON Schema that a name means, if it means one. */
export function knownType(name: string): string | undefined {
  const text = name.trim().toLowerCase()
  return TYPES.includes(text) ? text : OTHER_NAMES[text]
}

/**
 * `schema_type_unknown`: a type that JSON Schema does not have constrains nothing, and is left out of the function. A word such as
 * `typ` for the keyword is one too.
 */
export function warnUnknownType(schema: Record<string, unknown>, place: Place, findings: Findings): void {
  const { type } = schema
  if (type === undefined) {
    const typo = ['typ', 'Type', 'TYPE', 'types', 'tpye'].find(
      key => typeof schema[key] === 'string' && knownType(schema[key]) !== undefined,
    )
    if (typo !== undefined)
      findings.warn('schema_type_unknown', `${quote(typo)} is not a keyword; did you mean "type"?`, place, typo)
    return
  }
  const names = Array.isArray(type) ? type : [type]
  for (const [i, name] of names.entries()) {
    if (TYPES.includes(name)) continue
    const tail = Array.isArray(type) ? ['type', i] : ['type']
    findings.warn('schema_type_unknown', () => unknownType(name), place, ...tail)
  }
}

function unknownType(name: unknown): string {
  if (typeof name !== 'string')
    return 'a type is one of the words string, number, integer, boolean, array, object and null'
  const parts = name.slice(0, 100).split('|').map(knownType)
  const meant = parts.length > 1 && parts.every(each => each !== undefined) ? JSON.stringify(parts) : parts[0]
  const hint = meant === undefined ? 'it is read as "any value"' : `did you mean \`${meant}\`?`
  return `there is no type ${quote(name)}; ${hint}`
}
