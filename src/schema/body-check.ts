import { Kind, type TObject, type TSchema } from '@sinclair/typebox'
import type { Fault } from '../errors.js'
import { type CompiledBody, compileBody, fault, faultsOfMasked, unknownWithin } from './faults.js'
import { exceedsDepth, type ParsedBody, tooDeep } from './json-body.js'
import { innerSchema } from './vocabulary.js'

/** What a client may say of its body elsewhere in the request. */
export interface BodyOptions {
  /** The fields that are looked at; undefined for all. */
  mask: readonly string[] | undefined
  /** Unknown fields are faults. */
  strict: boolean
}

/** Of a body that `standsAlone` no other part of the request is reported: it could not be read. */
export type BodyVerdict = { value: unknown } | { faults: Fault[]; standsAlone: boolean }

/** The check of one operation's body: its schema, and the nesting of everything but free-form fields. */
export class BodyCheck {
  readonly #schema: TObject
  readonly #depthMax: number
  readonly #compiled: CompiledBody
  readonly #freeForm: string[]

  constructor(schema: TObject, depthMax: number) {
    this.#schema = schema
    this.#depthMax = depthMax
    this.#compiled = compileBody(schema)
    this.#freeForm = freeFormFields(schema)
  }

  verdict(parsed: ParsedBody, { mask, strict }: BodyOptions): BodyVerdict {
    if (parsed.kind !== 'value') return { faults: parsed.faults, standsAlone: parsed.kind === 'refused' }
    const { value } = parsed
    if (exceedsDepth(value, this.#depthMax, ...this.#freeForm)) return { faults: [tooDeep()], standsAlone: true }
    const faults = mask === undefined ? this.#compiled.faults(value) : faultsOfMasked(this.#schema, value, mask)
    const unknown = strict ? unknownWithin(this.#schema, value, mask) : []
    const forbidden = unknown.map(loc => fault('extra_forbidden', ['body', ...loc]))
    if (faults.length + forbidden.length === 0) return { value }
    return { faults: [...faults, ...forbidden], standsAlone: false }
  }
}

function freeFormFields(body: TObject): string[] {
  return Object.keys(body.properties).filter(name => {
    const schema = body.properties[name] as TSchema
    return (schema[Kind] === 'Nullable' ? innerSchema(schema) : schema)[Kind] === 'FreeForm'
  })
}
