import type { Fault, Loc } from '../check/findings.js'
import { isObject } from '../check/references.js'
import type { Edit } from './edits.js'
import { stepsOf, valueAt } from './pointers.js'

type Located = Pick<Fault, 'loc' | 'msg'>

/** Where Swagger 2.0 keeps each section of OpenAPI 3's components. */
const SECTIONS = new Map([
  ['schemas', 'definitions'],
  ['parameters', 'parameters'],
  ['responses', 'responses'],
  ['securitySchemes', 'securityDefinitions'],
])
const COMPONENT = /#\/components\/(schemas|parameters|responses|securitySchemes)\//g

/** Maps places in a repaired definition back to the given definition. */
export class GivenPlaces {
  private readonly isConverted: boolean

  constructor(
    private readonly given: unknown,
    private readonly edits: readonly Edit[],
  ) {
    this.isConverted = edits.some(each => each.path.length === 0)
  }

  /** Returns the finding with its place and names in the given definition. `loc` begins at the root. */
  located<Found extends Located>(found: Found): Found {
    const loc = this.nearestTo(found.loc)
    if (!this.isConverted) return { ...found, loc }
    return { ...found, loc, msg: found.msg.replace(COMPONENT, (_, section) => `#/${SECTIONS.get(section)}/`) }
  }

  /** Returns the place in the given definition that is nearest to `path` in the repaired one. */
  nearestTo(path: Loc): Loc {
    let place = path
    for (const { op, path: at, from } of this.edits.toReversed()) {
      if (at.length === 0) place = this.beforeConversion(place)
      const holder = at.slice(0, -1)
      const [key, index] = [place[holder.length], at.at(-1)]
      const isUnder = op === 'remove' || op === 'move' ? holder.every((step, i) => step === place[i]) : false
      if (!isUnder) continue
      if (op === 'move' && from !== undefined && key === index) place = [...from, ...place.slice(at.length)]
      if (op === 'remove' && typeof index === 'number' && typeof key === 'number' && key >= index)
        place = [...holder, key + 1, ...place.slice(at.length)]
    }
    let value = this.given
    for (const [i, key] of place.entries()) {
      if (typeof value !== 'object' || value === null) return place.slice(0, i)
      // The last key may be missing: the fault is then at that key.
      if (!Object.hasOwn(value, key)) return i === place.length - 1 ? place : place.slice(0, i)
      value = (value as Record<string | number, unknown>)[key]
    }
    return place
  }

  /** Returns the place in the Swagger 2.0 document for a place in its conversion. */
  private beforeConversion(path: Loc): Loc {
    const [section = '', name = '', method = '', part, ...rest] = path
    if (section === 'servers') return ['host']
    if (section === 'components')
      return [SECTIONS.get(String(name)) ?? name, method, ...this.ofParameter(name === 'parameters', path.slice(3))]
    if (section !== 'paths') return path
    const isShared = method === 'parameters'
    const operation = isShared ? path.slice(0, 2) : path.slice(0, 3)
    if (isShared || part === 'parameters') {
      const index = Number(isShared ? part : rest[0])
      const before = this.entriesAt(operation).filter(each => !isBody(each.entry))[index]
      return before === undefined
        ? [...operation, 'parameters']
        : [...operation, 'parameters', before.index, ...this.ofParameter(true, isShared ? rest : rest.slice(1))]
    }
    if (part === 'responses')
      return [...operation, part, ...rest.filter((_, i) => rest[1] !== 'content' || (i !== 1 && i !== 2))]
    if (part === 'servers') return [...operation, 'schemes']
    if (part !== 'requestBody') return path
    if (rest.join() === 'content') {
      const places = [[...operation, 'consumes'], ['consumes']]
      return places.find(each => valueAt(this.given, each) !== undefined) ?? operation
    }
    // In place of content, media type and schema there is a schema; form schemas are not read.
    const inner = rest[0] === 'content' ? ['schema', ...rest.slice(3)] : rest
    const holders = [operation, operation.slice(0, 2)]
    const body = holders.flatMap(holder => this.entriesAt(holder)).find(({ entry }) => entry.in === 'body')
    return body === undefined ? operation : [...body.place, ...inner]
  }

  /** A Swagger 2.0 parameter holds the keywords that OpenAPI 3 puts into its schema. */
  private ofParameter(isParameter: boolean, steps: Loc): Loc {
    return isParameter && steps[0] === 'schema' ? steps.slice(1) : steps
  }

  /** Returns the parameters of a path or operation, each with the place of its definition. */
  private entriesAt(holder: Loc): { entry: Record<string, unknown>; index: number; place: Loc }[] {
    const list = valueAt(this.given, [...holder, 'parameters'])
    return (Array.isArray(list) ? list : []).flatMap((each, index) => {
      const target = isObject(each) && typeof each.$ref === 'string' ? stepsOf(each.$ref) : undefined
      const found = target && valueAt(this.given, target)
      const own = { entry: each, index, place: [...holder, 'parameters', index] }
      // If the target of a reference does not exist, return the reference.
      const { entry, place } = target && isObject(found) ? { entry: found, place: target } : own
      return isObject(entry) ? [{ entry, index, place }] : []
    })
  }
}

function isBody(entry: Record<string, unknown>): boolean {
  return entry.in === 'body' || entry.in === 'formData'
}
