import type { TObject } from '@sinclair/typebox'
import { TypeCompiler } from '@sinclair/typebox/compiler'
import type { Fault } from '../errors.js'
import { collectFaults, declaredBeside, fault, faultsOfMasked, notDeclared, unknownWithin } from './faults.js'
import type { ParsedBody } from './json-body.js'
import { SUGGESTIONS_MAX } from './nearest-name.js'

/** Options of a body check from the query and headers: the mask, and whether unknown fields are faults. */
interface BodyOptions {
  mask: readonly string[] | undefined
  strict: boolean
}

/** `standsAlone`: the body is unreadable, so no other part of the request is reported. */
type BodyVerdict = { value: unknown } | { faults: Fault[]; standsAlone: boolean }

/** Makes the check of one operation's body by its schema. */
export function bodyCheck(schema: TObject): (parsed: ParsedBody, options: BodyOptions) => BodyVerdict {
  const compiled = TypeCompiler.Compile(schema)
  const faultsOf = (value: unknown, mask: BodyOptions['mask']) => {
    if (mask !== undefined) return faultsOfMasked(schema, value, mask)
    return compiled.Check(value) ? [] : collectFaults(schema, value, ['body'])
  }
  return (parsed, { mask, strict }) => {
    if (parsed.kind !== 'value') return { faults: parsed.faults, standsAlone: parsed.kind === 'refused' }
    const { value, forbidden } = parsed
    // A forbidden key is not reported as unknown as well.
    const unknown = strict ? unknownWithin(schema, value, mask).filter(loc => loc.at(-1) !== '__proto__') : []
    const extra = unknown.map((loc, index) => {
      return notDeclared(['body', ...loc], index < SUGGESTIONS_MAX ? declaredBeside(schema, loc) : [])
    })
    const found = [...faultsOf(value, mask), ...extra]
    if (found.length === 0 && forbidden.length === 0) return { value }
    const refused = forbidden.map(loc => fault('key_forbidden', ['body', ...loc]))
    return { faults: refused.length === 0 ? found : inPlace(schema, [...found, ...refused]), standsAlone: false }
  }
}

/** Sorts faults by the schema's field order and by list index. Faults of other fields come last. */
function inPlace(schema: TObject, faults: readonly Fault[]): Fault[] {
  const fields = Object.keys(schema.properties)
  const rank = ({ loc }: Fault) => (fields.indexOf(String(loc[1])) + fields.length + 1) % (fields.length + 1)
  const index = ({ loc }: Fault) => (typeof loc[2] === 'number' ? loc[2] : -1)
  return faults.toSorted((a, b) => rank(a) - rank(b) || index(a) - index(b))
}
