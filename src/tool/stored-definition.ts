import { withRetries } from '../db/connection/retry.js'
import type { Database } from '../db/database.js'
import { readMergeBase } from '../updates/merge.js'
import type { UpdateRequest } from '../updates/resource.js'
import { versionsInTags } from '../updates/tag.js'
import { cachedTexts } from './definition-cache.js'
import type { ToolState } from './snapshot.js'
import { readDefinition, readDefinitionBytes } from './statements.js'

/** A stored definition: its hash in hex and its approximate size in bytes. */
export interface StoredDefinition {
  hash: string
  bytes: number
}

/** Reads the text of a stored definition; undefined if it was pruned. */
export async function textOf({ db }: Database, { hash }: StoredDefinition): Promise<string | undefined> {
  const cached = cachedTexts([hash]).get(hash)
  if (cached !== undefined) return cached.toString()
  return (await withRetries(() => readDefinition.first(db, { hash })))?.definition
}

/** Returns the definition that a request edits: the stored one or, for a merge, that of the version in `If-Match`. */
export async function baseOf(
  { db }: Database,
  { id, version, definition_hash: hash, definition_bytes: bytes }: ToolState,
  { merges, precondition, caller, bounds }: Pick<UpdateRequest, 'merges' | 'precondition' | 'caller' | 'bounds'>,
): Promise<StoredDefinition | undefined> {
  const present = hash === null ? undefined : { hash, bytes }
  const versions = merges ? versionsInTags(precondition, 'tool', id, version) : []
  if (versions.length === 0) return present
  const reading = async () => {
    const values = (await readMergeBase(db, 'tool', id, Math.min(...versions)))?.values
    if (typeof values?.definition !== 'string') return present
    const [stored] = await readDefinitionBytes.run(db, { hash: values.definition })
    return { hash: values.definition, bytes: stored?.bytes ?? 0 }
  }
  return await bounds.expensive(String(caller.token.id), () => withRetries(reading))
}
