import { type CheckOptions, DEFAULT_AT, type DefinitionCheck, inspection } from '../check/check.js'
import { Findings, type Place, placeOf, quote } from '../check/findings.js'
import { KeyLists } from '../check/key-lists.js'
import { DEFAULT_DEFINITION_LIMITS } from '../check/limits.js'
import type { OperationInput } from '../check/operations.js'
import { isSupplied } from '../check/parameters.js'
import { type FunctionView, sizedViewsOf } from '../functions/functions.js'
import {
  FUNCTIONS_STILL_CHOSEN,
  FUNCTIONS_WELL_CHOSEN,
  PROVIDERS,
  type ProviderRules,
  type StrictRules,
  type Target,
} from './providers.js'
import { type RenamedFunction, renamedFunctions, type TargetFunction } from './rename.js'
import { type TextFault, textFaultOf } from './texts.js'

/** How well the functions of a definition suit a provider's models. */
export interface TargetReport {
  target: Target
  /** When the provider's rules were read, and where. */
  as_of: string
  sources: string[]
  /** An estimate of what all functions cost in every request that offers them. */
  tokens: number
  functions: { name: string; operation: string; tokens: number }[]
}

export interface TargetCheck {
  check: DefinitionCheck
  /** Present if the definition is accepted. */
  report?: TargetReport
  functions?: TargetFunction[]
}

/** What one converted schema holds that a provider may mind. */
interface Facts {
  readonly keywords: Set<string>
  readonly formats: Set<string>
  /** Names of the definitions that it refers to. */
  readonly uses: Set<string>
  properties: number
  enumValues: number
  nestingLevels: number
  /** Properties that an object does not require. */
  optional: number
  /** Schemas of several types, or of several alternatives. */
  unions: number
  /** The largest number of items that a list must have. */
  minItems: number
  /** True if no object takes other properties than those that it names. */
  isClosed: boolean
  /** True if every schema says which type its values have. */
  isTyped: boolean
  /** True if a definition of the function refers to itself, directly or by way of others. */
  isRecursive: boolean
  /** What stands in its texts beside what they say. */
  texts: TextFault | undefined
}

const BYTES_PER_TOKEN = 4
/** A letter of a script that writes a syllable or a word with one counts as this many. */
const SHORTEST_PURPOSE_CHARACTERS = 10
const CHARACTERS_OF_WIDE_LETTER = 3
const WIDE_LETTER = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}]/gu
const MOST_FORMATS = 20
const STEP_MEMBERS = 1000
/** So many characters of a text take as long to read as a member. */
const CHARACTERS_OF_MEMBER = 50
/** Names of properties, not keywords, stand in these. */
const MAPS = new Set(['properties', 'patternProperties', '$defs', 'dependentSchemas', 'dependentRequired'])
const VALUES = new Set(['default', 'examples', 'enum', 'const', 'required'])
/**
 * The check of a definition, and if it is accepted what one provider's models make of its functions: warnings (`target_...`) where the
 * provider refuses something or loses it, the functions with names and descriptions that it takes, and an estimate of tokens.
 *
 * Beside the provider's own rules it names what makes a function hard to choose or unsafe: a missing purpose or parameter text, too
 * many functions, and instructions or invisible characters in what a model is given: texts, names and values. Each is searched once,
 * however many functions share it, with fixed patterns of linear cost. Tokens are a quarter of the bytes of the functions as JSON.
 * Throws `InvalidRequest` with `functions_too_large` as the function view does.
 */
export function checkForTarget(definition: unknown, target: Target, options: CheckOptions = {}): TargetCheck {
  return targetCheck(definition, target, options)
}

/** The one implementation. */
export function targetCheck(definition: unknown, target: Target, options: CheckOptions): TargetCheck {
  const inspected = inspection(definition, options, true)
  const { check, operations } = inspected
  if (!check.ok) return { check }
  const sized = sizedViewsOf(inspected, options)
  const limits = { ...DEFAULT_DEFINITION_LIMITS, ...options.limits }
  const findings = new Findings(0, limits.warnings)
  const rules = PROVIDERS[target]
  const known = new KnownFacts()
  const parameterTexts = new Map<object, TextFault | undefined>()
  const headerNames = new Set((options.headerNames ?? []).map(name => name.toLowerCase()))
  const renamed = renamedFunctions(
    sized.map(each => each.view),
    target,
  )
  const report: TargetReport = { target, as_of: rules.asOf, sources: [...rules.sources], tokens: 0, functions: [] }
  const together: StrictTotals = { functions: sized.length, optional: 0, unions: 0 }
  for (const [i, { view, bytes }] of sized.entries()) {
    const given = operations[i] as OperationInput // one for each function
    const { function: named, moreBytes } = renamed[i] as RenamedFunction // likewise
    // What is not asked of a model, such as the header Accept, it never reads.
    const parameters = given.parameters.filter(each => each.isSendable && !isSupplied(each, headerNames))
    const operation = { ...given, parameters }
    const facts = factsOf(view, known)
    const warner = new FunctionReport(rules, target, findings, operation.place, parameterTexts)
    warner.warn(operation, view, named, facts)
    together.optional += facts.optional
    together.unions += facts.unions
    const tokens = Math.ceil((bytes + moreBytes) / BYTES_PER_TOKEN)
    report.tokens += tokens
    report.functions.push({ name: named.name, operation: operation.record.name, tokens })
  }
  const paths = placeOf([...(options.at ?? DEFAULT_AT), 'paths'])
  warnNumber(sized.length, rules, target, findings, paths)
  warnTogether(together, rules, target, findings, paths)
  return {
    check: { ...check, warnings: [...check.warnings, ...findings.boundedWarnings()] },
    report,
    functions: renamed.map(each => each.function),
  }
}

/** Names what a provider's models make of one function. */
class FunctionReport {
  constructor(
    private readonly rules: ProviderRules,
    private readonly target: Target,
    private readonly findings: Findings,
    private readonly place: Place,
    private readonly parameterTexts: Map<object, TextFault | undefined>,
  ) {}

  warn(operation: OperationInput, view: FunctionView, named: TargetFunction, facts: Facts): void {
    this.warnTexts(operation, view, facts)
    this.warnNames(operation, named)
    this.warnSchema(view, facts)
  }

  private warnTexts({ record, parameters }: OperationInput, view: FunctionView, facts: Facts): void {
    const { findings, place } = this
    const own = textFaultOf(view.description) ?? textFaultOf(record.name)
    if (own !== undefined) this.warnText(own, place)
    if (view.description === record.summary && !saysEnough(record.summary)) {
      const msg = () => `${quote(record.summary)} does not say when a model should use the function`
      findings.warn('target_purpose_missing', msg, place, 'summary')
    }
    let isSaid = own !== undefined
    for (const parameter of parameters) {
      const { description } = parameter.value
      const fault = this.parameterFault(parameter.name, parameter.value)
      if (fault !== undefined) this.warnText(fault, parameter.place)
      isSaid ||= fault !== undefined
      if (typeof description !== 'string' || description.trim() === '') {
        const msg = () => `nothing says what the ${parameter.in} parameter ${quote(parameter.name)} means`
        findings.warn('target_parameter_undescribed', msg, parameter.place, 'description')
      }
    }
    // A text deep in a schema is shared by many; the operation that takes it in is where it matters.
    if (facts.texts !== undefined && !isSaid) this.warnText(facts.texts, place)
  }

  /** What stands in name and description of a parameter that many operations may share. */
  private parameterFault(name: string, value: Record<string, unknown>): TextFault | undefined {
    if (this.parameterTexts.has(value)) return this.parameterTexts.get(value)
    const { description } = value
    const fault = textFaultOf(name) ?? (typeof description === 'string' ? textFaultOf(description) : undefined)
    this.parameterTexts.set(value, fault)
    return fault
  }

  private warnText(fault: TextFault, place: Place): void {
    const msg =
      fault === 'text_hidden_characters'
        ? 'a text holds characters that people do not see and a model reads'
        : 'a text speaks to the model instead of about the function: read it before you offer it to one'
    this.findings.warn(`target_${fault}`, msg, place)
  }

  private warnNames({ record }: OperationInput, named: TargetFunction): void {
    const { rules, target, findings, place } = this
    if (!rules.functionName.test(record.name)) {
      const msg = () =>
        `${target} does not take the name ${quote(record.name)}: the function is called ${quote(named.name)}`
      findings.warn('target_function_name', msg, place, 'operationId')
    }
    for (const [safe, name] of Object.entries(named.arguments)) {
      const msg = () => `${target} does not take the argument name ${quote(name)}: it is called ${quote(safe)}`
      findings.warn('target_argument_name', msg, place)
    }
  }

  private warnSchema(view: FunctionView, facts: Facts): void {
    const { rules, target, findings, place } = this
    const most = rules.descriptionBytes
    if (most !== undefined && Buffer.byteLength(view.description) > most)
      findings.warn(
        'target_description_long',
        `${target} takes at most ${most} bytes of description; the rest is cut`,
        place,
        'description',
      )
    const { keywords, formats, strict } = rules
    const lost = keywords === undefined ? [] : [...facts.keywords].filter(each => !keywords.has(each))
    if (lost.length > 0)
      findings.warn(
        'target_keywords_lost',
        () => `${target} does not read ${lost.sort().join(', ')} in a schema`,
        place,
      )
    const strange = formats === undefined ? [] : [...facts.formats].filter(each => !formats.has(each))
    if (strange.length > 0)
      findings.warn(
        'target_formats_lost',
        () => `${target} does not know the formats ${quote(strange.sort().join(', '))}`,
        place,
      )
    const reasons = strict === undefined ? [] : reasonsAgainstStrict(facts, strict)
    if (reasons.length > 0)
      findings.warn(
        'target_not_strict',
        () => `the strict mode of ${target} does not take it: ${reasons.join('; ')}`,
        place,
      )
  }
}

function reasonsAgainstStrict(facts: Facts, strict: StrictRules): string[] {
  const reasons: string[] = []
  const refused = [...facts.keywords].filter(each => strict.refusedKeywords.has(each)).sort()
  if (refused.length > 0) reasons.push(`it uses ${refused.join(', ')}`)
  if (!facts.isClosed) reasons.push('an object takes more properties than it names')
  if (strict.requiresAll && facts.optional > 0) reasons.push('not every object requires all of its properties')
  if (strict.requiresTypes && !facts.isTyped) reasons.push('a value has no type')
  if (strict.minItems !== undefined && facts.minItems > strict.minItems)
    reasons.push(`minItems is more than ${strict.minItems}`)
  if (strict.optional !== undefined && facts.optional > strict.optional)
    reasons.push(`it has more than ${strict.optional} optional properties`)
  if (strict.unions !== undefined && facts.unions > strict.unions)
    reasons.push(`it has more than ${strict.unions} values of several types`)
  if (strict.properties !== undefined && facts.properties > strict.properties)
    reasons.push(`it has more than ${strict.properties} properties`)
  if (strict.nestingLevels !== undefined && facts.nestingLevels > strict.nestingLevels)
    reasons.push(`it nests deeper than ${strict.nestingLevels} levels`)
  if (strict.enumValues !== undefined && facts.enumValues > strict.enumValues)
    reasons.push(`it lists more than ${strict.enumValues} values`)
  if (!strict.takesRecursion && facts.isRecursive) reasons.push('it refers to itself')
  return reasons
}

function warnNumber(count: number, rules: ProviderRules, target: Target, findings: Findings, place: Place): void {
  if (rules.functions !== undefined && count > rules.functions) {
    const msg = `${target} takes at most ${rules.functions} functions in a request, these are ${count}`
    findings.warn('target_functions_refused', msg, place)
  } else if (count > FUNCTIONS_WELL_CHOSEN) {
    const how = count > FUNCTIONS_STILL_CHOSEN ? 'clearly worse' : 'worse'
    findings.warn(
      'target_functions_many',
      `a model chooses ${how} among ${count} functions than among ${FUNCTIONS_WELL_CHOSEN}`,
      place,
    )
  }
}

/** What all functions together have of what the strict mode counts for a request. */
interface StrictTotals {
  readonly functions: number
  optional: number
  unions: number
}

function warnTogether(
  { functions, optional, unions }: StrictTotals,
  { strict }: ProviderRules,
  target: Target,
  findings: Findings,
  place: Place,
): void {
  const counts = [
    { count: functions, most: strict?.functions, what: 'functions' },
    { count: optional, most: strict?.optional, what: 'optional properties' },
    { count: unions, most: strict?.unions, what: 'values of several types' },
  ]
  const beyond = counts.filter(({ count, most }) => most !== undefined && count > most)
  if (beyond.length === 0) return
  const said = beyond.map(({ count, most, what }) => `${most} ${what}, these have ${count}`)
  const msg = `the strict mode of ${target} does not take all of them in one request: at most ${said.join('; at most ')}`
  findings.warn('target_not_strict', msg, place)
}

function saysEnough(summary: string): boolean {
  const text = summary.slice(0, SHORTEST_PURPOSE_CHARACTERS * 10).trim()
  const wide = text.match(WIDE_LETTER)?.length ?? 0
  return text.length + wide * (CHARACTERS_OF_WIDE_LETTER - 1) >= SHORTEST_PURPOSE_CHARACTERS
}

/** The facts of schemas that were looked at, and the clock: each schema may be small, and they may be many. */
class KnownFacts {
  private readonly facts = new Map<unknown, Facts>()
  readonly keyLists = new KeyLists()
  private readonly references = new Map<string, TextFault | undefined>()
  private members = 0

  of(schema: unknown): Facts | undefined {
    return this.facts.get(schema)
  }

  lookedAt(schema: unknown): Facts {
    const known = this.facts.get(schema)
    if (known !== undefined) return known
    const facts = factsOfSchema(schema, this)
    this.facts.set(schema, facts)
    return facts
  }

  /** Counts a member, and what is read of it beside. */
  isTime(characters = 0): boolean {
    this.members += 1 + Math.floor(characters / CHARACTERS_OF_MEMBER)
    if (this.members < STEP_MEMBERS) return false
    this.members = 0
    return true
  }

  /** The fault of a reference's text, which thousands may share. */
  referenceFault(ref: string): TextFault | undefined {
    if (!this.references.has(ref)) this.references.set(ref, textFaultOf(ref))
    return this.references.get(ref)
  }
}

/** The facts of all schemas of one function; each schema is looked at once, however many functions share it. */
function factsOf(view: FunctionView, known: KnownFacts): Facts {
  const { properties = {}, $defs = {}, required } = view.parameters as Record<string, Record<string, unknown>>
  const whole = noFacts()
  const names = Object.keys($defs)
  const own = Object.keys(properties)
  whole.properties = own.length
  whole.optional = whole.properties - (Array.isArray(required) ? required.length : 0)
  for (const name of own) join(whole, known.lookedAt(properties[name]))
  for (const name of names) join(whole, known.lookedAt($defs[name]))
  whole.isRecursive = leadsInCircles(names, name => known.of($defs[name])?.uses ?? new Set())
  if (names.length > 0) whole.keywords.add('$defs')
  return whole
}

/** Adds what one schema of a function says to what the function has. */
function join(whole: Facts, facts: Facts): void {
  for (const each of facts.keywords) whole.keywords.add(each)
  for (const each of facts.formats) if (whole.formats.size < MOST_FORMATS) whole.formats.add(each)
  whole.properties += facts.properties
  whole.enumValues += facts.enumValues
  whole.nestingLevels = Math.max(whole.nestingLevels, facts.nestingLevels + 1)
  whole.optional += facts.optional
  whole.unions += facts.unions
  whole.minItems = Math.max(whole.minItems, facts.minItems)
  whole.isClosed &&= facts.isClosed
  whole.isTyped &&= facts.isTyped
  whole.texts ??= facts.texts
}

/** True if one of the names uses itself, be it by way of others: what remains when those that use nothing more are taken away. */
function leadsInCircles(names: readonly string[], usesOf: (name: string) => ReadonlySet<string>): boolean {
  const open = new Map<string, number>()
  const usedBy = new Map<string, string[]>()
  for (const name of names) {
    const uses = usesOf(name)
    open.set(name, uses.size)
    for (const each of uses) {
      const users = usedBy.get(each) ?? []
      users.push(name)
      usedBy.set(each, users)
    }
  }
  const done = names.filter(name => open.get(name) === 0)
  for (const name of done) {
    for (const user of usedBy.get(name) ?? []) {
      const left = (open.get(user) ?? 0) - 1
      open.set(user, left)
      if (left === 0) done.push(user)
    }
  }
  return done.length < names.length
}

function noFacts(): Facts {
  return {
    keywords: new Set(),
    formats: new Set(),
    uses: new Set(),
    properties: 0,
    enumValues: 0,
    nestingLevels: 0,
    optional: 0,
    unions: 0,
    minItems: 0,
    isClosed: true,
    isTyped: true,
    isRecursive: false,
    texts: undefined,
  }
}

function factsOfSchema(schema: unknown, known: KnownFacts): Facts {
  const { keyLists } = known
  const facts = noFacts()
  const pending: { value: unknown; kind: 'schema' | 'map' | 'value'; level: number }[] = [
    { value: schema, kind: 'schema', level: 0 },
  ]
  for (let at = pending.pop(); at !== undefined; at = pending.pop()) {
    const { value, kind, level } = at
    if (typeof value === 'string') facts.texts ??= textFaultOf(value)
    if (typeof value !== 'object' || value === null) continue
    if (kind === 'schema' && !Array.isArray(value)) lookAt(value as Record<string, unknown>, level, facts, keyLists)
    for (const key of Array.isArray(value) ? value.keys() : keyLists.of(value as Record<string, unknown>)) {
      const member = (value as Record<string | number, unknown>)[key]
      // Keywords are known; any other key is a name that somebody chose.
      if (kind !== 'schema' && typeof key === 'string') facts.texts ??= textFaultOf(key)
      if (kind === 'schema' && key === '$ref' && typeof member === 'string')
        facts.texts ??= known.referenceFault(member)
      else if (kind === 'value') pending.push({ value: member, kind, level })
      else if (kind === 'map' || typeof key === 'number') pending.push({ value: member, kind: 'schema', level })
      else if (VALUES.has(key)) pending.push({ value: member, kind: 'value', level })
      else
        pending.push({
          value: member,
          kind: MAPS.has(key) ? 'map' : 'schema',
          level: key === 'properties' ? level + 1 : level,
        })
    }
  }
  return facts
}

/** What one schema says by its own keywords. */
function lookAt(schema: Record<string, unknown>, level: number, facts: Facts, keyLists: KeyLists): void {
  for (const key of keyLists.of(schema)) facts.keywords.add(key)
  const { $ref, type, format, enum: values, anyOf, properties, required, additionalProperties, minItems } = schema
  if (typeof $ref === 'string') facts.uses.add($ref.slice('#/$defs/'.length))
  else if (type === undefined && anyOf === undefined) facts.isTyped = false
  if (typeof format === 'string' && facts.formats.size < MOST_FORMATS) facts.formats.add(format)
  if (Array.isArray(values)) facts.enumValues += values.length
  if (Array.isArray(type) || anyOf !== undefined) facts.unions++
  if (typeof minItems === 'number') facts.minItems = Math.max(facts.minItems, minItems)
  if (typeof properties === 'object' && properties !== null) {
    const count = keyLists.of(properties as Record<string, unknown>).length
    facts.properties += count
    facts.optional += Math.max(0, count - (Array.isArray(required) ? required.length : 0))
    facts.nestingLevels = Math.max(facts.nestingLevels, level + 1)
    if (additionalProperties !== false) facts.isClosed = false
  } else if (type === 'object' && additionalProperties !== false) {
    facts.isClosed = false
  }
}
