import type { Kysely } from 'kysely'
import type { Database } from '../db/tables.js'
import { growTree, readTree } from '../updates/audit-leaves.js'
import { type SigningKey, signedNote } from './checkpoint.js'

/** Adds what is new to the tree, and answers a checkpoint of it. */
export async function makeCheckpoint(db: Kysely<Database>, key: SigningKey): Promise<{ size: number; note: string }> {
  await growTree(db)
  const tree = await readTree(db)
  return { size: tree.size, note: signedNote({ size: tree.size, root: tree.root() }, key) }
}
