import type { CallToolResult } from '@modelcontextprotocol/server'
import type { Fault } from '../errors.js'
import { numberReplacer, stringifyExact } from '../validation/exact-json.js'

/* What a model reads of an answer: what it asked for, or why not and what to do about it. */

export type ToolKind = 'agent' | 'tool'

export type Body = Record<string, unknown>

/** An answer of an operation. */
export interface Answer {
  status: number
  /** Parsed; null where there is none. */
  body: Body | null
  etag?: string | undefined
  warnings: string[]
  /** Where the next page begins. */
  next?: number | undefined
}

/** A result whose text and structure say the same. */
export function result(content: Body, { warnings, next }: Partial<Answer> = {}): CallToolResult {
  const whole = { ...content, ...(next !== undefined && { next }), ...(warnings?.[0] && { warnings }) }
  return { content: [{ type: 'text', text: stringifyExact(whole) }], structuredContent: marked(whole) }
}

/** A refusal in words. `more` has the members that a program reads. */
export function refusal(message: string, more: Body = {}): CallToolResult {
  return { content: [{ type: 'text', text: message }], structuredContent: marked({ message, ...more }), isError: true }
}

/** The same with marks in the place of numbers that JavaScript writes otherwise: the text of the answer has them as they were. */
function marked(content: Body): Body {
  return JSON.parse(JSON.stringify(content, numberReplacer)) as Body // an object stays one
}

/** What an operation refused, for the model. `id`: of the agent or tool, where the call names one. */
export function refused({ status, body, warnings }: Answer, kind: ToolKind, id?: number): CallToolResult {
  const { detail, ...members } = body ?? {}
  const more = { status, ...members, ...(warnings.length > 0 && { warnings }) }
  if (Array.isArray(detail)) return faulty(detail as Pick<Fault, 'loc' | 'msg'>[], more) // of a 422
  return refusal(sentence(String(detail), members, kind, id), more)
}

/** The faults of a refusal; more are counted. */
const FAULTS_MAX = 100

/** Every fault of a call, with its place. */
export function faulty(found: readonly Pick<Fault, 'loc' | 'msg'>[], more: Body = {}): CallToolResult {
  const faults = found.slice(0, FAULTS_MAX).map(({ loc, msg }) => ({ place: placeOf(loc), msg }))
  const lines = faults.map(({ place, msg }) => `\n- ${place}: ${msg}`)
  if (found.length > FAULTS_MAX) lines.push(`\n- and ${found.length - FAULTS_MAX} more`)
  return refusal(`Refused, and nothing was changed. Correct this and call again:${lines.join('')}`, { ...more, faults })
}

function sentence(detail: string, members: Body, kind: ToolKind, id?: number): string {
  switch (members.error_code) {
    case 'PERSONA_NOT_FOUND':
    case 'NOT_FOUND':
      return `${detail} list_${kind}s names those that you see.`
    case 'SERVICE_UNAVAILABLE':
      return `${detail} ${OUTCOMES[String(members.outcome)] ?? ''}`.trimEnd()
    case 'PRECONDITION_FAILED':
      return `Nothing was changed by this call. ${changedSince(members)} ${readFirst(kind, id)} and apply your change to what it answers.`
    default:
      return detail
  }
}

const OUTCOMES: Record<string, string> = {
  applied: 'Do not call again: the change is stored.',
  not_applied: 'Nothing was changed: call again with the same arguments.',
  unknown: 'It may be stored: call again with the same arguments and etag, which changes nothing twice.',
}

/** What a stale tag missed. */
function changedSince({ reason, changed, applied_etag: applied }: Body): string {
  if (reason === 'unknown_tag') return 'There never was a state with this etag: copy it whole from an answer.'
  const changes = (changed ?? []) as { field: string; by: string; at: string }[] // of a 412
  const named = changes.map(({ field, by, at }) => `${field} (${by}, ${at})`).join(', ')
  const since = named === '' ? 'What changed since is no longer known.' : `Changed since: ${named}.`
  return typeof applied === 'string' ? `Your change was stored before, as ${applied}. ${since}` : since
}

/** The call that answers the etag. */
export function readFirst(kind: ToolKind, id?: number): string {
  return `Call get_${kind}${id === undefined ? '' : ` with id ${id}`}, send the etag of its answer`
}

/** The argument that a place of a request comes from. */
function placeOf([part, ...path]: (string | number)[]): string {
  if (part === 'header') return 'etag'
  if (part === 'path') return 'id'
  return path[0] === 'update_mask' || path.length === 0 ? 'fields' : path.join('.')
}
