import { Type } from '@sinclair/typebox'
import { type Fault, InvalidRequest, type Loc } from '../../errors.js'
import { JSON_BOUNDS } from '../../http/body.js'
import { shortened, unknownFieldWarnings } from '../../http/warnings.js'
import { bodyCheck } from '../../schema/body-check.js'
import {
  numberTexts,
  parseBigInts,
  parseExact,
  stringifyExact,
  withBigInts,
  writerFor,
} from '../../schema/exact-json.js'
import { boundFaults, unknownFields } from '../../schema/faults.js'
import { parseJsonBody, repeatedKeys, withRepetitions } from '../../schema/json-body.js'
import { sha256 } from '../../updates/audit.js'
import {
  changeText,
  checkDefinition,
  type DefinitionCheck,
  DefinitionRefused,
  definitionChanges,
  type Finding,
  GivenPlaces,
  originsOf,
  type Repair,
  repairDefinition,
  toFunctions,
} from '../definition/index.js'
import { factsOf, noteFacts } from '../definition-cache.js'
import type { DefinitionPair } from '../history.js'
import type { ToolUpdateFields } from '../rules.js'
import { CustomToolCreate, CustomToolUpdate, ValidateToolRequest } from '../schema.js'
import { compareNumbers, type RoundedNumber } from '../written-numbers.js'

/** More unknown fields are not counted: an answer names five. */
const UNKNOWN_FIELDS_MAX = 1000

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
  origins: ReadonlySet<string>
  definitionFaults: Fault[]
  /** What the answer says as a `Warning`. */
  notes: string[]
  /** The places of unknown fields, at most `UNKNOWN_FIELDS_MAX`. */
  unknown: Loc[]
}

/**
 * Reads a valid body. `null` keeps a field, except `oauth_config_id`. A definition that differs from `stored` only in how numbers are
 * written is that one. `storedHeaders` are the names of the headers that the tool has.
 */
function updateContentOf(
  body: CustomToolUpdate,
  {
    baseHash,
    stored,
    storedHeaders = [],
  }: { baseHash?: string | undefined; stored?: string; storedHeaders?: string[] },
): UpdateContent {
  const { definition, oauth_config_id, ...others } = body
  const write = writerFor(body)
  const text = definition ? definitionOf(write(definition)) : undefined
  const headerNames = body.custom_headers?.map(header => header.key) ?? storedHeaders
  const checked = text && checkedOnce(text.hash, definition, headerNames)
  const sent = checked?.faults.length === 0 ? text : undefined
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
    origins: sent ? (factsOf(sent.hash).origins ?? originsOf(definition)) : new Set(),
    definitionFaults: checked?.faults ?? [],
    notes: [...(checked?.notes ?? []), ...repetitionNotes(body), ...wrapperNotes(body)],
    unknown: unknownFields(CustomToolUpdate, body).slice(0, UNKNOWN_FIELDS_MAX),
  }
}

/** The faults and notes of a definition. What was found good for tools with these headers is not checked again. */
function checkedOnce(hash: string, definition: unknown, headerNames: readonly string[]) {
  const headers = JSON.stringify(headerNames)
  const known = factsOf(hash).checked
  if (known?.headers === headers) return { faults: [], notes: known.notes }
  const check = checkDefinition(definition, { headerNames })
  const notes = definitionNotes(check)
  if (check.ok) noteFacts(hash, { checked: { headers, notes } })
  return { faults: check.ok ? [] : check.faults, notes }
}

/** The findings of keys that a definition repeats. Reading it left only the last of each. */
function repetitionsIn(body: object): Finding[] {
  const msg = 'this key is repeated in its object: only the last one counts'
  return repeatedKeys(body)
    .filter(([field]) => field === 'definition')
    .map(loc => ({ severity: 'warning', loc: ['body', ...loc], msg, type: 'key_repeated' }))
}

function repetitionNotes(body: object): string[] {
  const [first, ...others] = repetitionsIn(body)
  const more = others.length === 0 ? '' : ` and ${others.length} more`
  return first === undefined
    ? []
    : [`the definition repeats the key ${shortened(first.loc.slice(1).join('.'))}${more}: the last one counts`]
}

/** What is said of a document that was sent without its wrapper. */
function wrapperNotes(body: object): string[] {
  const isBare = ['openapi', 'swagger'].some(key => Object.hasOwn(body, key)) && !Object.hasOwn(body, 'definition')
  return isBare ? ['to store an OpenAPI document, wrap it as {"definition": ...}'] : []
}

function definitionOf(text: string) {
  return { text, hash: sha256(text) }
}

/** What an answer says, as a `Warning`, of a definition that was accepted with warnings. */
function definitionNotes(checked: DefinitionCheck): string[] {
  const count = checked.warnings.length
  const warnings =
    count === 1
      ? '1 warning: validate it with report=full to read it'
      : `${count} warnings: validate it with report=full to read them`
  return count === 0 ? [] : [`the definition has ${warnings}`]
}

const AT: Loc = ['body', 'definition']

interface ValidationInput {
  query: ValidationQuery
  use: ToolUse | null
  stored?: string
  /** The names of the tool's custom headers. */
  headerNames?: string[]
}

/** What the query asks to be said of a definition. */
export interface ValidationQuery {
  report?: 'full'
  complete?: boolean
  server?: string
  drop?: 'unsupported'
  view?: 'functions'
  /** Methods have their name also as `raw_name`, as clients of the newer wire read it. No query of the root says so. */
  raw_names?: true
}

/**
 * Validates the definition of a valid body, for the tool with this `use`, `stored` definition and `headerNames`, if one is asked for. Answers JSON text,
 * a long one as bytes, and what its `Warning` says. Throws `InvalidRequest` for a definition that is not accepted.
 */
function validationOf(
  body: ValidateToolRequest,
  { query, use, stored, headerNames = [] }: ValidationInput,
): { answer: string | Uint8Array; warnings: string[] } {
  const completion = query.complete ? completed(body.definition, query, headerNames) : undefined
  if (completion && !completion.check.ok) {
    const places = new GivenPlaces(body.definition, completion.edits)
    throw new InvalidRequest(completion.check.faults.map(fault => inGiven(fault, places, query)))
  }
  const definition = completion?.definition ?? body.definition
  const checked = completion?.check ?? checkDefinition(definition, { headerNames })
  if (!checked.ok) throw new InvalidRequest(checked.faults)
  const full = query.report === 'full'
  const unknown = unknownFields(ValidateToolRequest, body).slice(0, UNKNOWN_FIELDS_MAX)
  const answer = {
    methods: query.raw_names ? checked.methods.map(withRawName) : checked.methods,
    ...(full && { warnings: [...repetitionsIn(body), ...checked.warnings] }),
    ...(query.view === 'functions' && { functions: toFunctions(definition, { headerNames }) }),
    ...(completion && { completed: shownCompletion(completion) }),
    ...(use && { impact: impactOf(use, stored ?? null, definition, headerNames) }),
  }
  const text = writerFor(body)(answer)
  return {
    answer: text.length > 128 * 1024 ? Buffer.from(text) : text,
    warnings: [
      ...unknownFieldWarnings(ValidateToolRequest, unknown),
      ...(full ? [] : [...repetitionNotes(body), ...definitionNotes(checked)]),
    ],
  }
}

function withRawName<Method extends { name: string }>({ name, ...method }: Method) {
  return { name, raw_name: name, ...method }
}

function completed(definition: unknown, { server, drop }: ValidationQuery, headerNames: string[]) {
  return repairDefinition(definition, {
    headerNames,
    ...(server !== undefined && { server }),
    dropsUnsupported: drop !== undefined,
    numbers: numberTexts,
  })
}

/** A fault that is left after all repairs, at its place in the request: the repaired definition is not answered. */
function inGiven(fault: Fault, places: GivenPlaces, { drop }: ValidationQuery): Fault {
  const { loc, msg, type } = places.located({ ...fault, loc: fault.loc.slice(AT.length) })
  const canBeDropped = type === 'request_body_media_type_unsupported' && drop === undefined
  return { loc: [...AT, ...loc], msg: canBeDropped ? `${msg}; drop=unsupported leaves the operation out` : msg, type }
}

function shownCompletion({ definition, edits, dropped }: Repair) {
  const shown = edits.map(({ path, from, ...edit }) => ({
    loc: [...AT, ...path],
    ...(from && { from: [...AT, ...from] }),
    ...edit,
  }))
  return { definition, edits: shown, dropped }
}

/** The functions that a tool with this `stored` definition and these headers gives a model, as JSON text. */
function functionsOf(_: unknown, { headerNames, stored }: { headerNames: string[]; stored?: string }): string {
  if (stored === undefined) return '{"functions":[]}'
  try {
    return stringifyExact({ functions: toFunctions(parseExact(stored), { headerNames, at: ['definition'] }) })
  } catch (error) {
    if (error instanceof DefinitionRefused) return JSON.stringify({ functions: [], faults: error.faults })
    throw error
  }
}

/** What the check says of a stored definition that comes back, for a tool with these headers. */
function storedCheckOf(
  _: unknown,
  { stored = '', hash, headerNames }: { stored?: string; hash: string; headerNames: string[] },
) {
  const definition = parseExact(stored)
  const { faults, notes } = checkedOnce(hash, definition, headerNames)
  return { definitionFaults: faults, notes, origins: originsOf(definition) }
}

/** What each pair of definitions changes for a model, for a tool with these headers. */
function comparisonOf(_: unknown, { pairs, headerNames }: { pairs: DefinitionPair[]; headerNames: string[] }) {
  return pairs.map(([before, after]) => definitionChanges(parseBigInts(before), parseBigInts(after), { headerNames }))
}

/** What is done with the body of a tool operation: the check of its schema, and a function of data without behaviour. */
export const TASKS = {
  update_custom_tool: { check: bodyCheck(CustomToolUpdate), run: updateContentOf },
  create_custom_tool: { check: bodyCheck(CustomToolCreate), run: updateContentOf },
  validate_tool: { check: bodyCheck(ValidateToolRequest), run: validationOf },
  check_stored: { check: bodyCheck(Type.Object({})), run: storedCheckOf },
  compare_definitions: { check: bodyCheck(Type.Object({})), run: comparisonOf },
  read_functions: { check: bodyCheck(Type.Object({})), run: functionsOf },
} as const

export type TaskName = keyof typeof TASKS
export type TaskBody<Name extends TaskName> = Parameters<(typeof TASKS)[Name]['run']>[0]
export type TaskInput<Name extends TaskName> = Parameters<(typeof TASKS)[Name]['run']>[1]
export type TaskResult<Name extends TaskName> = ReturnType<(typeof TASKS)[Name]['run']>

/** One body to work on. `strict`: unknown fields are faults. */
export interface Job {
  name: TaskName
  /** Bytes as they came, or the text of a body that was checked already. */
  body: { bytes: Uint8Array } | { text: string; repeated: readonly Loc[] }
  strict: boolean
  input: object
}

/** `failure` is an error of the program, as text. */
export type Outcome = { result: unknown } | { faults: Fault[] } | { failure: string }

/** Parses, checks and works on one body, in a worker. Never throws. */
export function outcomeOf({ name, body, strict, input }: Job): Outcome {
  try {
    const { check, run } = TASKS[name]
    const verdict =
      'text' in body
        ? { value: withRepetitions(parseExact(body.text) as object, body.repeated) }
        : check(parseJsonBody(body.bytes, JSON_BOUNDS.tool), { mask: undefined, strict })
    if ('faults' in verdict) return { faults: boundFaults(verdict.faults) }
    const work = run as (body: unknown, input: unknown) => unknown // it passed this task's schema
    return { result: work(verdict.value, input) }
  } catch (error) {
    if (error instanceof InvalidRequest || error instanceof DefinitionRefused) return { faults: error.faults }
    return { failure: error instanceof Error ? (error.stack ?? error.message) : String(error) }
  }
}

/** The agents that use a tool. */
export interface ToolUse {
  /** Those that the caller may see, in the order of their ids, at most a thousand. */
  ids: number[]
  /** How many more of those looked at use it. */
  others: number
  /** Whether all of them were looked at. */
  isWhole: boolean
}

/** What a definition that passed the check would change. `stored` is the tool's own as JSON text, or null. */
function impactOf(use: Omit<ToolUse, 'isWhole'>, stored: string | null, definition: unknown, headerNames: string[]) {
  const { ids, others } = use
  // Where no definition is stored yet, every operation is new, and nothing else has changed. What passed is an object.
  const before = stored === null ? { ...(definition as object), paths: {} } : parseBigInts(stored)
  const changes = definitionChanges(before, withBigInts(definition), { headerNames })
  return { changes: changes.map(each => ({ ...each, msg: changeText(each) })), agents: { ids, others } }
}
