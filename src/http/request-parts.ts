import type { TObject } from '@sinclair/typebox'
import type { FastifyRequest } from 'fastify'
import { type Fault, InvalidRequest, type Loc } from '../errors.js'
import { type CompiledBody, fault, faultsOfMasked, unknownFields } from '../schema/faults.js'
import { exceedsDepth, type ParsedBody, tooDeep } from '../schema/json-body.js'
import { fieldsNamedIn, type Parsed, parsePathId, parseQueryFlag, parseUpdateMask } from '../schema/parameters.js'
import type { Precondition } from '../updates/tag.js'
import { parseIfMatch, prefersStrict } from './preconditions.js'
import { requestFaults } from './request-faults.js'

/** A body: its schema, and how deep it may nest, but for what it holds under `deepKey`, which is bounded elsewhere. */
export interface RequestBody {
  schema: TObject
  compiled: CompiledBody
  depthMax: number
  deepKey?: string
}

/** What an operation takes: its path parameter, its query parameters by kind, its body. */
export interface RequestShape {
  pathId?: string
  query: Readonly<Record<string, 'flag' | 'mask' | 'id' | 'report'>>
  body: RequestBody
}

/** A request whose every part was read and found right. `id` is undefined for an integer that no resource can have. */
export interface RequestParts {
  id: number | undefined
  flags: Record<string, boolean>
  mask: string[] | undefined
  queryIds: Record<string, number | undefined>
  texts: Record<string, string>
  precondition: Precondition
  strict: boolean
  body: Record<string, unknown>
  unknown: string[]
}

/**
 * Reads a whole request against its shape. One function for all parts, because every fault of path, query, headers and
 * body is reported at once, and because an `update_mask` in the query decides what the body must hold.
 * Throws `InvalidRequest` with the faults of stage (a) or (b) of DECISIONS section 2.
 */
export function readRequest(request: FastifyRequest, shape: RequestShape): RequestParts {
  const path = shape.pathId === undefined ? { value: undefined } : readPathId(request, shape.pathId)
  const query = readQuery(request, shape)
  const ifMatch = parseIfMatch(request.headers['if-match'])
  const strict = prefersStrict(request.headers.prefer)
  const parsed = (request.body ?? ABSENT_BODY) as ParsedBody // our own content type parser made it
  const faults = requestFaults({
    path: 'faults' in path ? path.faults : [],
    query: query.faults,
    header: 'fault' in ifMatch ? [ifMatch.fault] : [],
    body: refuseDeep(parsed, shape),
    bodyFaults: value => bodyFaults(value, shape, query.mask, strict),
  })
  if (faults.length > 0) throw new InvalidRequest(faults)
  const body = (parsed as { value: Record<string, unknown> }).value // without faults it is an object that passed
  return {
    id: 'value' in path ? path.value : undefined,
    ...query,
    precondition: 'fault' in ifMatch ? { kind: 'none' } : ifMatch,
    strict,
    body,
    unknown: unknownIn(body, shape.body.schema, query.mask).map(loc => loc.join('.')),
  }
}

const ABSENT_BODY: ParsedBody = { kind: 'absent', faults: [fault('missing', ['body'])] }

function readPathId(request: FastifyRequest, name: string): Parsed<number | undefined> {
  return parsePathId((request.params as Record<string, string>)[name] ?? '', name) // the router's own: always text
}

function refuseDeep(body: ParsedBody, { body: { depthMax, deepKey } }: RequestShape): ParsedBody {
  if (body.kind !== 'value' || !exceedsDepth(body.value, depthMax, deepKey)) return body
  return { kind: 'refused', faults: [tooDeep()] }
}

function bodyFaults(value: unknown, { body }: RequestShape, mask: string[] | undefined, strict: boolean): Fault[] {
  const faults = mask === undefined ? body.compiled.faults(value) : faultsOfMasked(body.schema, value, mask)
  const unknown = strict ? unknownIn(value, body.schema, mask) : []
  return [...faults, ...unknown.map(loc => fault('extra_forbidden', ['body', ...loc]))]
}

/** The places of unknown fields, the body's own and those inside its fields; what a mask leaves out is not looked at. */
function unknownIn(body: unknown, schema: TObject, mask: string[] | undefined): Loc[] {
  const places = unknownFields(schema, body)
  return mask === undefined ? places : places.filter(loc => loc.length === 1 || mask.includes(String(loc[0])))
}

function readQuery(request: FastifyRequest, shape: RequestShape) {
  const given = request.query as Record<string, string | string[]> // the parser's own: text, or texts when repeated
  const read = {
    flags: {} as Record<string, boolean>,
    mask: undefined as string[] | undefined,
    queryIds: {} as Record<string, number | undefined>,
    texts: {} as Record<string, string>,
    faults: [] as Fault[],
  }
  const keep = <Value>(parsed: Parsed<Value>, store: (value: Value) => void) => {
    if ('faults' in parsed) read.faults.push(...parsed.faults)
    else store(parsed.value)
  }
  for (const [name, text] of Object.entries(given)) {
    const kind = Object.hasOwn(shape.query, name) ? shape.query[name] : undefined
    // Also a mask that is refused says which fields the body is about: the others are not missing.
    if (kind === 'mask') read.mask = fieldsNamedIn(String(text), shape.body.schema)
    if (kind === undefined || typeof text !== 'string') read.faults.push(fault('extra_forbidden', ['query', name]))
    else if (kind === 'flag') keep(parseQueryFlag(text, name), value => Object.assign(read.flags, { [name]: value }))
    else if (kind === 'mask')
      keep(parseUpdateMask(text, shape.body.schema), value => {
        read.mask = value
      })
    else if (kind === 'id')
      keep(inQuery(parsePathId(text, name)), value => Object.assign(read.queryIds, { [name]: value }))
    else if (text === 'full') read.texts[name] = text
    else read.faults.push({ loc: ['query', name], msg: "Input should be 'full'", type: 'enum' })
  }
  return read
}

function inQuery<Value>(parsed: Parsed<Value>): Parsed<Value> {
  if ('value' in parsed) return parsed
  return { faults: parsed.faults.map(found => ({ ...found, loc: ['query', ...found.loc.slice(1)] })) }
}
