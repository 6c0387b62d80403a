import { type CheckOptions, DEFAULT_AT, type DefinitionCheck, inspection } from '../check/check.js'
import type { DroppedOperation } from './bodies.js'
import type { Edit } from './edits.js'
import { MOST_EDITS, type RepairOptions, Repairs } from './rules.js'

export interface RepairOptionsAndCheck extends CheckOptions, RepairOptions {}

/** A repaired definition and its edits. */
export interface Repair {
  definition: unknown
  edits: Edit[]
  dropped: DroppedOperation[]
  /** The check of `definition`. Its faults could not be repaired. */
  check: DefinitionCheck
}

/** A repair can uncover another fault. Real documents needed at most two rounds, made ones four. */
const MOST_ROUNDS = 5

/**
 * Repairs a definition and returns the list of edits. Only unambiguous faults are repaired. The repair
 *
 * - converts Swagger 2.0 as a whole, and quotes a version written as a number;
 * - adds a missing server: `server`, else host and base path (left over from Swagger 2.0). It removes unusable servers or replaces
 *   them by `server`, and resolves relative ones with it;
 * - makes a missing operationId from path and method, and numbers a repeated one. A missing summary becomes the first sentence of the
 *   path item's description, else "METHOD path";
 * - renames a placeholder to the declared parameter that it means, or declares it as a text;
 * - removes null entries, turns keys of a path that cannot be operations into extensions, rewrites references in Swagger 2.0 style or by
 *   bare name, and makes a body of any type JSON;
 * - with `dropsUnsupported`, drops operations whose body is not JSON.
 *
 * All other faults remain in `check`, such as misspelt methods. The given definition is not changed. A second repair changes nothing.
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
