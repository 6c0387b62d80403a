import { createHash } from 'node:crypto'
import type { FunctionView } from '../functions/functions.js'
import { PROVIDERS, type ProviderRules, type Target } from './providers.js'

/** A function as one provider takes it, with the way back to what the definition says. */
export interface TargetFunction extends FunctionView {
  /** The arguments that are called something else than in the definition: their name here and their name there. */
  arguments: Record<string, string>
}

const NAME_CHARACTERS = 64
const HASH_CHARACTERS = 8

/** The functions with names and descriptions that the provider takes. Schemas are shared with those that were given. */
export function functionsFor(functions: readonly FunctionView[], target: Target): TargetFunction[] {
  const rules = PROVIDERS[target]
  const taken = new Set(functions.map(each => each.name))
  return functions.map(each => {
    const name = rules.functionName.test(each.name) ? each.name : safeName(each.name, rules.functionName, taken)
    taken.add(name)
    const { parameters, renamed } = withSafeArguments(each.parameters, rules)
    return {
      ...each,
      name,
      description: cutToBytes(each.description, rules.descriptionBytes),
      parameters,
      arguments: renamed,
    }
  })
}

function withSafeArguments(
  parameters: Record<string, unknown>,
  { argumentName }: ProviderRules,
): { parameters: Record<string, unknown>; renamed: Record<string, string> } {
  const properties = parameters.properties as Record<string, unknown> // as the function view makes it
  const names = Object.keys(properties)
  if (argumentName === undefined || names.every(name => argumentName.test(name))) return { parameters, renamed: {} }
  const taken = new Set(names)
  const renamed: Record<string, string> = {}
  const nameOf = new Map<string, string>()
  const safe: Record<string, unknown> = {}
  for (const name of names) {
    const chosen = argumentName.test(name) ? name : safeName(name, argumentName, taken)
    taken.add(chosen)
    nameOf.set(name, chosen)
    if (chosen !== name) renamed[chosen] = name
    Object.defineProperty(safe, chosen, {
      value: properties[name],
      enumerable: true,
      configurable: true,
      writable: true,
    })
  }
  const required = Array.isArray(parameters.required)
    ? { required: parameters.required.map(name => nameOf.get(String(name)) ?? name) }
    : {}
  return { parameters: { ...parameters, properties: safe, ...required }, renamed }
}

/** A name made of `name` that the pattern takes, unlike every one in `taken`. */
function safeName(name: string, pattern: RegExp, taken: ReadonlySet<string>): string {
  const start = name
    .slice(0, NAME_CHARACTERS)
    .normalize('NFKD')
    .replace(/\p{M}/gu, '')
    .replace(/[^A-Za-z0-9_]/g, '_')
    .slice(0, NAME_CHARACTERS - 1)
  const plain = /^[A-Za-z_]/.test(start) ? start : `_${start}`
  // A name in another script, or one that was cut, is told apart by its hash.
  const isWhole = name.length < NAME_CHARACTERS && !/[^\x20-\x7e]/.test(name) && /[A-Za-z0-9]/.test(plain)
  if (isWhole && pattern.test(plain) && !taken.has(plain)) return plain
  for (let round = 0; ; round++) {
    const hash = createHash('sha256')
      .update(round === 0 ? name : `${name}#${round}`)
      .digest('hex')
      .slice(0, HASH_CHARACTERS)
    const hashed = `${plain.slice(0, NAME_CHARACTERS - 1 - HASH_CHARACTERS).replace(/_+$/, '')}_${hash}`
    const chosen = /^[A-Za-z_]/.test(hashed) ? hashed : `_${hashed}`.slice(0, NAME_CHARACTERS)
    if (!taken.has(chosen)) return chosen
  }
}

/** The text, or as much of its beginning as fits with the sign that it was cut. */
function cutToBytes(text: string, bytes: number | undefined): string {
  if (bytes === undefined || Buffer.byteLength(text) <= bytes) return text
  const sign = '...'
  const room = Buffer.from(text).subarray(0, bytes - sign.length)
  // What was cut inside a character is not a character.
  return `${room.toString('utf8').replace(/\uFFFD+$/, '')}${sign}`
}
