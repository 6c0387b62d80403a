import type { SectionName } from '../document.js'
import type { Id } from './catalogue.js'

/** What applying a document did, or would do, with one row. */
export interface Outcome {
  section: SectionName
  id: Id
  name: string
  /** `kept`: pruning would have removed it, but `reason` forbids that. `only_here`: no entry names it, and nothing is pruned. */
  action: 'created' | 'changed' | 'unchanged' | 'removed' | 'kept' | 'only_here'
  /** The fields that change, with what they were and become; of a new row what differs from an empty one. Secrets as masks. */
  fields: { field: string; from: unknown; to: unknown; changed_by?: string; changed_at?: string }[]
  reason?: string
  /** Where secrets go that did not go there. */
  notes?: string[]
}

/** What was applied; with `planned` nothing was. */
export interface ApplyReport {
  planned: boolean
  outcomes: Outcome[]
}

/** How many rows met each fate, in the order of the report. */
export function countOutcomes({ outcomes }: ApplyReport): Record<Outcome['action'], number> {
  const counts = { created: 0, changed: 0, unchanged: 0, removed: 0, kept: 0, only_here: 0 }
  for (const { action } of outcomes) counts[action]++
  return counts
}
