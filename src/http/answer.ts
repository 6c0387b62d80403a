import type { FastifyReply } from 'fastify'
import type { ResourceKind } from '../db/tables.js'
import { entityTag, type Precondition, representationTag } from '../updates/tag.js'
import { countBytes } from './limits.js'
import { addWarnings } from './warnings.js'

/** What an update's 200 carries beside its body. `version` is the stored one, also after a dry run. */
export interface UpdateAnswer {
  kind: ResourceKind
  id: number
  version: number
  /** JSON text, sent as it is. */
  snapshot: string
  dryRun: boolean
  strict: boolean
  /** Whether it answers the repetition of a request that was stored before. */
  replayed: boolean
  /** Whether it was merged into what others made since. */
  merged: boolean
  warnings: string[]
}

/**
 * The 200 of an update: sets entity tag, what was preferred, and what the caller should know; answers the text to send.
 * The text and not the reply: an async handler that returns the reply has Fastify watch it until it has gone out.
 */
export function answerUpdate(reply: FastifyReply, answer: UpdateAnswer): string {
  reply.header('etag', entityTag(answer.kind, answer.id, answer.version))
  if (answer.replayed) reply.header('idempotent-replayed', 'true')
  addWarnings(reply, answer.warnings)
  if (answer.dryRun) reply.header('dry-run', 'true')
  const preferences = [answer.strict && 'handling=strict', answer.merged && 'merge=fields'].filter(Boolean)
  if (preferences.length > 0) reply.header('preference-applied', preferences.join(', '))
  reply.type('application/json')
  return answer.snapshot
}

/** What a read found. */
export interface ReadAnswer {
  kind: ResourceKind
  id: number
  version: number
  /** JSON text, sent as it is. */
  snapshot: string
}

/**
 * The 200 of a read, or its 304 where the caller has this very representation. The tag is that of the stored version with a
 * digest of the body behind it: what a snapshot shows beside the resource's own fields changes without a new version.
 */
export function answerRead(reply: FastifyReply, answer: ReadAnswer, ifNoneMatch: Precondition): string | FastifyReply {
  const { kind, id, version, snapshot } = answer
  const tag = representationTag(entityTag(kind, id, version), snapshot)
  reply.header('etag', tag)
  if (ifNoneMatch.kind === 'any' || (ifNoneMatch.kind === 'tags' && ifNoneMatch.tags.includes(tag))) {
    countBytes(reply.request, snapshot.length) // it was made as if it were sent
    return reply.code(304).send() // nothing: an empty text would have a type and a length of its own
  }
  reply.type('application/json')
  return snapshot
}
