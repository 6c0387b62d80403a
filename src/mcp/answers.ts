import type { CallToolResult } from '@modelcontextprotocol/server'
import type { Fault } from '../errors.js'

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

/** What a call was about, for the words of its refusal. */
export interface Call {
  kind: ToolKind
  id?: number | undefined
  /** The argument that the body of its request came from; the body's members are arguments themselves if it is absent. */
  argument?: 'fields'
  /** The call that answers the etag. */
  first?: string
}

/** A result whose text and structure say the same. */
export function result(content: Body, { warnings, next }: Partial<Answer> = {}): CallToolResult {
  const structuredContent = { ...content, ...(next !== undefined && { next }), ...(warnings?.[0] && { warnings }) }
  return { content: [{ type: 'text', text: JSON.stringify(structuredContent) }], structuredContent }
}

/** A refusal in words. `more` has the members that a program reads. */
export function refusal(message: string, more: Body = {}): CallToolResult {
  return { content: [{ type: 'text', text: message }], structuredContent: { message, ...more }, isError: true }
}

/** What an operation refused, for the model. */
export function refused({ status, body, warnings }: Answer, call: Call): CallToolResult {
  const { detail, ...members } = body ?? {}
  const more = { status, ...members, ...(warnings.length > 0 && { warnings }) }
  if (!Array.isArray(detail)) return refusal(sentence(String(detail), members, call), more)
  const faults = detail as Pick<Fault, 'loc' | 'msg'>[] // of a 422
  return refusal(...faulty(faults, loc => placeOf(loc, call), more))
}

/** The faults of a refusal; more are counted. */
const FAULTS_MAX = 100

/** Every fault of a call in words and for programs. `placeOf` says where in the arguments it is. */
export function faulty(
  found: readonly Pick<Fault, 'loc' | 'msg'>[],
  placeOf: (loc: Fault['loc']) => string = loc => loc.slice(1).join('.') || 'message',
  more: Body = {},
): [string, Body] {
  const faults = found.slice(0, FAULTS_MAX).map(({ loc, msg }) => ({ place: placeOf(loc), msg }))
  const lines = faults.map(({ place, msg }) => `\n- ${place}: ${msg}`)
  if (found.length > FAULTS_MAX) lines.push(`\n- and ${found.length - FAULTS_MAX} more`)
  return [`Refused, and nothing was changed. Correct this and call again:${lines.join('')}`, { ...more, faults }]
}

function sentence(detail: string, members: Body, { kind, first }: Call): string {
  switch (members.error_code) {
    case 'PERSONA_NOT_FOUND':
      return `${detail} list_agents names those that you see; history and restore take deleted agents too.`
    case 'NOT_FOUND':
      return `${detail} list_${kind}s names those that you see.`
    case 'SERVICE_UNAVAILABLE':
      return `${detail} ${OUTCOMES[String(members.outcome)] ?? ''}`.trimEnd()
    case 'PRECONDITION_FAILED':
      return `Nothing was changed by this call. ${changedSince(members)} ${first}`
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

/** The argument that a place of a request comes from. */
function placeOf([part, ...path]: Fault['loc'], { argument }: Call): string {
  if (part === 'header') return 'etag'
  if (part === 'path') return 'id'
  if (part === 'query') return argument ?? String(path[0])
  return [...(argument ? [argument] : []), ...path].join('.')
}
