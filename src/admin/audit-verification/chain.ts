import type { ResourceKind } from '../../db/tables.js'
import { auditHash, commitment, GENESIS_HASH, type StoredRow, sha256 } from '../../updates/audit.js'
import type { PruningMark } from '../../updates/prune.js'
import { ERASED, type Erasures, remainsOf } from '../erasure.js'
import { type AuditFinding, type Note, notesOf, type Problem } from './findings.js'

/** What an agent or tool says of its own chain. Hashes are hex. */
export interface Resource {
  id: number
  version: number
  audit_head: string
  audit_count: number
  audit_anchor: string
  audit_anchor_version: number
}

/** An agent or tool and its kept audit rows, oldest first. */
export interface Chain {
  kind: ResourceKind
  id: number
  /** Absent where it was removed. */
  resource: Resource | undefined
  rows: readonly StoredRow[]
  /** What pruning says that it took. */
  mark: PruningMark | undefined
  /** The hashes of its rows in the tree, by version. */
  leaves: ReadonlyMap<number, string>
}

/** What is wrong with the rows of a chain, one by one and one after the other, and with both of its ends. */
export function chainFindings(chain: Chain, erasures: Erasures): AuditFinding[] {
  const { kind, id, resource, rows, mark } = chain
  const { findings, note } = notesOf(kind, String(id))
  if (id < 1) note(0, 'unrecorded', 'no id is below 1: it was put there by SQL')
  const start = startOf(chain)
  let [version, head] = [start.version, start.hash]
  let followsWhole = true
  for (const row of rows) {
    const problem = rowProblem(row, erasures, mark)
    if (problem) note(row.version_after, ...problem)
    const isWhole = problem?.[0] !== 'edited'
    if (row.version_before > version) {
      const gone = row.version_before - version
      const what = gone === 1 ? 'a row is' : `${gone} rows are`
      note(version + 1, 'deleted', `${what} missing before version ${row.version_after}, and no pruning says so`)
    } else if (row.previous_hash !== head && isWhole && followsWhole) {
      const msg = 'the row does not follow the one before it: one of the two was replaced or moved'
      note(row.version_after, 'reordered', msg)
    }
    followsWhole = isWhole
    version = row.version_after
    head = row.hash
  }
  if (resource !== undefined) endFindings(resource, start, version, head, note)
  else if (rows.at(-1)?.fields.includes('removed') !== true && version > (mark?.anchor_version ?? -1)) {
    const what = kind === 'tool' ? 'tool' : 'agent'
    note(version, 'resource_missing', `the ${what} is gone, and no row says that it was removed`)
  }
  return findings
}

interface ChainStart {
  version: number
  hash: string
}

/**
 * Where the kept rows begin: behind what pruning took. A tool that was removed and pruned before 1.2 has no such event; then its
 * first row is taken at its word, as far as no leaf says that there was an older one.
 */
function startOf({ resource, rows: [first], mark, leaves }: Chain): ChainStart {
  if (mark && (mark.anchor_version > 0 || resource !== undefined)) {
    return { version: mark.anchor_version, hash: mark.anchor_hash }
  }
  if (resource === undefined && first?.identity_hash === null) {
    const version = Math.min(first.version_before, ...[...leaves.keys()].map(number => number - 1))
    return { version, hash: first.previous_hash }
  }
  return { version: 0, hash: GENESIS_HASH }
}

function endFindings(resource: Resource, start: ChainStart, version: number, head: string, note: Note): void {
  if (resource.audit_anchor_version !== start.version || resource.audit_anchor !== start.hash) {
    const msg = `the resource says that rows up to version ${resource.audit_anchor_version} were pruned, and no pruning says so`
    note(resource.audit_anchor_version, 'anchor_mismatch', msg)
  }
  if (resource.version < 1) note(resource.version, 'unrecorded', 'it is there, and no row says that it was made')
  if (version < resource.version) {
    const gone = resource.version - version
    const what = gone === 1 ? 'row is' : `${gone} rows are`
    note(version + 1, 'deleted', `the last ${what} missing, up to version ${resource.version}`)
  } else if (version > resource.version) {
    note(resource.version + 1, 'head_mismatch', `there are rows up to version ${version}, beyond that of the resource`)
  } else if (head !== resource.audit_head) {
    note(version, 'head_mismatch', 'the last row is not the one that the resource names as its head')
  }
  if (resource.audit_count !== resource.version) {
    const msg = `the resource counts ${resource.audit_count} changes at version ${resource.version}`
    note(resource.version, 'head_mismatch', msg)
  }
}

const EDITED: Problem = ['edited', 'the row does not have the content that its hash was made of']
const ERASED_BY_HAND: Problem = ['erased', 'who made the change was erased, and no erasure says so']

/** What is wrong with a row by itself. A pruned difference stands by its hash, an erased person by the commitment. */
function rowProblem(row: StoredRow, erasures: Erasures, mark: PruningMark | undefined): Problem | undefined {
  const isErased = row.salt === null && row.actor === ERASED && row.client_address === ERASED
  const remains = erasures.get(`${row.resource_kind}:${row.resource_id}:${row.version_after}`)
  const isHashed = isErased && row.identity_hash === null ? remains === remainsOf(row) : auditHash(row) === row.hash
  if (isErased && remains === undefined) return ERASED_BY_HAND
  if (!isHashed || (isErased && remains !== remainsOf(row))) return EDITED
  // The hash of a row of 1.0 or 1.1 covers none of these, and those versions wrote none.
  if (row.identity_hash === null && (row.salt ?? row.command ?? row.content_hash) !== null) return EDITED
  if (!isErased && row.identity_hash !== null) {
    if (row.salt === null || commitment(row.salt, row.actor, row.client_address) !== row.identity_hash) return EDITED
  }
  if (row.difference === null) {
    if (row.version_after > (mark?.emptied_to ?? 0)) {
      return ['emptied', 'what changed is gone, and no pruning says so']
    }
    return row.definition_before === null ? undefined : EDITED
  }
  if (sha256(row.difference) !== row.difference_hash) return EDITED
  if (Buffer.byteLength(row.difference) !== row.difference_bytes) return EDITED
  const difference = readDifference(row.difference)
  if (difference === undefined) return EDITED
  return (difference.definition?.from ?? null) === row.definition_before ? undefined : EDITED
}

/** What a stored difference says, by field; undefined where the program writes none like it. */
export function readDifference(text: string): Record<string, { from?: unknown; to?: unknown }> | undefined {
  const difference: unknown = JSON.parse(text)
  if (!isObject(difference)) return undefined
  const changes = Object.entries(difference)
  return changes.every((entry): entry is [string, object] => isObject(entry[1]))
    ? Object.fromEntries(changes)
    : undefined
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Compares rows with their leaves, which nobody changes. Rows that pruning took have only leaves. */
export function leafFindings({ kind, id, resource, rows, mark, leaves }: Chain): AuditFinding[] {
  const { findings, note } = notesOf(kind, String(id))
  const newest = Math.max(0, ...leaves.keys())
  for (const { version_after, hash } of rows) {
    if (version_after <= newest && leaves.get(version_after) !== hash) {
      note(version_after, 'leaf_mismatch', 'the row is not the one that was added to the tree')
    }
  }
  // Pruning adds a row to the tree before it takes it. What 1.0.0 pruned was never there.
  const isInTree = mark !== undefined && mark.anchor_version >= Math.min(...leaves.keys())
  if (isInTree && leaves.get(mark.anchor_version) !== mark.anchor_hash) {
    const msg = 'what pruning names as the last row that it took is not what was added to the tree'
    note(mark.anchor_version, 'anchor_mismatch', msg)
  }
  const end = rows.at(-1)?.version_after ?? mark?.anchor_version ?? 0
  // What is missing up to the version of the resource is said of its chain.
  if (newest > Math.max(end, resource?.version ?? 0))
    note(end + 1, 'deleted', `rows up to version ${newest} were added to the tree, and are gone`)
  return findings
}
