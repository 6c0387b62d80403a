import fc from 'fast-check'
import { AGENT_FIELD_ROWS, REQUIRED_AGENT_FIELDS } from '../fixtures/agent-fields.js'

/** Random content for agent updates: mostly what can be stored, some of it refused. */

const FIELDS = Object.fromEntries(AGENT_FIELD_ROWS.map(([name, { random }]) => [name, random]))

/** A body with the required fields and any of the others, or any fields under a mask that names them and less. */
export const agentRequest: fc.Arbitrary<{ body: Record<string, unknown>; mask: string[] | null }> = fc.oneof(
  fc.record(FIELDS, { requiredKeys: REQUIRED_AGENT_FIELDS }).map(body => ({ body: { ...body }, mask: null })),
  fc
    .record(FIELDS, { requiredKeys: [] })
    .chain(body => fc.subarray(Object.keys(body)).map(mask => ({ body: { ...body }, mask }))),
)
