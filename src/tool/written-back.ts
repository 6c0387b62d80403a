import { withRetries } from '../db/connection/retry.js'
import type { ServiceDatabase } from '../db/transaction.js'
import { readMergeBase } from '../updates/merge.js'
import type { WorkBounds } from '../updates/resource.js'
import { type Precondition, versionsInTags } from '../updates/tag.js'
import { cachePlain, isKnownPlain } from './definition-cache.js'
import { pastToolSizes } from './past.js'
import type { CheckedDefinition } from './rules.js'
import type { ToolState } from './state.js'
import { type StoredDefinition, textOf } from './stored-origins.js'
import type { BodyWorkers, TaskRequest } from './worker/pool.js'
import type { RoundedNumber } from './written-numbers.js'

/** A definition that was sent, or the stored one where it is that but for the writing of numbers, and what was rounded. */
export interface WrittenBack {
  definition: CheckedDefinition
  rounded: RoundedNumber[]
}

/** Who sends it, and which version it was made from. */
interface Asked extends Omit<TaskRequest, 'body'> {
  precondition: Precondition
  merges: boolean
}

/**
 * Compares a definition with the one that it was made from: the stored one or, of a merge, that of the oldest version that
 * the precondition names. The text is read only where that one may hold a number that JavaScript writes in another way.
 * A stored text never changes: what is decided here rests on no lock. Throws what the database throws.
 */
export async function writtenBack(
  { database, workers, bounds }: { database: ServiceDatabase; workers: BodyWorkers; bounds: WorkBounds },
  state: ToolState,
  definition: CheckedDefinition,
  asked: Asked,
): Promise<WrittenBack> {
  const base = await baseOf(database, bounds, state, asked)
  const asSent = { definition, rounded: [] }
  if (base === null || base.hash === definition.hash || isKnownPlain(base.hash)) return asSent
  const { caller, raw } = asked
  let text: string | undefined
  const read = async () => {
    text = await textOf(database, base)
    return text
  }
  const job = { caller, raw, body: {} }
  const texts = { strict: false, sent: definition.text }
  const compared = await workers.run('compare_numbers', job, texts, { bytes: base.bytes, text: read })
  if (compared === undefined || text === undefined) return asSent
  if (compared.isStoredPlain) cachePlain(base.hash)
  return { definition: compared.isSame ? { hash: base.hash, text } : definition, rounded: compared.rounded }
}

/** The definition that a request was made from. That of an earlier version is looked up by few at a time. */
async function baseOf(
  { db }: ServiceDatabase,
  bounds: WorkBounds,
  { id, version, definition_hash: hash, definition_bytes: bytes }: ToolState,
  { merges, precondition, caller }: Asked,
): Promise<StoredDefinition | null> {
  const present = hash === null ? null : { hash, bytes }
  const versions = merges ? versionsInTags(precondition, 'tool', id, version) : []
  if (versions.length === 0) return present
  const reading = async () => {
    const values = (await readMergeBase(db, 'tool', id, Math.min(...versions)))?.values
    if (typeof values?.definition !== 'string') return present
    return { hash: values.definition, bytes: (await pastToolSizes(db, [{ id, values }])).bytes }
  }
  return await bounds.expensive(String(caller.token.id), () => withRetries(reading))
}
