import type { Fault, Loc } from '../../errors.js'
import { writerFor } from '../../schema/exact-json.js'
import { unknownFields } from '../../schema/faults.js'
import { sha256 } from '../../updates/audit.js'
import { checkDefinition, type DefinitionCheck, originsOf } from '../definition/index.js'
import type { ToolUpdateFields } from '../rules.js'
import { CustomToolUpdate } from '../schema.js'
import { compareNumbers, type RoundedNumber } from '../written-numbers.js'

/** More unknown fields are not counted: an answer names five. */
export const UNKNOWN_FIELDS_MAX = 1000

/** What the body of a tool update asks for. */
export interface UpdateContent {
  fields: ToolUpdateFields
  /** The hash of the definition as it was sent. */
  sentHash: string | undefined
  /** The hashes of definitions of which JavaScript writes each number as it is written there. */
  plain: string[]
  /** Numbers of the definition that the request was made from, which JavaScript rounded on their way back. */
  rounded: RoundedNumber[]
  /** The server origins of the definition. */
  origins: Set<string>
  definitionFaults: Fault[]
  /** What the answer says as a `Warning`. */
  notes: string[]
  /** The places of unknown fields, at most `UNKNOWN_FIELDS_MAX`. */
  unknown: Loc[]
}

/** How a body is read. `stored` is the text of the definition that it was made from, which has this hash. */
interface Reading {
  baseHash?: string | undefined
  stored?: string
}

/**
 * Reads a body that passed its schema. `null` leaves a field as it is, but for `oauth_config_id` (DECISIONS section 4). A definition
 * that is `stored` but for the writing of its numbers is taken for that.
 */
export function updateContentOf(body: CustomToolUpdate, { baseHash, stored }: Reading): UpdateContent {
  const { definition, oauth_config_id, ...others } = body
  const headerNames = body.custom_headers?.map(header => header.key)
  const checked = definition ? checkDefinition(definition, { ...(headerNames && { headerNames }) }) : null
  const write = writerFor(body)
  const sent = checked?.ok ? definitionOf(write(definition)) : undefined
  const isCompared = stored !== undefined && baseHash !== undefined && sent !== undefined && sent.hash !== baseHash
  const compared = isCompared ? compareNumbers(stored, definition as object) : undefined
  const given = Object.entries(others).filter(
    ([name, value]) => value !== null && Object.hasOwn(CustomToolUpdate.properties, name),
  )
  const fields: ToolUpdateFields = {
    ...Object.fromEntries(given),
    ...(oauth_config_id !== undefined && { oauth_config_id }),
    ...(sent && { definition: isCompared && compared?.isSame ? { text: stored, hash: baseHash } : sent }),
  }
  return {
    fields,
    sentHash: sent?.hash,
    plain: [
      ...(sent && write === JSON.stringify ? [sent.hash] : []),
      ...(isCompared && compared?.isPlain ? [baseHash] : []),
    ],
    rounded: compared?.rounded ?? [],
    origins: sent ? originsOf(definition) : new Set(),
    definitionFaults: checked === null || checked.ok ? [] : checked.faults,
    notes: definitionNotes(checked),
    unknown: unknownFields(CustomToolUpdate, body).slice(0, UNKNOWN_FIELDS_MAX),
  }
}

function definitionOf(text: string) {
  return { text, hash: sha256(text) }
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
