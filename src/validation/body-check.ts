import type { TObject } from '@sinclair/typebox'
import type { Fault } from '../errors.js'
import { collectFaults, fault, faultsOfMasked, unknownWithin } from './faults.js'
import type { ParsedBody } from './json-body.js'

/** `standsAlone`: the body is unreadable, so no other part of the request is reported. */
type BodyVerdict = { value: unknown } | { faults: Fault[]; standsAlone: boolean }

/** Makes the check of one operation's body by its schema, for a mask, and with unknown fields as faults if `strict`. */
export function bodyCheck(schema: TObject) {
  return (
    parsed: ParsedBody,
    { mask, strict }: { mask: readonly string[] | undefined; strict: boolean },
  ): BodyVerdict => {
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
