import { describeSettings } from '../../config.js'

/** How the names of the variables begin that a document may read, unless the operator says otherwise. */
export const DEFAULT_PREFIX = 'AGENTS_'

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

/** The program's own settings are nobody's header value, whatever the prefix. */
const OWN_SETTINGS: ReadonlySet<string> = new Set(describeSettings().map(({ name }) => name))

/** Why a document gets no value for these variables. */
export function whyMissing(variables: readonly string[], prefix: string): string {
  const own = variables.filter(name => OWN_SETTINGS.has(name))
  if (own.length > 0) return `${own.join(', ')}: a setting of this program is never taken for a header value`
  return `the environment gives no ${variables.join(', ')}: it must be set, and its name begin with ${prefix}`
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
    const text = allows(variable) && !OWN_SETTINGS.has(variable) ? env[variable] : undefined
    if (text === undefined) missing.push(variable)
    return text ?? ''
  })
  return { value: filled, missing }
}
