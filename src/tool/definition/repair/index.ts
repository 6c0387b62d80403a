import { type CheckOptions, DEFAULT_AT, type DefinitionCheck, inspection } from '../check/check.js'
import type { DroppedOperation } from './bodies.js'
import type { Edit } from './edits.js'
import { MOST_EDITS, type RepairOptions, Repairs } from './rules.js'

export interface RepairOptionsAndCheck extends CheckOptions, RepairOptions {}

/** A definition with the edits that repair it. */
export interface Repair {
  /** The definition with the edits applied. */
  definition: unknown
  edits: Edit[]
  dropped: DroppedOperation[]
  /** What the check says of `definition`: its faults are what cannot be repaired. */
  check: DefinitionCheck
}

/** A repair may uncover what another rule says of it. No real document was seen to need more than two rounds, no made one more than four. */
const MOST_ROUNDS = 5

/**
 * The smallest repair of a definition, as a list of edits. Only what is certain is repaired:
 *
 * - Swagger 2.0 is converted as a whole. A version that was written as a number becomes a text.
 * - A missing server is the one given, else that of host and base path (a leftover of Swagger 2.0). Servers that cannot be used are
 *   taken out or replaced by the one given; a relative one is resolved by it.
 * - A missing operationId is made of path and method; one that is there already gets a number. A missing summary is the first
 *   sentence of the path item's description, else "METHOD path".
 * - A placeholder is renamed as the declared parameter that it means; one that means none is declared as a text. Entries that hold
 *   nothing (null) are taken out; keys of a path that cannot be operations become extensions; references in the way of Swagger 2.0,
 *   or by a bare name, lead to the component; a body of any type is JSON.
 * - With `dropsUnsupported`, operations whose body is not JSON are left out.
 *
 * What is not listed here is left as it is, and its faults are in the answer's `check`: among them misspelt methods and bodies without
 * content. Nothing is stored, and the definition that was given is not changed. To repair a repaired definition changes nothing.
 */
export function repairDefinition(definition: unknown, options: RepairOptionsAndCheck = {}): Repair {
  const at = options.at ?? DEFAULT_AT
  const roomy: CheckOptions = { ...options, at, mostFaults: MOST_EDITS }
  const repairs = new Repairs(definition, { ...options, at })
  repairs.servers.resolveRelative()
  let inspected = inspection(repairs.document.value, roomy)
  if (repairs.prepare(inspected.faults)) inspected = inspection(repairs.document.value, roomy)
  for (let round = 0; round < MOST_ROUNDS; round++) {
    if (!repairs.repair(inspected.faults, inspected.check.warnings)) break
    inspected = inspection(repairs.document.value, roomy)
  }
  const { document, refusal } = repairs
  const { dropped } = repairs.bodies
  if (refusal) {
    const check: DefinitionCheck = { ok: false, faults: [refusal], warnings: inspected.check.warnings }
    return { definition, edits: [], dropped, check }
  }
  return { definition: document.value, edits: document.edits, dropped, check: inspected.check }
}
