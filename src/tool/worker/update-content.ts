import type { Fault, Loc } from '../../errors.js'
import { writerFor } from '../../schema/exact-json.js'
import { unknownFields } from '../../schema/faults.js'
import { sha256 } from '../../updates/audit.js'
import { checkDefinition, type DefinitionCheck, type DefinitionLimits, originsOf } from '../definition/index.js'
import type { ToolUpdateFields } from '../rules.js'
import { CustomToolUpdate } from '../schema.js'

/** More unknown fields are not counted: an answer names five. */
export const UNKNOWN_FIELDS_MAX = 1000

/** What the body of a tool update asks for. */
export interface UpdateContent {
  fields: ToolUpdateFields
  /** Whether JavaScript writes each number of the body as it is written there. */
  hasPlainNumbers: boolean
  /** The server origins of the definition. */
  origins: Set<string>
  definitionFaults: Fault[]
  /** What the answer says as a `Warning`. */
  notes: string[]
  /** The places of unknown fields, at most `UNKNOWN_FIELDS_MAX`. */
  unknown: Loc[]
}

/** Reads a body that passed its schema. `null` leaves a field as it is, but for `oauth_config_id` (DECISIONS section 4). */
export function updateContentOf(
  body: CustomToolUpdate,
  { limits }: { limits: Partial<DefinitionLimits> },
): UpdateContent {
  const { definition, oauth_config_id, ...others } = body
  const headerNames = body.custom_headers?.map(header => header.key)
  const checked = definition ? checkDefinition(definition, { limits, ...(headerNames && { headerNames }) }) : null
  const text = checked?.ok ? writerFor(body)(definition) : ''
  const given = Object.entries(others).filter(
    ([name, value]) => value !== null && Object.hasOwn(CustomToolUpdate.properties, name),
  )
  const fields: ToolUpdateFields = {
    ...Object.fromEntries(given),
    ...(oauth_config_id !== undefined && { oauth_config_id }),
    ...(checked?.ok && { definition: { text, hash: sha256(text) } }),
  }
  return {
    fields,
    hasPlainNumbers: writerFor(body) === JSON.stringify,
    origins: checked?.ok ? originsOf(definition) : new Set(),
    definitionFaults: checked === null || checked.ok ? [] : checked.faults,
    notes: definitionNotes(checked),
    unknown: unknownFields(CustomToolUpdate, body).slice(0, UNKNOWN_FIELDS_MAX),
  }
}

/** What an answer says, as a `Warning`, of a definition that was accepted with warnings. */
export function definitionNotes(checked: DefinitionCheck | null): string[] {
  const count = checked?.warnings.length ?? 0
  const warnings =
    count === 1
      ? '1 warning: validate it with report=full to read it'
      : `${count} warnings: validate it with report=full to read them`
  return count === 0 ? [] : [`the definition has ${warnings}`]
}
