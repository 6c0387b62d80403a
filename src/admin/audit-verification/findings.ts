import type { ResourceKind } from '../../db/tables.js'
import type { Checkpoint } from '../checkpoint.js'

/** Something wrong with the audit trail. `number` is the version, or of an event its number, or of the tree its size. */
export interface AuditFinding {
  /** `persona` for an agent, `tool`, `tool_definition`, the kind of an event, or `tree`. */
  kind: string
  subject: string
  number: number
  problem:
    | 'edited'
    | 'emptied'
    | 'erased'
    | 'deleted'
    | 'reordered'
    | 'anchor_mismatch'
    | 'head_mismatch'
    | 'resource_missing'
    | 'unrecorded'
    | 'content_mismatch'
    | 'leaf_mismatch'
    | 'checkpoint_mismatch'
  msg: string
}

export interface AuditVerification {
  /** Chains of agents, tools and access events. */
  chains: number
  /** Rows and events. */
  rows: number
  findings: AuditFinding[]
  /** The hash over the heads of all chains, to be exported and compared later; hex. */
  head: string
}

/** What to verify, and what to compare it with. */
export interface VerifyOptions {
  /** Only the chain of this agent or tool. `head` is then the hash of its last row. */
  only?: { kind: ResourceKind; id: number }
  /** What the tree was once: it must still be so. */
  checkpoint?: Checkpoint
  progress?(rows: number): void
}

/** Collects findings of one chain. */
export function notesOf(kind: string, subject: string) {
  const findings: AuditFinding[] = []
  const note = (number: number, problem: AuditFinding['problem'], msg: string) =>
    findings.push({ kind, subject, number, problem, msg })
  return { findings, note }
}

export type Note = ReturnType<typeof notesOf>['note']

/** What is wrong with one row or event, and how to say so. */
export type Problem = readonly [problem: AuditFinding['problem'], msg: string]

/** What a row or event is of, as people read and name it: `agent:12`, `user:ID`, `prune:agent:12`. */
export function placeOf({ kind, subject }: { kind: string; subject: string }): string {
  const place = subject === '' ? kind : `${kind}:${subject}`
  return place.replace(/^(prune:)?persona:/, '$1agent:')
}

/** The hash of a row or event as it was added to the tree. */
export interface Leaf {
  subject: string
  number: number
  hash: string
}

/** The hashes by subject and number. */
export function leavesBySubject(leaves: readonly Leaf[]): Map<string, Map<number, string>> {
  const subjects = grouped(leaves, leaf => leaf.subject)
  return new Map([...subjects].map(([subject, own]) => [subject, new Map(own.map(leaf => [leaf.number, leaf.hash]))]))
}

/** The items by key, each group in the order of the items. */
export function grouped<Key, Item>(items: readonly Item[], keyOf: (item: Item) => Key): Map<Key, Item[]> {
  const groups = new Map<Key, Item[]>()
  for (const item of items) {
    const group = groups.get(keyOf(item))
    if (group) group.push(item)
    else groups.set(keyOf(item), [item])
  }
  return groups
}
