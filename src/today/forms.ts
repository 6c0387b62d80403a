import { type Static, type TSchema, Type } from '@sinclair/typebox'
import { type Fault, InvalidRequest } from '../errors.js'
import { NEW_AGENT } from '../persona/fields.js'
import { PersonaUpsertRequest } from '../persona/schema.js'
import { words } from '../updates/field-table.js'
import { flag, identifier, list, nullable, text } from '../validation/vocabulary.js'

/* Converts requests and answers between the newer API and the root. */

/** Fields that are required at the root. Here they can be absent or null, and are then kept. */
const KEPT = words('num_chunks recency_bias llm_filter_extraction llm_relevance_filter is_public users groups')

/** Fields that Onyx stores and this service does not, each with the only accepted value. */
const EMPTY = 'an empty list'
const NOT_KEPT = {
  ...{ hierarchy_node_ids: EMPTY, document_ids: EMPTY, skill_ids: EMPTY, default_model_configuration_id: 'null' },
}

/** A field that can be absent or null. */
export const absent = <Schema extends TSchema>(schema: Schema) => Type.Optional(nullable(schema))

export const NewerPersonaRequest = Type.Object({
  ...PersonaUpsertRequest.properties,
  ...Object.fromEntries(KEPT.map(name => [name, absent(PersonaUpsertRequest.properties[name])])),
  ...{ is_featured: absent(flag()), default_model_configuration_id: absent(identifier()) },
  ...{
    hierarchy_node_ids: absent(list(identifier())),
    document_ids: absent(list(text())),
    skill_ids: absent(list(text())),
  },
})

/** Converts the body to the root's form, with all fields if it `creates`. Throws `InvalidRequest` for values that cannot be stored. */
export function rootRequest(
  { is_featured: featured, ...body }: Static<typeof NewerPersonaRequest> & Record<string, unknown>,
  creates: boolean,
): Record<string, unknown> {
  const faults = notKept(body, NOT_KEPT)
  if (faults.length > 0) throw new InvalidRequest(faults)
  for (const name of Object.keys(NOT_KEPT)) delete body[name]
  for (const name of KEPT) if (body[name] === null) delete body[name]
  const named = typeof featured === 'boolean' ? { is_default_persona: featured } : {}
  return { ...(creates && { num_chunks: NEW_AGENT.num_chunks }), ...body, ...named }
}

/** The faults of fields that this service does not store. `null` is accepted, and an empty list if `fields` says so. */
export function notKept(body: Readonly<Record<string, unknown>>, fields: Readonly<Record<string, string>>): Fault[] {
  return Object.entries(fields).flatMap(([name, taken]) => {
    const value = body[name] ?? null
    if (value === null || (taken === EMPTY && Array.isArray(value) && value.length === 0)) return []
    return [{ loc: ['body', name], msg: `This service keeps no ${name}: send ${taken}`, type: 'not_kept' }]
  })
}
