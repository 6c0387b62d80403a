import type { Fault, Loc } from '../check/findings.js'
import { isObject } from '../check/references.js'
import type { Edit } from './edits.js'
import { stepsOf, valueAt } from './pointers.js'

type Located = Pick<Fault, 'loc' | 'msg'>

/** Where Swagger 2.0 has the components of OpenAPI 3. */
const SECTIONS = new Map([
  ['schemas', 'definitions'],
  ['parameters', 'parameters'],
  ['responses', 'responses'],
  ['securitySchemes', 'securityDefinitions'],
])
const COMPONENT = /#\/components\/(schemas|parameters|responses|securitySchemes)\//g

/** Finds what a check of a repaired definition says in the one that was given. */
export class GivenPlaces {
  private readonly isConverted: boolean

  constructor(
    private readonly given: unknown,
    private readonly edits: readonly Edit[],
  ) {
    this.isConverted = edits.some(each => each.path.length === 0)
  }

  /** The finding at its place in the given definition, in the words of that definition. `loc` begins at its root. */
  located<Found extends Located>(found: Found): Found {
    const loc = this.nearestTo(found.loc)
    if (!this.isConverted) return { ...found, loc }
    return { ...found, loc, msg: found.msg.replace(COMPONENT, (_, section) => `#/${SECTIONS.get(section)}/`) }
  }

  /** The place that is nearest to `path`, a place in the repaired definition. */
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
      // What is missing has its place too.
      if (!Object.hasOwn(value, key)) return i === place.length - 1 ? place : place.slice(0, i)
      value = (value as Record<string | number, unknown>)[key]
    }
    return place
  }

  /** The place in the Swagger 2.0 document of a place in what was made of it. */
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
    if (part !== 'requestBody') return path
    const [, , , ...inner] = rest // after content, media type and schema; the schemas of forms are not read
    const holders = [operation, operation.slice(0, 2)]
    const body = holders.flatMap(holder => this.entriesAt(holder)).find(({ entry }) => entry.in === 'body')
    return body === undefined ? operation : [...body.place, 'schema', ...inner]
  }

  /** A parameter says in itself what OpenAPI 3 has in its schema. */
  private ofParameter(isParameter: boolean, steps: Loc): Loc {
    return isParameter && steps[0] === 'schema' ? steps.slice(1) : steps
  }

  /** The parameters of a path or an operation, each where its definition is. */
  private entriesAt(holder: Loc): { entry: Record<string, unknown>; index: number; place: Loc }[] {
    const list = valueAt(this.given, [...holder, 'parameters'])
    return (Array.isArray(list) ? list : []).flatMap((each, index) => {
      const isReference = isObject(each) && typeof each.$ref === 'string'
      const place = isReference ? stepsOf(String(each.$ref)) : [...holder, 'parameters', index]
      const entry = isReference ? valueAt(this.given, place) : each
      return isObject(entry) ? [{ entry, index, place }] : []
    })
  }
}

function isBody(entry: Record<string, unknown>): boolean {
  return entry.in === 'body' || entry.in === 'formData'
}
