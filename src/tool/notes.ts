import type { DefinitionCheck } from './definition/index.js'

/** What an answer says, as a `Warning`, of a definition that was accepted with warnings. */
export function definitionNotes(checked: DefinitionCheck | null): string[] {
  const count = checked?.warnings.length ?? 0
  const warnings =
    count === 1
      ? '1 warning: validate it with report=full to read it'
      : `${count} warnings: validate it with report=full to read them`
  return count === 0 ? [] : [`the definition has ${warnings}`]
}
