import { parseExact, withBigInts } from '../schema/exact-json.js'
import { compareDefinitionsInSlices, type DefinitionChange } from './definition/index.js'

/** What storing a definition in a tool would change, and for whom. */
export interface Impact {
  changes: DefinitionChange[]
  agents: {
    /** Agents that use the tool and that the caller may see, in the order of their ids, at most a thousand. */
    ids: number[]
    /** How many more use it: those that the caller may not see, and those beyond the thousand. */
    others: number
  }
}

/** A tool as the impact needs it: the stored definition as JSON text, and the agents that use the tool. */
export interface ToolUse {
  definition: string | null
  ids: number[]
  others: number
}

/** What a definition that passed the check would change in a tool that is used like this. */
export async function impactOf(use: ToolUse, definition: unknown): Promise<Impact> {
  // Where no definition is stored yet, every operation is new, and nothing else has changed. What passed is an object.
  const before: unknown =
    use.definition === null ? { ...(definition as object), paths: {} } : parseExact(use.definition)
  const { changes } = await compareDefinitionsInSlices(withBigInts(before), withBigInts(definition))
  return { changes, agents: { ids: use.ids, others: use.others } }
}
