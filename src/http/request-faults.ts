import type { Fault } from '../errors.js'
import { boundFaults } from '../schema/faults.js'
import type { ParsedBody } from '../schema/json-body.js'

/**
 * The faults of stages (a) and (b) of DECISIONS section 2, in the order of the answer: a refused body stands alone;
 * else path, query, header and body. `bodyFaults` is asked only when there is a body to look at.
 */
export function requestFaults(parts: {
  path?: readonly Fault[]
  query?: readonly Fault[]
  header?: readonly Fault[]
  body: ParsedBody
  bodyFaults: (value: unknown) => readonly Fault[]
}): Fault[] {
  const { path = [], query = [], header = [], body, bodyFaults } = parts
  if (body.kind === 'refused') return boundFaults(body.faults)
  const inBody = body.kind === 'absent' ? body.faults : bodyFaults(body.value)
  return boundFaults([...path, ...query, ...header, ...inBody])
}
