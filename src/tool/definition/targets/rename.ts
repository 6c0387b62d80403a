import { createHash } from 'node:crypto'
import { quote } from '../check/findings.js'
import type { FunctionView } from '../functions/functions.js'
import { PROVIDERS, type ProviderRules, type Target } from './providers.js'

/** A function as one provider takes it, with the way back to what the definition says. */
export interface TargetFunction extends FunctionView {
  /** The arguments that are called something else than in the definition: their name here and their name there. */
  arguments: Record<string, string>
}

const NAME_CHARACTERS = 64
const HASH_CHARACTERS = 8

/** A function for a provider, and by how many bytes it is longer or shorter than in the plain view. */
export interface RenamedFunction {
  function: TargetFunction
  moreBytes: number
}

/**
 * The functions as the provider takes them: with other names and descriptions where it refuses those of the plain view, and where it
 * has a strict mode with parameters that take nothing else. A name of which letters are lost stands before the description, as a model
 * cannot read its hash. Schemas are shared with those that were given.
 */
export function functionsFor(functions: readonly FunctionView[], target: Target): TargetFunction[] {
  return renamedFunctions(functions, target).map(each => each.function)
}

/** `functionsFor` as a sequence of short steps. */
export function renamedFunctions(functions: readonly FunctionView[], target: Target): RenamedFunction[] {
  const rules = PROVIDERS[target]
  const names = new SafeNames()
  const taken = new Set(functions.map(each => each.name))
  const result: RenamedFunction[] = []
  for (const each of functions) {
    const name = rules.functionName.test(each.name) ? each.name : names.nameFor(each.name, rules.functionName, taken)
    taken.add(name)
    const description = cutToBytes(withLostName(each.operationId, each.description), rules.descriptionBytes)
    const { parameters, renamed, moreBytes } = withSafeArguments(each.parameters, rules, names)
    result.push({
      function: { ...each, name, description, parameters, arguments: renamed },
      moreBytes: moreBytes + Buffer.byteLength(description) - Buffer.byteLength(each.description),
    })
  }
  return result
}

function withSafeArguments(
  given: Record<string, unknown>,
  { argumentName, strict }: ProviderRules,
  safeNames: SafeNames,
): { parameters: Record<string, unknown>; renamed: Record<string, string>; moreBytes: number } {
  const closing = strict === undefined ? {} : { additionalProperties: false }
  const parameters = { ...given, ...closing }
  let moreBytes = JSON.stringify(closing).length - '{}'.length
  const properties = given.properties as Record<string, Record<string, unknown>> // as the function view makes it
  const names = Object.keys(properties)
  if (argumentName === undefined || names.every(name => argumentName.test(name)))
    return { parameters, renamed: {}, moreBytes }
  // The way back is an object with the new names: an assignment to this one would set its prototype.
  const taken = new Set([...names, '__proto__'])
  const renamed: Record<string, string> = {}
  const nameOf = new Map<string, string>()
  const safe: Record<string, unknown> = {}
  for (const name of names) {
    const schema = properties[name] as Record<string, unknown> // as the function view makes it
    const chosen = argumentName.test(name) ? name : safeNames.nameFor(name, argumentName, taken)
    const value = chosen === name ? schema : safeNames.described(name, schema)
    taken.add(chosen)
    nameOf.set(name, chosen)
    if (chosen !== name) renamed[chosen] = name
    moreBytes += chosen.length - Buffer.byteLength(name) + textBytes(value.description) - textBytes(schema.description)
    Object.defineProperty(safe, chosen, { value, enumerable: true, configurable: true, writable: true })
  }
  const required = Array.isArray(given.required)
    ? { required: given.required.map(name => nameOf.get(String(name)) ?? name) }
    : {}
  return { parameters: { ...parameters, properties: safe, ...required }, renamed, moreBytes }
}

function textBytes(text: unknown): number {
  return typeof text === 'string' ? Buffer.byteLength(text) : 0
}

/** The description, behind the name if letters of that are lost in a name for models. */
function withLostName(name: string, description: string): string {
  const start = name.slice(0, NAME_CHARACTERS).normalize('NFKD').replace(/\p{M}/gu, '')
  if (!/[^\x20-\x7e]/.test(start)) return description
  return description === '' ? quote(name) : `${quote(name)}: ${description}`
}

/** Makes names that a provider takes. What many functions share is made once. */
class SafeNames {
  private readonly hashes = new Map<string, string>()
  private readonly describedSchemas = new Map<object, { name: string; schema: Record<string, unknown> }>()

  /** A name made of `name` that the pattern takes, unlike every one in `taken`. */
  nameFor(name: string, pattern: RegExp, taken: ReadonlySet<string>): string {
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
    const digest = this.hashOf(name)
    for (let round = 0; ; round++) {
      const hash = (round === 0 ? digest : sha256(`${digest}#${round}`)).slice(0, HASH_CHARACTERS)
      const hashed = `${plain.slice(0, NAME_CHARACTERS - 1 - HASH_CHARACTERS).replace(/_+$/, '')}_${hash}`
      const chosen = /^[A-Za-z_]/.test(hashed) ? hashed : `_${hashed}`.slice(0, NAME_CHARACTERS)
      if (!taken.has(chosen)) return chosen
    }
  }

  /** The schema of an argument with what its name was, where the new one does not say it. */
  described(name: string, schema: Record<string, unknown>): Record<string, unknown> {
    const known = this.describedSchemas.get(schema)
    if (known?.name === name) return known.schema
    const text = typeof schema.description === 'string' ? schema.description : ''
    const description = withLostName(name, text)
    const made = description === text ? schema : { ...schema, description }
    this.describedSchemas.set(schema, { name, schema: made })
    return made
  }

  private hashOf(text: string): string {
    const known = this.hashes.get(text)
    if (known !== undefined) return known
    const hash = sha256(text)
    this.hashes.set(text, hash)
    return hash
  }
}

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex')
}

/** The text, or as much of its beginning as fits with the sign that it was cut. */
function cutToBytes(text: string, bytes: number | undefined): string {
  if (bytes === undefined || Buffer.byteLength(text) <= bytes) return text
  const sign = '...'
  const room = Buffer.from(text).subarray(0, bytes - sign.length)
  // What was cut inside a character is not a character.
  return `${room.toString('utf8').replace(/\uFFFD+$/, '')}${sign}`
}
