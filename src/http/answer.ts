import type { FastifyReply } from 'fastify'
import type { ResourceKind } from '../db/tables.js'
import { entityTag } from '../updates/tag.js'
import { warningHeader } from './warnings.js'

/** What an update's 200 carries beside its body. `version` is the stored one, also after a dry run. */
export interface UpdateAnswer {
  kind: ResourceKind
  id: number
  version: number
  /** JSON text, sent as it is. */
  snapshot: string
  dryRun: boolean
  strict: boolean
  warnings: string[]
}

/**
 * The 200 of an update: sets entity tag, what was preferred, and what the caller should know; answers the text to send.
 * The text and not the reply: an async handler that returns the reply has Fastify watch it until it has gone out.
 */
export function answerUpdate(reply: FastifyReply, answer: UpdateAnswer): string {
  const warning = warningHeader(answer.warnings)
  reply.header('etag', entityTag(answer.kind, answer.id, answer.version))
  if (warning !== undefined) reply.header('warning', warning)
  if (answer.dryRun) reply.header('dry-run', 'true')
  if (answer.strict) reply.header('preference-applied', 'handling=strict')
  reply.type('application/json')
  return answer.snapshot
}
