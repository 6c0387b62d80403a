/** Something wrong with the audit trail. `number` is the version, or of an event its number. */
export interface AuditFinding {
  /** `persona` for an agent, `tool`, `tool_definition`, or the kind of an event. */
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
    | 'checkpoint_mismatch'
  msg: string
}

export interface AuditVerification {
  /** Chains of agents, tools and access events. */
  chains: number
  /** Rows and events. */
  rows: number
  findings: AuditFinding[]
}

/** What is wrong with one row or event, and how to say so. */
export type Problem = readonly [problem: AuditFinding['problem'], msg: string]

/** By place, such as `persona:12:7`: the hash of each row and event from which an erasure took somebody's name. */
export type Erasures = ReadonlyMap<string, string>
