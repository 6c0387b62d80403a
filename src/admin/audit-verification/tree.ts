import { type Kysely, sql } from 'kysely'
import type { Database } from '../../db/tables.js'
import { INT4_MAX } from '../../schema/vocabulary.js'
import { ACCESS_KINDS } from '../../updates/access-events.js'
import { readLeaves, readTree } from '../../updates/audit-leaves.js'
import { HashTree } from '../../updates/hash-tree.js'
import { RESOURCE_KINDS } from '../../updates/resource-pages.js'
import type { Checkpoint } from '../checkpoint.js'
import { type AuditFinding, notesOf } from './findings.js'

const KINDS = [...RESOURCE_KINDS, ...ACCESS_KINDS]

/** So many misplaced leaves are told: who moved one may have moved all. */
const MISPLACED_MAX = 100

/**
 * The tree covers the hash of each leaf and not which row it is of: that is held here. The leaves of a chain stand in the order
 * of its rows, one for each; up to 1.3 of the prunings of a resource only the last event was kept, and may have been without a leaf.
 */
export async function leafOrderFindings(db: Kysely<Database>): Promise<AuditFinding[]> {
  const { rows } = await sql<{ kind: string; subject: string; number: number }>`
    select kind, subject, number from (
      select *, lag(number) over (partition by kind, subject order by position) as before from audit_leaf) leaf
    where (number <> before + 1 and (kind <> 'prune' or number <= before)) or number < 1 or position < 0
      or kind <> all(${KINDS}::text[])
      or (kind = any(${[...RESOURCE_KINDS]}::text[])
        and (subject !~ '^[1-9][0-9]{0,9}$' or lpad(subject, 10, '0') collate "C" > ${String(INT4_MAX)}))
    order by position limit ${MISPLACED_MAX}::integer`.execute(db)
  const msg = 'the leaves of this chain are not one for each row, in their order'
  return rows.map(leaf => ({ ...leaf, problem: 'leaf_mismatch', msg }))
}

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
