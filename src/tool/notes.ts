import type { DefinitionCheck } from './definition/index.js'

/** What an answer says, as a `Warning`, of a definition that was accepted with warnings. */
export function definitionNotes(checked: DefinitionCheck | null): string[] {
  const count = checked?.warnings.length ?? 0
  return count === 0 ? [] : [`the definition has ${count} warnings: validate it with report=full to read them`]
}
