/** A fault of the audit trail. `number` is the version, or the number of an event. */
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

/** The fault of one row or event, with its message. */
export type Problem = readonly [problem: AuditFinding['problem'], msg: string]

/** Maps places such as `persona:12:7` to the hash of the row or event that an erasure cleared. */
export type Erasures = ReadonlyMap<string, string>
