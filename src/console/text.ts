import { Type } from '@sinclair/typebox'
import { type Document, isCollection, isMap, isScalar } from 'yaml'
import { jsonDocumentText, yamlText } from '../admin/document-text.js'
import { counted, placeText, Refusal } from '../admin/refusal.js'
import { parseSource, plainValue, type Source, UnreadableText } from '../admin/source.js'
import type { Fault, Loc } from '../errors.js'
import { JSON_BOUNDS } from '../http/body.js'
import type { ToolFunction, ValidateToolResponse } from '../tool/schema.js'
import { outcomeOf, type ToolUse, type ValidationQuery } from '../tool/worker/tasks.js'
import { bodyCheck } from '../validation/body-check.js'
import { numberReplacer, parseExact, stringifyExact, withoutMarks } from '../validation/exact-json.js'
import { parseJsonBody } from '../validation/json-body.js'
import { text as textSchema } from '../validation/vocabulary.js'

/** The body of a check: a definition as a person writes it. */
export const TextRequest = Type.Object({ text: textSchema() }, { $id: 'TextRequest' })

/** One text to check, in a worker. A large body comes as its bytes. */
export interface TextJob {
  body: Uint8Array | typeof TextRequest.static
  query: ValidationQuery
  use: ToolUse | null
  stored?: string
  headerNames: string[]
  /** What is said of the use of the tool. */
  notes: string[]
}

/** `answer` is the JSON text of an `Answer`; `faults` are those of the request; `failure` is the stack of an unexpected error. */
export type TextOutcome = { answer: string } | { faults: Fault[] } | { failure: string }

/** What the page shows, by its places there: texts and rows. */
interface Answer {
  verdict: string
  notes: Finding[]
  /** Whether a repair can be tried. */
  repair: boolean
  size: string
  functions: { name: string; size: string; address: string; description: string; text: string }[]
  /** What a stored tool would become, and who uses it. */
  changes: string[]
  use: string
  agents: { id: number }[]
  repairNote: string
  edits: ShownEdit[]
  /** Faults that a repair leaves. */
  left: string[]
  /** The repaired text. */
  repaired?: string
}

/** A fault or a warning beside its line. `remedy`: what a repair does about it. */
interface Finding {
  kind: 'fault' | 'warning'
  line: number
  place: string
  msg: string
  remedy?: string | undefined
}

type Completed = NonNullable<ValidateToolResponse['completed']>
type Edit = Completed['edits'][number]
type Impact = NonNullable<ValidateToolResponse['impact']>
type ShownEdit = Pick<Edit, 'op' | 'msg'> & { line: number; place: string; before?: string; after?: string }

/** A repair is tried with each check of texts up to this length, for what it says of each fault. */
const TRIED_CHARACTERS_MAX = 200_000
const FUNCTIONS_MAX = 300
const FUNCTION_CHARACTERS_MAX = 8_000
const LISTED_MAX = 200
/** Stands for the server that a repair needs, before somebody names one. */
const ANY_SERVER = 'https://api.example.com'
const VALUE_CHARACTERS = 2_000
const REMEDY_CHARACTERS = 90
/** Four bytes of JSON are about one token of a model. */
const BYTES_OF_TOKEN = 4

const NOTHING: Answer = {
  verdict: '',
  notes: [],
  repair: false,
  size: 'Functions appear here once the definition has no faults.',
  functions: [],
  changes: [],
  use: '',
  agents: [],
  repairNote: 'No repair is known yet. Correct these by hand:',
  edits: [],
  left: [],
}

const checkRequest = bodyCheck(TextRequest)

/** Reads a text, and validates the definition in it. Throws only what is an error of the program. */
export function outcomeOfText(job: TextJob): TextOutcome {
  const { body } = job
  try {
    if (!(body instanceof Uint8Array)) return { answer: stringifyExact(answerFor(body.text, job)) }
    const verdict = checkRequest(parseJsonBody(body, JSON_BOUNDS.tool), { mask: undefined, strict: false })
    if ('faults' in verdict) return verdict
    return { answer: stringifyExact(answerFor((verdict.value as typeof TextRequest.static).text, job)) }
  } catch (error) {
    return { failure: error instanceof Error ? (error.stack ?? error.message) : String(error) }
  }
}

function answerFor(text: string, job: TextJob): Answer {
  if (text.trim() === '') return refused([], 'Paste a definition, or drop a file on the box.')
  let source: Source
  try {
    source = parseSource(text)
  } catch (error) {
    if (!(error instanceof Refusal)) throw error
    const found = error instanceof UnreadableText ? error.faults : [{ line: 1, msg: error.message }]
    const findings = found.map(({ line = 1, msg }) => ({ kind: 'fault' as const, line, place: '', msg }))
    return refused(findings, 'This text cannot be read.')
  }
  // Keep JSON text unparsed, so that its check finds repeated keys.
  const definition = source.document === undefined ? text.replace(/^\uFEFF/, '') : stringifyExact(source.value)
  const bytes = Buffer.from(`{"definition":${definition}}`)
  const found = validated(bytes, job, job.query)
  const kind = source.document === undefined ? 'JSON' : 'YAML'
  if ('faults' in found) {
    const isTried = job.query.complete || text.length > TRIED_CHARACTERS_MAX
    const findings = located('fault', found.faults, source, isTried ? undefined : possibleRepair(bytes, job))
    return refused(findings, `${kind}, ${counted(found.faults.length, 'fault')}.`, true)
  }
  const { warnings = [], functions = [], completed, impact } = found.answer
  return {
    ...NOTHING,
    verdict: `${kind}, no faults, ${counted(warnings.length, 'warning')}.`,
    notes: located('warning', warnings, source),
    ...shownFunctions(functions),
    ...(completed && shownRepair(completed, source)),
    ...(impact && shownImpact(impact, job.notes)),
  }
}

function refused(notes: Finding[], verdict: string, repair = false): Answer {
  const left = notes.map(({ line, msg }) => `Line ${line}: ${msg}`)
  return { ...NOTHING, verdict, notes, repair, left }
}

/** The repair with a server and without what is not supported; undefined where faults would stay. */
function possibleRepair(bytes: Uint8Array, job: TextJob): Completed | undefined {
  const repair = validated(bytes, job, { complete: true, server: ANY_SERVER, drop: 'unsupported' })
  return 'answer' in repair ? repair.answer.completed : undefined
}

function validated(
  bytes: Uint8Array,
  { use, stored, headerNames }: TextJob,
  query: ValidationQuery,
): { answer: ValidateToolResponse } | { faults: Fault[] } {
  const input = { query, use, headerNames, ...(stored !== undefined && { stored }) }
  const outcome = outcomeOf({ name: 'validate_tool', body: { bytes }, strict: false, input })
  if ('failure' in outcome) throw new Error(outcome.failure)
  if ('faults' in outcome) return outcome
  const { answer } = outcome.result as { answer: string | Uint8Array } // what this task answers
  const text = typeof answer === 'string' ? answer : Buffer.from(answer).toString()
  return { answer: parseExact(text) as ValidateToolResponse }
}

/** Places of an answer begin in the body of the request. */
function inDefinition(loc: Loc): Loc {
  return loc.slice(2)
}

function located(
  kind: Finding['kind'],
  findings: readonly { loc: Loc; msg: string }[],
  { linesOf }: Source,
  repair?: Completed,
): Finding[] {
  const places = findings.map(({ loc }) => inDefinition(loc))
  const lines = linesOf(places)
  const found = findings.map(({ loc, msg }, i) => {
    const place = placeText(places[i] ?? [])
    return { kind, line: lines[i] ?? 1, place, msg, remedy: repair && remedyOf(loc, repair) }
  })
  return found.sort((a, b) => a.line - b.line)
}

/** What the edit does that is at this place, inside it, or around it. */
function remedyOf(place: Loc, { edits, dropped }: Completed): string | undefined {
  if (dropped.some(({ path, method }) => place[3] === path && place[4] === method)) return 'can leave the operation out'
  const isAt = (inner: Loc, outer: Loc) => outer.length > 2 && outer.every((step, i) => step === inner[i])
  const edit = edits.find(each => isAt(each.loc, place)) ?? edits.find(each => isAt(place, each.loc))
  if (edit === undefined) return undefined
  const { op, loc, from } = edit
  const [old, next] = [edit.before, edit.after].map(value => cut(stringifyExact(value), REMEDY_CHARACTERS))
  if (next?.includes(ANY_SERVER)) return 'asks you for a server'
  if (op === 'add') return `adds ${next}`
  if (op === 'remove') return `removes ${old}`
  if (op === 'replace') return `replaces ${old} by ${next}`
  return `renames ${stringifyExact(from?.at(-1))} to ${stringifyExact(loc.at(-1))}`
}

function shownFunctions(functions: readonly ToolFunction[]): Pick<Answer, 'size' | 'functions'> {
  const given = functions.map(({ name, description, parameters }) => ({ name, description, parameters }))
  const tokens = given.map(each => Math.ceil(Buffer.byteLength(stringifyExact(each)) / BYTES_OF_TOKEN))
  const shown = functions.slice(0, FUNCTIONS_MAX).map(({ name, description, method, path }, i) => ({
    name,
    size: counted(tokens[i] ?? 0, 'token'),
    address: `${method.toUpperCase()} ${path}`,
    description: cut(description, VALUE_CHARACTERS),
    text: cut(stringifyExact(given[i], 2), FUNCTION_CHARACTERS_MAX),
  }))
  const sum = tokens.reduce((all, each) => all + each, 0)
  const size = `${counted(functions.length, 'function')}, about ${counted(sum, 'token')}`
  const rest = functions.length > FUNCTIONS_MAX ? `; the first ${FUNCTIONS_MAX} are listed` : ''
  return { size: `${size}${rest}.`, functions: shown }
}

function shownImpact(
  { changes, agents: { ids, others } }: Impact,
  notes: string[],
): Pick<Answer, 'changes' | 'agents' | 'use'> {
  const shown = changes.slice(0, LISTED_MAX).map(({ operation, msg }) => `${operation}: ${msg}`)
  const rest = changes.length > LISTED_MAX ? [`and ${counted(changes.length - LISTED_MAX, 'more change')}`] : []
  const unseen = others > 0 ? `; this token sees ${ids.length} of them` : ''
  const count = counted(ids.length + others, 'agent')
  return {
    changes: changes.length === 0 ? ['A model would notice nothing.'] : [...shown, ...rest],
    agents: ids.slice(0, LISTED_MAX).map(id => ({ id })),
    use: [`${count} ${ids.length + others === 1 ? 'uses' : 'use'} the tool${unseen}.`, ...notes].join(' '),
  }
}

function shownRepair(
  { definition, edits, dropped }: Completed,
  source: Source,
): Pick<Answer, 'repairNote' | 'repaired' | 'edits'> {
  const { document, linesOf } = source
  const lines = linesOf(edits.map(({ loc }) => inDefinition(loc)))
  const valueText = (value: unknown) => {
    const flat = stringifyExact(value)
    return flat.length <= 2 * REMEDY_CHARACTERS ? flat : cut(stringifyExact(value, 2), VALUE_CHARACTERS)
  }
  const shown = edits.slice(0, LISTED_MAX).map(({ op, loc, from, before, after, msg }, i) => ({
    ...{ op, msg, line: lines[i] ?? 1, place: placeText(inDefinition(loc)) },
    ...(op === 'move' && { before: String(from?.at(-1)), after: String(loc.at(-1)) }),
    ...(before !== undefined && { before: valueText(before) }),
    ...(after !== undefined && { after: valueText(after) }),
  }))
  const edited = document && editedYaml(document, edits, definition)
  const notes = [
    `${counted(edits.length, 'edit')}${edits.length > LISTED_MAX ? `, the first ${LISTED_MAX} are listed` : ''}.`,
    ...dropped.map(({ method, path, msg }) => `Left out: ${method.toUpperCase()} ${path}: ${msg}.`),
    ...(document !== undefined && edited === undefined ? ['The YAML is written anew, without its comments.'] : []),
  ]
  const anew = document === undefined ? jsonDocumentText(definition) : yamlText(definition)
  return { repairNote: notes.slice(0, LISTED_MAX).join(' '), repaired: edited ?? anew, edits: shown }
}

/** The document with the edits and its own comments; undefined where the edits do not lead to `definition`, as behind an alias. */
function editedYaml(document: Document, edits: readonly Edit[], definition: unknown): string | undefined {
  try {
    for (const { op, loc, from, after } of edits) {
      const path = ownPath(document, inDefinition(op === 'move' ? (from ?? []) : loc))
      if (path.length === 0) return undefined
      if (op === 'remove') document.deleteIn(path)
      else if (op === 'move') keyAt(document.getIn(path.slice(0, -1), true), path.at(-1))[1].value = loc.at(-1)
      else document.setIn(path, document.createNode(after, numberReplacer))
    }
    if (stringifyExact(plainValue(document)) !== stringifyExact(definition)) return undefined
    return withoutMarks(document.toString({ lineWidth: 0 }))
  } catch {
    return undefined
  }
}

/** A path with the keys that the document has: `200` may be a number there. */
function ownPath(document: Document, path: Loc): unknown[] {
  let node: unknown = document.contents
  return path.map(step => {
    const [key] = keyAt(node, step)
    node = isCollection(node) ? node.get(key, true) : undefined
    return key
  })
}

function keyAt(node: unknown, step: unknown): [key: unknown, scalar: { value: unknown }] {
  const pair = isMap(node) && node.items.find(({ key }) => isScalar(key) && String(key.value) === String(step))
  return pair && isScalar(pair.key) ? [pair.key.value, pair.key] : [step, { value: step }]
}

function cut(text: string, characters: number): string {
  return text.length <= characters ? text : `${text.slice(0, characters)}...`
}
