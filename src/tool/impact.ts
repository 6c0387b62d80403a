import { parseBigInts, withBigInts } from '../schema/exact-json.js'
import { compareDefinitions, type DefinitionChange } from './definition/index.js'

/** What storing a definition in a tool would change, and for whom. */
export interface Impact {
  changes: DefinitionChange[]
  agents: {
    /** Agents that use the tool and that the caller may see, in the order of their ids, at most a thousand. */
    ids: number[]
    /** How many more use it, of those that were looked at: those that the caller may not see, and those beyond the thousand. */
    others: number
  }
}

/** The agents that use a tool. */
export interface ToolUse {
  ids: number[]
  others: number
  /** Whether all of them were looked at. */
  isWhole: boolean
}

/** What a definition that passed the check would change. `stored` is the tool's own as JSON text, null where it has none. */
export function impactOf(
  { ids, others }: Omit<ToolUse, 'isWhole'>,
  stored: string | null,
  definition: unknown,
): Impact {
  // Where no definition is stored yet, every operation is new, and nothing else has changed. What passed is an object.
  const before = stored === null ? { ...(definition as object), paths: {} } : parseBigInts(stored)
  const { changes } = compareDefinitions(before, withBigInts(definition))
  return { changes, agents: { ids, others } }
}
