import { Readable } from 'node:stream'
import type { FastifyReply } from 'fastify'
import type { ResourceKind } from '../db/tables.js'
import type { AnswerText } from '../updates/answer-text.js'
import { entityTag, type Precondition, representationTag } from '../updates/tag.js'
import { NO_PRECONDITION } from './parameters.js'
import { addWarnings } from './warnings.js'

/** The media type of answers, as it is sent: to one without its charset Fastify would add that, each time anew. */
export const JSON_TYPE = 'application/json; charset=utf-8'

/** What an update led to. `version` is the stored one, also after a dry run. */
interface Updated {
  id: number
  version: number
  /** Sent as it is; null where the caller wants none. */
  snapshot: AnswerText | null
  /** Null where it answers the repetition of a request that was stored before. */
  decision: object | null
  /** Whether it was merged into what others made since. */
  merged: boolean
  /** What the caller should know of the answer as a whole: beside the warnings, which may be cut. */
  notes: readonly string[]
}

/**
 * The 200 of an update, or the 204 where no record is wanted: sets the headers, answers the bytes to send. Of a creation the 201, with the address
 * below which it is read, unless a dry run created nothing; of a deletion the 204.
 */
export function answerUpdate(
  reply: FastifyReply,
  kind: ResourceKind,
  { dryRun, strict }: { dryRun: boolean; strict: boolean },
  { id, version, snapshot, decision, merged, notes }: Updated,
  warnings: readonly string[],
  { below, isGone = false }: { below?: string; isGone?: boolean } = {},
): Buffer | FastifyReply {
  const isCreation = below !== undefined
  if (!isGone && !(isCreation && dryRun)) reply.header('etag', entityTag(kind, id, version))
  if (isCreation && !dryRun) reply.header('location', `${below}/${id}`)
  if (decision === null) reply.header('idempotent-replayed', 'true')
  addWarnings(reply, warnings)
  addWarnings(reply, notes)
  if (dryRun) reply.header('dry-run', 'true')
  const isMinimal = snapshot === null && !isGone
  const isStrict = strict && decision !== null // what was stored before is not judged again
  const applied = [isStrict && 'handling=strict', merged && 'merge=fields', isMinimal && 'return=minimal']
  notePreferences(
    reply,
    applied.filter(preference => preference !== false),
  )
  if (snapshot === null) return reply.code(isCreation ? 201 : 204).send()
  if (isCreation) reply.code(201)
  reply.type(JSON_TYPE)
  return snapshot.toBuffer()
}

/** Says which preferences of the request were applied, and that the answer depends on them (RFC 7240, sections 2 and 3). */
export function notePreferences(reply: FastifyReply, applied: readonly string[]): void {
  if (applied.length === 0) return
  const others = reply.getHeader('vary')
  reply.header('preference-applied', applied.join(', '))
  reply.header('vary', others === undefined ? 'Prefer' : `${String(others)}, Prefer`)
}

/** The `Link` to where an edited body goes, relative to the address that was read; `mask` names its fields unless it is whole. */
export function editLink(path: string, mask?: readonly string[]): string {
  return `<${path}${mask === undefined ? '' : `?update_mask=${mask.join(',')}`}>; rel="edit"`
}

/** What a read found. */
export interface ReadAnswer {
  kind: ResourceKind
  id: number
  version: number
  /** Sent as it is. */
  snapshot: AnswerText
  /** Of the past: what the caller should know of it. */
  notes?: readonly string[]
}

/** The 200 of a read, or its 304. The tag holds a digest of the body: a snapshot also shows what changes without a new version. */
export function answerRead(reply: FastifyReply, answer: ReadAnswer, ifNoneMatch: Precondition): Buffer | FastifyReply {
  const { kind, id, version, snapshot, notes = [] } = answer
  addWarnings(reply, notes)
  return answerTagged(reply, representationTag(entityTag(kind, id, version), snapshot), snapshot, ifNoneMatch)
}

/** The 200 with this JSON text, or the 304 where the caller has what its tag stands for. */
export function answerTagged(
  reply: FastifyReply,
  tag: string,
  text: AnswerText,
  ifNoneMatch: Precondition = NO_PRECONDITION,
): Buffer | FastifyReply {
  reply.header('etag', tag)
  if (ifNoneMatch.kind === 'any' || (ifNoneMatch.kind === 'tags' && ifNoneMatch.tags.includes(tag))) {
    // Nothing: an empty text would have a type and a length of its own. To HEAD even nothing would have one, which is not that of
    // the 200 (RFC 9110, section 8.6); of a stream none is said.
    return reply.code(304).send(reply.request.method === 'HEAD' ? Readable.from([]) : undefined)
  }
  reply.type(JSON_TYPE)
  return text.toBuffer()
}
