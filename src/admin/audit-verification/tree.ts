import type { Kysely } from 'kysely'
import type { Database } from '../../db/tables.js'
import { readLeaves, readTree } from '../../updates/audit-leaves.js'
import { HashTree } from '../../updates/hash-tree.js'
import type { Checkpoint } from '../checkpoint.js'
import { type AuditFinding, notesOf } from './findings.js'

/** Recomputes the root over all leaves, and compares it with the stored one and with that of the checkpoint. */
export async function treeFindings(db: Kysely<Database>, checkpoint: Checkpoint | undefined): Promise<AuditFinding[]> {
  const { findings, note } = notesOf('tree', '')
  const stored = await readTree(db)
  const tree = new HashTree()
  const compare = () => {
    if (checkpoint?.size !== tree.size || tree.root().equals(checkpoint.root)) return
    note(tree.size, 'checkpoint_mismatch', 'what was there at the checkpoint is not what is there now')
  }
  compare()
  for await (const leaf of readLeaves(db)) {
    if (leaf.position !== tree.size) {
      note(tree.size, 'leaf_mismatch', 'leaves are missing in the tree')
      return findings
    }
    tree.add(leaf.hash)
    compare()
  }
  if (checkpoint && checkpoint.size > tree.size) {
    const msg = `there were ${checkpoint.size} leaves at the checkpoint, and there are ${tree.size}`
    note(tree.size, 'checkpoint_mismatch', msg)
  }
  if (stored.size !== tree.size || !stored.root().equals(tree.root())) {
    note(stored.size, 'leaf_mismatch', 'the leaves are not those that the tree was made of')
  }
  return findings
}
