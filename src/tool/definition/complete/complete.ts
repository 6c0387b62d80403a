import { type CheckOptions, DEFAULT_AT, type DefinitionCheck, inspection } from '../check/check.js'
import type { DroppedOperation } from './bodies.js'
import type { Edit } from './edits.js'
import { MOST_EDITS, Repair, type RepairOptions } from './repair.js'

export interface CompletionOptions extends CheckOptions, RepairOptions {}

export interface Completion {
  /** The definition with the edits applied; shares what did not change with the one that was given. */
  definition: unknown
  edits: Edit[]
  dropped: DroppedOperation[]
  /** What the check says of `definition`: its faults are what cannot be repaired. */
  check: DefinitionCheck
}

/** A repair may uncover what another rule says of it. No real document was seen to need more than two rounds, no made one more than four. */
const MOST_ROUNDS = 5

/**
 * The smallest repair of a definition under which it is accepted, as a list of edits.
 *
 * - Swagger 2.0 is converted as a whole. A version that was written as a number becomes a text.
 * - A missing server is the one given, else the one that host and base path (a leftover of Swagger 2.0), or the first path or operation
 *   with a usable one, name. Servers that cannot be used are taken out or replaced by the one given; a relative one is resolved by it.
 * - A missing operationId is made of path and method; one that is there already gets a number. A missing summary is the first
 *   sentence of the path item's description, else "METHOD path".
 * - Placeholders are declared as texts; entries that hold nothing (null) are taken out; keys that are not methods become extensions;
 *   references in the way of Swagger 2.0, or by a bare name, lead to the component; a body of any type is JSON.
 * - With `dropsUnsupported`, operations whose body is not JSON are left out.
 *
 * What is not listed here is left as it is, and its faults are in the answer's `check`. Nothing is stored, and the definition that was
 * given is not changed. Completing a completed definition changes nothing.
 */
export function completeDefinition(definition: unknown, options: CompletionOptions = {}): Completion {
  const at = options.at ?? DEFAULT_AT
  const roomy: CheckOptions = { ...options, at, mostFaults: MOST_EDITS }
  const repair = new Repair(definition, { ...options, at })
  repair.servers.resolveRelative()
  let inspected = inspection(repair.document.value, roomy)
  if (repair.prepare(inspected.faults)) inspected = inspection(repair.document.value, roomy)
  for (let round = 0; round < MOST_ROUNDS && !inspected.check.ok; round++) {
    if (!repair.mend(inspected.faults)) break
    inspected = inspection(repair.document.value, roomy)
  }
  const { document, refusal } = repair
  const { dropped } = repair.bodies
  if (refusal) {
    const check: DefinitionCheck = { ok: false, faults: [refusal], warnings: inspected.check.warnings }
    return { definition, edits: [], dropped, check }
  }
  return { definition: document.value, edits: document.edits, dropped, check: inspected.check }
}
