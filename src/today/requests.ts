import { type Static, type TSchema, Type } from '@sinclair/typebox'
import { type Fault, InvalidRequest } from '../errors.js'
import { NEW_AGENT } from '../persona/fields.js'
import { PersonaUpsertRequest } from '../persona/schema.js'
import { flag, identifier, list, nullable, text } from '../schema/vocabulary.js'
import { words } from '../updates/field-table.js'

/** Required at the root; here they may be absent or null, and then stay as they are. */
const KEPT_WHEN_ABSENT = words(
  'num_chunks recency_bias llm_filter_extraction llm_relevance_filter is_public users groups',
)

/** What the published product keeps and this service does not, each with what it takes. */
const NOT_KEPT = {
  hierarchy_node_ids: 'an empty list',
  document_ids: 'an empty list',
  skill_ids: 'an empty list',
  default_model_configuration_id: 'null',
} as const

const optional = <Schema extends TSchema>(schema: Schema) => Type.Optional(nullable(schema))

/** The body of an agent update or creation, as today's clients send it. */
export const NewerPersonaRequest = Type.Object({
  ...PersonaUpsertRequest.properties,
  ...Object.fromEntries(KEPT_WHEN_ABSENT.map(name => [name, optional(PersonaUpsertRequest.properties[name])])),
  is_featured: optional(flag()),
  hierarchy_node_ids: optional(list(identifier())),
  document_ids: optional(list(text())),
  skill_ids: optional(list(text())),
  default_model_configuration_id: optional(identifier()),
})

/**
 * The same body as the root's operations take it. Throws `InvalidRequest` for what cannot be kept. `mask`: the fields of an `update_mask`;
 * null means there what it means at the root. `creates`: the body of a new agent.
 */
export function rootRequest(
  { is_featured: featured, ...body }: Static<typeof NewerPersonaRequest> & Record<string, unknown>,
  { mask, creates }: { mask: readonly string[] | undefined; creates: boolean },
): Record<string, unknown> {
  const faults = notKept(body, NOT_KEPT)
  const { is_default_persona: given } = body
  if (typeof featured === 'boolean' && given !== undefined && given !== featured)
    faults.push({ loc: ['body', 'is_featured'], msg: 'It differs from is_default_persona', type: 'value_error' })
  for (const name of Object.keys(NOT_KEPT)) delete body[name]
  for (const name of KEPT_WHEN_ABSENT) {
    if (body[name] !== null) continue
    delete body[name]
    if (mask?.includes(name))
      faults.push({
        loc: ['body', name],
        msg: 'null leaves it as it is: leave it out of update_mask',
        type: 'null_keeps',
      })
  }
  if (faults.length > 0) throw new InvalidRequest(faults)
  const named = typeof featured === 'boolean' ? { is_default_persona: featured } : {}
  return { ...(creates ? { num_chunks: NEW_AGENT.num_chunks } : {}), ...body, ...named }
}

/** The faults of fields that hold something, of those that this service does not keep; `fields` says what each takes. */
export function notKept(body: Readonly<Record<string, unknown>>, fields: Readonly<Record<string, string>>): Fault[] {
  const isNothing = (value: unknown) =>
    value === undefined || value === null || (Array.isArray(value) && value.length === 0)
  return Object.entries(fields).flatMap(([name, takes]) => {
    const msg = `This service does not keep this field: send ${takes}, or leave it out`
    return isNothing(body[name]) ? [] : [{ loc: ['body', name], msg, type: 'not_kept' }]
  })
}
