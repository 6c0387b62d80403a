import { isDeepStrictEqual } from 'node:util'
import { type CheckOptions, DEFAULT_AT } from './check/check.js'
import { type Loc, locOf, type Place, placeOf, quote } from './check/findings.js'
import { isObject } from './check/references.js'
import { firstAddress, originPlaces } from './check/servers.js'
import { type ArgumentView, type FunctionView, type ReadFunction, readableFunctions } from './functions/functions.js'
import { comparable, type JsonSchema } from './functions/json-schema.js'

export const CHANGE_KINDS = [
  ...(['operation_added', 'operation_removed', 'operation_renamed'] as const),
  ...(['argument_added', 'argument_removed', 'argument_renamed', 'argument_required'] as const),
  ...(['argument_type_changed', 'argument_values_changed', 'origin_changed', 'changed'] as const),
]

/** One difference in the functions for a model, or in the origins or security of calls. */
export interface DefinitionChange {
  /** `changed` is any difference without its own kind; `aspect` names it. */
  kind: (typeof CHANGE_KINDS)[number]
  /** The operationId, before a renaming; empty for a change of the whole definition. */
  operation: string
  /** The argument (by its old name if renamed), or a property inside it (`requestBody.tags[].name`); absent for the operation itself. */
  argument?: string
  aspect?: string
  from?: string
  to?: string
  /** Removed values or origins, the first 100. */
  removed?: unknown[]
  added?: unknown[]
  /** The path of the operation, or of the new address, in the new definition; absent if it was removed. */
  loc?: Loc
}

type Details = Partial<Omit<DefinitionChange, 'operation'>>
type Report = (kind: DefinitionChange['kind'], details?: Details) => void
type Reporter = (operation: string, loc?: Loc) => Report

const MOST_CHANGES = 10_000
/** The most arguments of one function, including the properties inside them. */
const MOST_LEAVES = 5_000
const MOST_PARTS = 100
const MOST_LISTED = 100
const SHOWN = 5
const PATH_CHARACTERS = 200
const ANY = 'any value'
const UNREADABLE = 'unreadable'
const LEFT_OUT = 'left_out'
const NEED = 'need'
const REFERENCE = /"#\/\$defs\/([^"]+)"/g
/** Keywords that constrain nothing with this value. */
const WITHOUT_EFFECT = new Map<string, unknown>([
  ...['minLength', 'minItems', 'minProperties'].map(key => [key, 0] as const),
  ...['uniqueItems', 'deprecated', 'readOnly', 'writeOnly'].map(key => [key, false] as const),
  ...['additionalProperties', 'items'].map(key => [key, true] as const),
])

/**
 * Returns the differences for a model and its operator when `after` replaces `before`: origins and security first, then the operations in
 * the order of the old definition, matched by operationId, else by method and path. `headerNames` are the tool's custom headers;
 * `headerNamesBefore` are the previous ones, if they differ. Never throws.
 */
export function definitionChanges(
  before: unknown,
  after: unknown,
  { headerNamesBefore, ...options }: CheckOptions & { headerNamesBefore?: readonly string[] } = {},
): DefinitionChange[] {
  const at = options.at ?? DEFAULT_AT
  const old = readableFunctions(before, headerNamesBefore ? { ...options, headerNames: headerNamesBefore } : options)
  const next = readableFunctions(after, options)
  if (old === undefined || next === undefined)
    return [{ kind: 'changed', operation: '', aspect: UNREADABLE, to: old === undefined ? 'old' : 'new' }]
  const changes: DefinitionChange[] = []
  let omitted = 0
  const reporter: Reporter = (operation, loc) => (kind, details) => {
    if (changes.length >= MOST_CHANGES) omitted++
    else changes.push({ kind, operation, ...(loc && { loc }), ...details })
  }
  compareOrigins(before, after, { at, next, reporter })
  const report = reporter('', [...at, 'servers', 0, 'url'])
  compareTexts('address', firstAddress(before), firstAddress(after), report)
  if (!isDeepStrictEqual(securityOf(before), securityOf(after)))
    report('changed', { aspect: 'security', loc: [...at, 'security'] })
  const byId = new Map(next.map(each => [each.operationId, each]))
  const oldIds = new Set(old.map(each => each.operationId))
  const newcomers = new Map(next.flatMap(each => (oldIds.has(each.operationId) ? [] : [[targetOf(each), each]])))
  for (const each of old) {
    const same = byId.get(each.operationId) ?? newcomers.get(targetOf(each))
    if (same === undefined) reporter(each.operationId)('operation_removed')
    else {
      if (same.operationId !== each.operationId) newcomers.delete(targetOf(same))
      compareFunctions(each, same, reporter(each.operationId, locOf(same.operation.place)))
    }
  }
  for (const each of newcomers.values()) reporter(each.operationId, locOf(each.operation.place))('operation_added')
  if (omitted > 0) changes.push({ kind: 'changed', operation: '', aspect: LEFT_OUT, to: String(omitted) })
  return changes
}

/** A change as a sentence, without the name of its operation. */
export function changeText({ kind, operation, argument, aspect, from, to, ...lists }: DefinitionChange): string {
  const subject = argument === undefined ? 'the operation' : `the argument ${quote(argument)}`
  const { removed = [], added = [] } = lists
  const both = (removing: string, adding: string) =>
    [
      ...(removed.length > 0 ? [`${removing} ${shown(removed)}`] : []),
      ...(added.length > 0 ? [`${adding} ${shown(added)}`] : []),
    ].join('; ')
  switch (kind) {
    case 'operation_added':
      return `${subject} is new`
    case 'operation_removed':
    case 'argument_removed':
      return `${subject} is gone`
    case 'operation_renamed':
      return `${subject} is called ${quote(to ?? '')} instead of ${quote(from ?? '')}`
    case 'argument_renamed':
      return `${subject} is called ${quote(to ?? '')} now`
    case 'argument_added':
      return `${subject} is new and ${to}`
    case 'argument_required':
      return `${subject} is required now`
    case 'argument_type_changed':
      return `the type of ${subject} is ${to} instead of ${from}`
    case 'argument_values_changed':
      if (to === ANY) return `${subject} takes any value now, not only ${shown(removed)}`
      return `${subject} ${from === ANY ? `takes only ${shown(added)} now` : both('no longer takes', 'takes also')}`
    case 'origin_changed':
      return both('no call goes any more to', 'calls may go to')
    default:
      if (aspect === UNREADABLE) return `the ${to} definition cannot be read, so nothing can be compared`
      if (aspect === NEED) return `${subject} is ${to} now`
      if (aspect === LEFT_OUT) return `${to} more changes are left out`
      return `the ${aspect} of ${operation === '' ? 'the definition' : subject} changed${to === undefined ? '' : ` from ${quote(from ?? '')} to ${quote(to)}`}`
  }
}

/** Reports a change for each address with new origins, at its place and for its operation. The first change also has the removed origins. */
function compareOrigins(
  before: unknown,
  after: unknown,
  { at, next, reporter }: { at: Loc; next: readonly ReadFunction[]; reporter: Reporter },
): void {
  // An address with variables is listed for each of their values and once as written, which is dropped here.
  const plain = (definition: unknown) =>
    new Map([...originPlaces(definition, placeOf(at))].filter(([origin]) => !origin.includes('{')))
  const [origins, nextOrigins] = [plain(before), plain(after)]
  let removed = missing(origins, nextOrigins)
  const added = new Map<Place | undefined, string[]>()
  for (const origin of missing(nextOrigins, origins)) {
    const place = nextOrigins.get(origin)
    added.set(place, [...(added.get(place) ?? []), origin])
  }
  if (added.size === 0 && removed.length > 0) added.set(undefined, [])
  for (const [place, each] of added) {
    const loc = place === undefined ? [...at, 'servers', 0, 'url'] : locOf(place)
    const holder = loc.slice(0, -3)
    const users = next.filter(({ operation }) =>
      isDeepStrictEqual(locOf(operation.place).slice(0, holder.length), holder),
    )
    const [user] = holder.length > at.length && users.length === 1 ? users : []
    reporter(user?.operationId ?? '', loc)('origin_changed', { removed, added: each })
    removed = []
  }
}

function compareTexts(aspect: string, from: string, to: string, report: Report): void {
  if (from !== to) report('changed', { aspect, from, to })
}

/** One argument of a function, or one property inside an argument. */
interface Leaf {
  readonly isRequired: boolean
  /** True if a schema contains itself here. */
  isRepeated?: boolean
  types?: string[]
  /** Enumerated values by their `comparable` texts. */
  values?: Map<string, unknown>
  /** All other keywords, as `comparable` texts. */
  readonly rest: Map<string, string>
}

/** The shape of `parameters` that `toFunctions` returns. */
interface Parameters {
  properties: Record<string, JsonSchema>
  required?: string[]
  $defs?: Record<string, JsonSchema>
}

function compareFunctions(old: ReadFunction, next: ReadFunction, report: Report): void {
  if (old.name !== next.name) report('operation_renamed', { from: old.name, to: next.name })
  compareTexts('address', targetOf(old), targetOf(next), report)
  if (old.description !== next.description) report('changed', { aspect: 'description' })
  const [security, nextSecurity] = [old, next].map(each => each.operation.record.spec.security ?? null)
  if (!isDeepStrictEqual(security, nextSecurity)) report('changed', { aspect: 'security' })
  // An argument is matched by its place and name on the wire; its name for the model may change.
  const keyOf = ({ in: place, name }: ArgumentView) => `${place} ${place === 'header' ? name?.toLowerCase() : name}`
  const names = new Map(next.arguments.map(each => [keyOf(each), each]))
  const keys = new Set(old.arguments.map(keyOf))
  const renamed = new Map<string, string>()
  const kept = new Map(next.arguments.map(({ argument }) => [argument, argument]))
  for (const each of old.arguments) {
    const named = next.arguments.find(({ argument }) => argument === each.argument)
    const same = names.get(keyOf(each)) ?? (named && !keys.has(keyOf(named)) ? named : undefined)
    if (same === undefined) {
      report('argument_removed', { argument: each.argument })
      continue
    }
    const { argument } = same
    if (argument !== each.argument) report('argument_renamed', { argument: each.argument, to: argument })
    renamed.set(each.argument, argument)
    compareTexts('form', formOf(each), formOf(same), (kind, details) => report(kind, { argument, ...details }))
  }
  if (comparable(old.parameters) === comparable(next.parameters)) return
  const [before, after] = [old.parameters, next.parameters] as unknown as [Parameters, Parameters]
  const [leaves, nextLeaves] = [leavesOf(before, renamed), leavesOf(after, kept)]
  if (leaves.size >= MOST_LEAVES || nextLeaves.size >= MOST_LEAVES)
    report('changed', { aspect: 'arguments, which are too many to compare each,' })
  else compareLeaves(leaves, nextLeaves, changedDefinitions(before, after), report)
}

function compareLeaves(old: Map<string, Leaf>, next: Map<string, Leaf>, changed: Set<string>, report: Report): void {
  /** Paths whose properties are not reported further. No name in them has a dot or a bracket. */
  const settled = new Set<string>()
  for (const path of new Set([...old.keys(), ...next.keys()])) {
    if (settled.has(path.slice(0, Math.max(path.lastIndexOf('.'), path.lastIndexOf('['), 0)))) {
      settled.add(path)
      continue
    }
    const [before, now] = [old.get(path), next.get(path)]
    const argument = path.length > PATH_CHARACTERS ? `...${path.slice(-PATH_CHARACTERS)}` : path
    const add: Report = (kind, details) => {
      report(kind, { argument, ...details })
      if (kind !== 'changed' && kind !== 'argument_required') settled.add(path)
    }
    if (now === undefined || before === undefined) {
      if (now === undefined) add('argument_removed')
      else add('argument_added', { to: now.isRequired ? 'required' : 'optional' })
      continue
    }
    if (now.isRequired && !before.isRequired) add('argument_required')
    if (before.isRequired && !now.isRequired) add('changed', { aspect: NEED, from: 'required', to: 'optional' })
    if (before.isRepeated || now.isRepeated) {
      settled.add(path)
      continue
    }
    const [from, to] = [typeOf(before), typeOf(now)]
    if (from !== to && from !== undefined && to !== undefined) add('argument_type_changed', { from, to })
    const [values, nextValues] = [before.values ?? new Map(), now.values ?? new Map()]
    const differing = {
      removed: missing(values, nextValues).map(text => values.get(text)),
      added: missing(nextValues, values).map(text => nextValues.get(text)),
    }
    const open = { ...(!before.values && { from: ANY }), ...(!now.values && { to: ANY }) }
    if (differing.removed.length + differing.added.length > 0) add('argument_values_changed', { ...open, ...differing })
    const aspects = [...new Set([...before.rest.keys(), ...now.rest.keys()])].filter(key => {
      const text = now.rest.get(key)
      return text !== before.rest.get(key) || referencesIn(text ?? '').some(name => changed.has(name))
    })
    if (aspects.length > 0) add('changed', { aspect: aspects.join(', ') })
  }
}

/** Returns the arguments of a function and all properties inside, by path. A recursive schema is followed once. */
function leavesOf(
  { properties, required = [], $defs = {} }: Parameters,
  names: ReadonlyMap<string, string>,
): Map<string, Leaf> {
  const leaves = new Map<string, Leaf>()
  const pending: { path: string; schemas: JsonSchema[]; isRequired: boolean; trail: ReadonlySet<string> }[] = []
  for (const [name, path] of names) {
    const schemas = [properties[name] ?? true]
    pending.push({ path, schemas, isRequired: required.includes(name), trail: new Set() })
  }
  for (const { path, schemas, isRequired, trail } of pending) {
    if (leaves.size >= MOST_LEAVES) break
    const leaf: Leaf = { isRequired, rest: new Map() }
    leaves.set(path, leaf)
    const [inner, needed, passed] = [new Map<string, JsonSchema[]>(), new Set<string>(), new Set(trail)]
    const push = (key: string, schema: JsonSchema) => inner.set(key, [...(inner.get(key) ?? []), schema])
    const say = (key: string, value: unknown) => leaf.rest.set(key, `${leaf.rest.get(key) ?? ''}${comparable(value)}`)
    let isNullable = false
    const parts = new Set(schemas)
    for (const part of parts) {
      if (part === false) say('schema', false)
      // The casts match what the converter writes under these keywords.
      for (const [key, value] of typeof part === 'object' && parts.size < MOST_PARTS ? Object.entries(part) : []) {
        const list = (key === 'allOf' || key === 'anyOf' || key === 'oneOf' ? value : []) as JsonSchema[]
        const isEmpty = isObject(value) && Object.keys(value).length === 0
        const target = key === '$ref' ? (value as string).slice('#/$defs/'.length) : undefined
        if (isEmpty || WITHOUT_EFFECT.get(key) === value) continue
        if (target !== undefined && trail.has(target)) leaf.isRepeated = true
        else if (target !== undefined) {
          passed.add(target)
          parts.add($defs[target] ?? true)
        } else if (key === 'allOf') for (const each of list) parts.add(each)
        else if (list.length === 2 && list.some(isNull)) {
          isNullable = true
          parts.add(list.find(each => !isNull(each)) ?? true)
        } else if (key === 'type') {
          const types = [value].flat() as string[]
          leaf.types = leaf.types?.filter(each => types.includes(each)) ?? types
        } else if ((key === 'const' || key === 'enum') && leaf.values === undefined) {
          const values = (key === 'const' ? [value] : value) as unknown[]
          leaf.values = new Map(values.map(each => [comparable(each), each]))
        } else if (key === 'required') for (const name of value as string[]) needed.add(name)
        else if (key === 'properties')
          for (const [name, each] of Object.entries(value as Record<string, JsonSchema>)) push(`.${name}`, each)
        else if (key === 'items' || (key === 'additionalProperties' && value !== false))
          push(key === 'items' ? '[]' : '.*', value as JsonSchema)
        else say(key, value)
      }
    }
    if (isNullable) leaf.types?.push('null')
    if (isNullable) leaf.values?.set('null', null)
    for (const name of needed) if (!inner.has(`.${name}`)) inner.set(`.${name}`, [true])
    for (const [key, each] of inner)
      pending.push({ path: `${path}${key}`, schemas: each, isRequired: needed.has(key.slice(1)), trail: passed })
  }
  return leaves
}

/** Returns the `$defs` that differ between two functions, directly or through references. */
function changedDefinitions({ $defs: old = {} }: Parameters, { $defs: next = {} }: Parameters): Set<string> {
  const texts = Object.keys({ ...old, ...next }).map(
    name => [name, comparable(old[name]), comparable(next[name])] as const,
  )
  const changed = new Set(texts.flatMap(([name, before, now]) => (before === now ? [] : [name])))
  for (let size = -1; size !== changed.size; ) {
    size = changed.size
    for (const [name, , text = ''] of texts) if (referencesIn(text).some(each => changed.has(each))) changed.add(name)
  }
  return changed
}

function referencesIn(text: string): string[] {
  return Array.from(text.matchAll(REFERENCE), ([, name = '']) => name)
}

function isNull(schema: JsonSchema): boolean {
  return comparable(schema) === '{"type":"null"}'
}

/** Returns the types in words; undefined if alternatives give them. */
function typeOf({ types, rest }: Leaf): string | undefined {
  if (types !== undefined) return [...new Set(types)].sort().join(' or ')
  return rest.has('anyOf') || rest.has('oneOf') ? undefined : 'any'
}

function targetOf({ method, path }: FunctionView): string {
  return `${method.toUpperCase()} ${path}`
}

function formOf({ argument: _, ...form }: ArgumentView): string {
  return Object.entries(form)
    .map(([key, value]) => `${key} ${value}`)
    .join(', ')
}

/** Returns the entries of `from` that `other` does not have. */
function missing(
  from: ReadonlySet<string> | ReadonlyMap<string, unknown>,
  other: { has(each: string): boolean },
): string[] {
  return [...from.keys()].filter(each => !other.has(each)).slice(0, MOST_LISTED)
}

function shown(values: readonly unknown[]): string {
  const texts = values.slice(0, SHOWN).map(each => quote(typeof each === 'string' ? each : comparable(each)))
  return `${texts.join(', ')}${values.length > SHOWN ? ' and more' : ''}`
}

/** Returns the security requirements of a document and the schemes that they name. */
function securityOf(definition: unknown): unknown {
  const { security, components } = Object(definition)
  return [security ?? null, (isObject(components) ? components.securitySchemes : null) ?? null]
}
