import { TRY_AGAIN, Unavailable } from '../errors.js'
import { CommitUnknown, classifyDatabaseError, KINDS, type Kind, WaitedInVain } from './connection/database-error.js'

/**
 * Translates a database failure into what the client may conclude from it, without the database's own text; undefined for other errors.
 * With any error but `CommitUnknown` the transaction was not applied. After a first write, a later error must not be passed through.
 */
export function unavailableFor(error: unknown): Unavailable | undefined {
  const [, reason, sentence = '']: Kind = KINDS[classifyDatabaseError(error).kind]
  if (reason === undefined) return undefined
  if (error instanceof WaitedInVain) {
    const waited = `This request waited ${error.waitMs / 1_000} s for ${error.awaited}, which is the longest wait.`
    return new Unavailable(reason, `${waited} ${TRY_AGAIN}`, 'not_applied', { cause: error })
  }
  const outcome = error instanceof CommitUnknown ? 'unknown' : 'not_applied'
  return new Unavailable(reason, sentence, outcome, { cause: error })
}
