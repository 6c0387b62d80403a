/** How the names of the variables begin that a document may read, beside those that an export names. */
export const PREFIX = 'AGENTS_'

export const PLACEHOLDER = /\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}/g

/** A misspelt placeholder. */
export const LIKE_PLACEHOLDER = /\$\{?\s*env:/i

/** The variables of an exported tool's secrets, one for each header: `TOOL_7_AUTHORIZATION`; a number tells two apart. */
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

/** The placeholder of a variable, as a document writes it. */
export function placeholder(variable: string): string {
  return `\${env:${variable}}`
}
