import { Readable } from 'node:stream'
import type { FastifyReply } from 'fastify'
import type { ResourceKind } from '../db/tables.js'
import { entityTag, type Precondition, representationTag } from '../updates/tag.js'
import { NO_PRECONDITION } from './parameters.js'
import { addWarnings } from './warnings.js'

/** The media type of answers, with the charset that Fastify would otherwise append to each answer. */
export const JSON_TYPE = 'application/json; charset=utf-8'

/** Reports the preferences that were applied in `Preference-Applied`, and adds `Vary` (RFC 7240, sections 2 and 3). */
export function notePreferences(reply: FastifyReply, preferences: Readonly<Record<string, boolean>>): void {
  const applied = Object.keys(preferences).filter(name => preferences[name])
  if (applied.length === 0) return
  const others = reply.getHeader('vary')
  reply.header('preference-applied', applied.join(', '))
  reply.header('vary', others === undefined ? 'Prefer' : `${String(others)}, Prefer`)
}

export interface ReadAnswer {
  kind: ResourceKind
  id: number
  version: number
  snapshot: string
  /** Notes on parts of an earlier version that cannot be shown. */
  notes?: readonly string[]
}

/** The 200 of a read, or its 304. The tag includes a digest of the body, because parts of a snapshot can change without a new version. */
export function answerRead(reply: FastifyReply, answer: ReadAnswer, ifNoneMatch: Precondition): string | FastifyReply {
  const { kind, id, version, snapshot, notes = [] } = answer
  addWarnings(reply, notes)
  return answerTagged(reply, representationTag(entityTag(kind, id, version), snapshot), snapshot, ifNoneMatch)
}

/** Sends a 200 with this JSON text, or a 304 if the caller already has it. */
export function answerTagged(
  reply: FastifyReply,
  tag: string,
  text: string,
  ifNoneMatch: Precondition = NO_PRECONDITION,
): string | FastifyReply {
  reply.header('etag', tag)
  if (ifNoneMatch.kind === 'any' || (ifNoneMatch.kind === 'tags' && ifNoneMatch.tags.includes(tag))) {
    // A 304 to GET is sent without a body, because even an empty text would get a type and a length. For HEAD, an empty stream keeps Fastify
    // from adding a length different from that of the 200 (RFC 9110, section 8.6).
    return reply.code(304).send(reply.request.method === 'HEAD' ? Readable.from([]) : undefined)
  }
  reply.type(JSON_TYPE)
  return text
}
