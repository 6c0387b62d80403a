import type { TObject } from '@sinclair/typebox'
import type { Fault } from '../errors.js'
import { collectFaults, fault, faultsOfMasked, unknownWithin } from './faults.js'
import type { ParsedBody } from './json-body.js'

/** Options of a body check from the query and headers: the mask, and whether unknown fields are faults. */
interface BodyOptions {
  mask: readonly string[] | undefined
  strict: boolean
}

/** `standsAlone`: the body is unreadable, so no other part of the request is reported. */
type BodyVerdict = { value: unknown } | { faults: Fault[]; standsAlone: boolean }

/** Makes the check of one operation's body by its schema. */
export function bodyCheck(schema: TObject): (parsed: ParsedBody, options: BodyOptions) => BodyVerdict {
  return (parsed, { mask, strict }) => {
    if (parsed.kind !== 'value') return { faults: parsed.faults, standsAlone: parsed.kind === 'refused' }
    const { value, forbidden } = parsed
    const found = mask === undefined ? collectFaults(schema, value, ['body']) : faultsOfMasked(schema, value, mask)
    // A forbidden key is not reported as unknown as well.
    const unknown = strict ? unknownWithin(schema, value, mask).filter(loc => loc.at(-1) !== '__proto__') : []
    const faults = [
      ...found,
      ...unknown.map(loc => fault('extra_forbidden', ['body', ...loc])),
      ...forbidden.map(loc => fault('key_forbidden', ['body', ...loc])),
    ]
    return faults.length === 0 ? { value } : { faults, standsAlone: false }
  }
}
