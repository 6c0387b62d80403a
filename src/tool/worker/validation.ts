import { type Fault, InvalidRequest, type Loc } from '../../errors.js'
import { unknownFieldWarnings } from '../../http/warnings.js'
import { writerFor } from '../../schema/exact-json.js'
import { unknownFields } from '../../schema/faults.js'
import { type Completion, checkDefinition, completeDefinition, GivenPlaces } from '../definition/index.js'
import { impactOf, type ToolUse } from '../impact.js'
import { ValidateToolRequest } from '../schema.js'
import { definitionNotes, UNKNOWN_FIELDS_MAX } from './update-content.js'

/** Where the definition stands in the request. */
const AT: Loc = ['body', 'definition']

/** What the query asks to be said of a definition. */
export interface ValidationQuery {
  report?: 'full'
  complete?: boolean
  server?: string
  drop?: 'unsupported'
}

/** How a definition is validated. `use` is that of the tool that it would be stored in, if one is asked for, `stored` its definition. */
export interface ValidationAsked {
  query: ValidationQuery
  use: ToolUse | null
  stored?: string
}

/** The answer as JSON text, a long one as the bytes that are sent, and what its `Warning` says. */
export interface Validation {
  answer: string | Uint8Array
  warnings: string[]
}

/** Validates the definition of a body that passed its schema. Throws `InvalidRequest` for one that is not accepted. */
export function validationOf(body: ValidateToolRequest, { query, use, stored }: ValidationAsked): Validation {
  const completion = query.complete ? completed(body.definition, query) : undefined
  if (completion && !completion.check.ok) {
    const places = new GivenPlaces(body.definition, completion.edits)
    throw new InvalidRequest(completion.check.faults.map(fault => inGiven(fault, places, query)))
  }
  const definition = completion?.definition ?? body.definition
  const checked = completion?.check ?? checkDefinition(definition)
  if (!checked.ok) throw new InvalidRequest(checked.faults)
  const full = query.report === 'full'
  const unknown = unknownFields(ValidateToolRequest, body).slice(0, UNKNOWN_FIELDS_MAX)
  const answer = {
    methods: checked.methods,
    ...(full && { warnings: checked.warnings }),
    ...(completion && { completed: shownCompletion(completion) }),
    ...(use && { impact: impactOf(use, stored ?? null, definition) }),
  }
  const text = writerFor(body)(answer)
  return {
    answer: text.length > 128 * 1024 ? Buffer.from(text) : text,
    warnings: [...unknownFieldWarnings(ValidateToolRequest, unknown), ...(full ? [] : definitionNotes(checked))],
  }
}

function completed(definition: unknown, { server, drop }: ValidationQuery) {
  return completeDefinition(definition, {
    ...(server !== undefined && { server }),
    dropsUnsupported: drop !== undefined,
  })
}

/** A fault that no repair mended, at its place in what was sent: the completed definition is not answered. */
function inGiven(fault: Fault, places: GivenPlaces, { drop }: ValidationQuery): Fault {
  const loc = [...AT, ...places.nearestTo(fault.loc.slice(AT.length))]
  const canBeDropped = fault.type === 'request_body_media_type_unsupported' && drop === undefined
  return { ...fault, loc, msg: canBeDropped ? `${fault.msg}; drop=unsupported leaves the operation out` : fault.msg }
}

function shownCompletion({ definition, edits, dropped }: Completion) {
  return {
    definition,
    edits: edits.map(({ op, path, type, msg }) => ({ op, loc: [...AT, ...path], type, msg })),
    dropped,
  }
}
