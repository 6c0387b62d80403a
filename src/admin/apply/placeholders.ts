/** How the names of the variables begin that a document may read, beside those that an export names. */
export const PREFIX = 'AGENTS_'

const PLACEHOLDER = /\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}/g

/**
 * The variables that an exported document names in the place of a tool's secrets, one for each header, in order:
 * `TOOL_7_AUTHORIZATION`. Two headers that would share one get a number at the end.
 */
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

/**
 * A header's value with its placeholders filled in from the environment, and the variables that give nothing: those that are
 * not set, and those that `allows` refuses.
 */
export function fillIn(
  value: string,
  env: Readonly<Record<string, string | undefined>>,
  allows: (variable: string) => boolean,
): { value: string; missing: string[] } {
  const missing: string[] = []
  const filled = value.replace(PLACEHOLDER, (_, variable: string) => {
    const text = allows(variable) ? env[variable] : undefined
    if (text === undefined) missing.push(variable)
    return text ?? ''
  })
  return { value: filled, missing }
}
