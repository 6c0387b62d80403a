import { hash as digest } from 'node:crypto'
import { Type } from '@sinclair/typebox'
import {
  checkDefinition,
  completeDefinition,
  type DefinitionCheck,
  DefinitionRefused,
  definitionChanges,
  functionNames,
  joined,
  originsOf,
  serverOf,
  toFunctions,
} from '../../definition/index.js'
import { type Fault, InvalidRequest, type Loc } from '../../errors.js'
import { unknownFieldWarnings } from '../../http/answer.js'
import { INLINE_BYTES_MAX, JSON_BOUNDS } from '../../http/validation.js'
import { boundFaults, unknownFields } from '../../validation/faults.js'
import { bodyCheck, parseJsonBody, type Source, sourceOf } from '../../validation/json-body.js'
import { factsOf, noteFacts } from '../definition-facts.js'
import { definitionTextIn } from '../definition-text.js'
import type { CheckedDefinition, ToolUpdateFields } from '../rules.js'
import { CustomToolCreate, CustomToolUpdate, ValidateToolRequest } from '../schema.js'

/** The maximum number of unknown fields that are collected. Answers name only five. */
const UNKNOWN_FIELDS_MAX = 1000

export interface Checked {
  definition?: CheckedDefinition
  definitionFaults: Fault[]
  /** Texts for the `Warning` header. */
  notes: string[]
  origins: ReadonlySet<string>
}

/** The content of a valid body of a tool update. */
export interface UpdateContent extends Omit<Checked, 'definition'> {
  fields: ToolUpdateFields
  unknown: Loc[]
}

/** Returns the update in a valid body. `null` clears `oauth_config_id`; other `null` fields are ignored. `storedHeaders`: the tool's header names. */
function updateContentOf(
  body: CustomToolUpdate,
  { storedHeaders = [], strict = false }: { storedHeaders?: string[]; strict?: boolean },
): UpdateContent {
  const { definition, oauth_config_id, ...others } = body
  const headerNames = body.custom_headers?.map(header => header.key) ?? storedHeaders
  const checked = definition ? checkedOnce(definition, givenIn(body), headerNames, strict) : NOTHING
  const given = Object.entries(others).filter(
    ([name, value]) => value !== null && Object.hasOwn(CustomToolUpdate.properties, name),
  )
  const { definition: sent, ...about } = checked
  const fields: ToolUpdateFields = {
    ...Object.fromEntries(given),
    ...(oauth_config_id !== undefined && { oauth_config_id }),
    ...(sent && { definition: sent }),
  }
  return { fields, unknown: unknownFields(CustomToolUpdate, body).slice(0, UNKNOWN_FIELDS_MAX), ...about }
}

const NOTHING: Checked = { definitionFaults: [], notes: [], origins: new Set() }

/** Checks a definition for a tool with the headers `headerNames`. If there are no faults, caches the result by hash. */
function checkedOnce(
  definition: unknown,
  { text, repeated }: Source,
  headerNames: readonly string[],
  strict: boolean,
): Checked {
  const hash = digest('sha256', text)
  const headers = JSON.stringify([headerNames, strict])
  const { checked, ...known } = factsOf(hash)
  if (checked?.headers === headers)
    return { ...NOTHING, ...known, notes: checked.notes, definition: { text, hash, names: checked.names } }
  const check = checkDefinition(definition, { headerNames, strict })
  const definitionFaults = [...repeated.map(repeatedKey), ...(check.ok ? [] : check.faults)]
  const notes = definitionNotes(check)
  const [origins, names] = [originsOf(definition), check.ok ? functionNames(check.methods) : []]
  if (definitionFaults.length === 0) noteFacts(hash, { origins, checked: { headers, notes, names } })
  return { origins, definition: { text, hash, names }, definitionFaults, notes }
}

function givenIn(body: object): Source {
  const { text, repeated } = sourceOf(body)
  return { text: definitionTextIn(text), repeated }
}

function repeatedKey(place: Loc): Fault {
  const msg = 'This key occurs more than once in its object: write it once, because parsers keep only one of the values'
  return { loc: ['body', ...place], msg, type: 'json_key_repeated' }
}

function definitionNotes({ warnings: { length: count } }: DefinitionCheck): string[] {
  const noun = count === 1 ? 'warning' : 'warnings'
  return count === 0 ? [] : [`the definition has ${count} ${noun}: validate it with report=full for details`]
}

export interface ValidationQuery {
  report?: 'full'
  complete?: boolean
  server?: string
  view?: 'functions'
  /** Adds `raw_name` to each method, for the routes under `/api`. */
  raw_names?: true
}

interface ValidationInput {
  query: ValidationQuery
  use: ToolUse | null
  stored?: string | undefined
  headerNames?: string[]
  strict?: boolean
}

/**
 * Validates a definition. `use`, `stored` and `headerNames` describe the tool that the definition is for, if any. Throws `InvalidRequest` for faults
 * of the definition. With `complete`, the error contains the completed definition, and the faults refer to this definition.
 */
function validationOf(
  body: ValidateToolRequest,
  { query, use, stored, headerNames = [], strict = false }: ValidationInput,
): { answer: Uint8Array | string; warnings: string[]; names: string[] } {
  const options = { headerNames, strict, ...(query.server !== undefined && { server: query.server }) }
  const completion = query.complete ? completeDefinition(body.definition, options) : undefined
  const definition = completion?.definition ?? body.definition
  const checked = completion?.check ?? checkDefinition(definition, options)
  const completed = completion && { definition, edits: completion.edits }
  const faults = [...sourceOf(body).repeated.map(repeatedKey), ...(checked.ok ? [] : checked.faults)]
  const full = query.report === 'full'
  if (!checked.ok || faults.length > 0) {
    const more = { ...(full && { warnings: checked.warnings }), ...(completed && { completed }) }
    throw new InvalidRequest(
      faults,
      Object.fromEntries(Object.entries(more).map(([name, value]) => [name, JSON.stringify(value)])),
    )
  }
  const unknown = unknownFields(ValidateToolRequest, body).slice(0, UNKNOWN_FIELDS_MAX)
  const { methods } = checked
  const answer = JSON.stringify({
    methods: query.raw_names ? methods.map(({ name, ...method }) => ({ name, raw_name: name, ...method })) : methods,
    ...(full && { warnings: checked.warnings }),
    ...(query.view === 'functions' && { functions: toFunctions(definition, { headerNames }) }),
    ...(completed && { completed }),
    ...(use && { impact: impactOf(use, stored, definition as object, headerNames) }),
  })
  return {
    answer: answer.length > INLINE_BYTES_MAX ? Buffer.from(answer) : answer, // Node writes long answers faster as bytes
    names: use ? functionNames(methods) : [],
    warnings: [...unknownFieldWarnings(unknown), ...(full ? [] : definitionNotes(checked))],
  }
}

export interface ToolUse {
  /** The ids of agents that the caller can see, in ascending order, at most 1,000. */
  ids: number[]
  others: number
}

/** Returns the effect of storing a valid definition in a tool. Without a stored definition, every operation is new. */
function impactOf({ ids, others }: ToolUse, stored: string | undefined, definition: object, headerNames: string[]) {
  const before = stored === undefined ? { ...definition, paths: {} } : JSON.parse(stored)
  return { changes: definitionChanges(before, definition, { headerNames }), agents: { ids, others } }
}

function proposedImpactOf(
  _: unknown,
  { use, proposed, stored, headerNames }: { use: ToolUse; proposed: string; stored?: string; headerNames: string[] },
): string {
  return JSON.stringify(impactOf(use, stored, JSON.parse(proposed), headerNames))
}

function functionsOf(
  _: unknown,
  { headerNames, stored }: { headerNames: string[]; stored?: string | undefined },
): string {
  if (stored === undefined) return '{"functions":[]}'
  try {
    const definition: unknown = JSON.parse(stored)
    const server = serverOf(definition)
    const functions = toFunctions(definition, { headerNames, at: ['definition'] }).map(view => {
      return { ...view, address: joined(server, view.path) }
    })
    return JSON.stringify({ functions })
  } catch (error) {
    if (error instanceof DefinitionRefused) return JSON.stringify({ functions: [], faults: error.faults })
    throw error
  }
}

/** The tasks of tool operations. Each has a check for its body. */
export const TASKS = {
  update_custom_tool: { check: bodyCheck(CustomToolUpdate), run: updateContentOf },
  create_custom_tool: { check: bodyCheck(CustomToolCreate), run: updateContentOf },
  validate_tool: { check: bodyCheck(ValidateToolRequest), run: validationOf },
  proposed_impact: { check: bodyCheck(Type.Object({})), run: proposedImpactOf },
  read_functions: { check: bodyCheck(Type.Object({})), run: functionsOf },
} as const

export type TaskName = keyof typeof TASKS
export type TaskInput<Name extends TaskName> = Parameters<(typeof TASKS)[Name]['run']>[1]
export type TaskResult<Name extends TaskName> = ReturnType<(typeof TASKS)[Name]['run']>

export interface Job {
  name: TaskName
  body: Uint8Array
  /** With `strict`, unknown fields and operations that cannot become functions are faults. */
  input: object & { strict?: boolean }
}

/** The result of a job. `failure` is an unexpected error. */
export type Outcome = { result: unknown } | { faults: Fault[]; extra?: InvalidRequest['extra'] } | { failure: unknown }

/** Parses and checks a body and runs its task. Called in a worker. Never throws. */
export function outcomeOf({ name, body, input }: Job): Outcome {
  try {
    const { check, run } = TASKS[name]
    const verdict = check(parseJsonBody(body, JSON_BOUNDS.tool), { mask: undefined, strict: input.strict === true })
    if ('faults' in verdict) return { faults: boundFaults(verdict.faults) }
    const work = run as (body: unknown, input: unknown) => unknown // the body was checked with the task's schema
    return { result: work(verdict.value, input) }
  } catch (error) {
    if (error instanceof InvalidRequest) return { faults: error.faults, ...(error.extra && { extra: error.extra }) }
    if (error instanceof DefinitionRefused) return { faults: error.faults }
    return { failure: error }
  }
}
