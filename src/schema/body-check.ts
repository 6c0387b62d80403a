import type { TObject } from '@sinclair/typebox'
import type { Fault, Loc } from '../errors.js'
import {
  type CompiledBody,
  compileBody,
  declaredBeside,
  fault,
  faultsOfMasked,
  notDeclared,
  unknownWithin,
} from './faults.js'
import type { ParsedBody } from './json-body.js'
import { SUGGESTIONS_MAX } from './nearest-name.js'

/** What a client may say of its body elsewhere in the request. */
export interface BodyOptions {
  /** The fields that are looked at; undefined for all. */
  mask: readonly string[] | undefined
  /** Unknown fields are faults. */
  strict: boolean
}

/** Of a body that `standsAlone` no other part of the request is reported: it could not be read. */
export type BodyVerdict = { value: unknown } | { faults: Fault[]; standsAlone: boolean }

/** The check of one operation's body by its schema. */
export class BodyCheck {
  readonly #schema: TObject
  readonly #compiled: CompiledBody

  constructor(schema: TObject) {
    this.#schema = schema
    this.#compiled = compileBody(schema)
  }

  verdict(parsed: ParsedBody, { mask, strict }: BodyOptions): BodyVerdict {
    if (parsed.kind !== 'value') return { faults: parsed.faults, standsAlone: parsed.kind === 'refused' }
    const { value, forbidden } = parsed
    const faults = mask === undefined ? this.#compiled.faults(value) : faultsOfMasked(this.#schema, value, mask)
    const unknown = strict ? unknownWithin(this.#schema, value, mask) : []
    const extra = unknown.filter(loc => !isForbidden(loc)).map((loc, index) => this.#unknownField(loc, index))
    const found = [...faults, ...extra]
    if (forbidden.length > 0)
      return { faults: inPlace(this.#schema, [...found, ...forbidden.map(forbiddenKey)]), standsAlone: false }
    return found.length === 0 ? { value } : { faults: found, standsAlone: false }
  }

  /** Which field was meant is looked for only of the first ones: it takes longer than everything else. */
  #unknownField(loc: Loc, index: number): Fault {
    return notDeclared(['body', ...loc], index < SUGGESTIONS_MAX ? declaredBeside(this.#schema, loc) : [])
  }
}

function forbiddenKey(loc: Loc): Fault {
  return fault('key_forbidden', ['body', ...loc])
}

/** A key that is refused by its name is not told to be unknown, too. */
function isForbidden(loc: Loc): boolean {
  return loc.at(-1) === '__proto__'
}

/** Faults in the order in which the schema declares the fields that they are in, in a list by index; those of other fields behind. */
function inPlace(schema: TObject, faults: readonly Fault[]): Fault[] {
  const fields = Object.keys(schema.properties)
  const rank = ({ loc }: Fault) => (fields.indexOf(String(loc[1])) + fields.length + 1) % (fields.length + 1)
  const index = ({ loc }: Fault) => (typeof loc[2] === 'number' ? loc[2] : -1)
  return faults.toSorted((a, b) => rank(a) - rank(b) || index(a) - index(b))
}
