/** Prefix of the environment variables that a document may read, in addition to those named by an export. */
export const PREFIX = 'AGENTS_'

export const PLACEHOLDER = /\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}/g

/** A misspelt placeholder. */
export const LIKE_PLACEHOLDER = /\$\{?\s*env:/i

/** The variables for the secrets of an exported tool, one per header: `TOOL_7_AUTHORIZATION`, with a number if two would be equal. */
export function headerVariables(toolId: number, names: readonly string[]): string[] {
  const taken = new Set<string>()
  return names.map(name => {
    const plain = `TOOL_${toolId}_${name.toUpperCase().replace(/[^A-Z0-9]/g, '_')}`
    let variable = plain
    for (let count = 2; taken.has(variable); count++) variable = `${plain}_${count}`
    taken.add(variable)
    return variable
  })
}

/** The placeholder of a variable in a document. */
export function placeholder(variable: string): string {
  return `\${env:${variable}}`
}
