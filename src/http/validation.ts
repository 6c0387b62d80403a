import { type Static, type TObject, type TSchema, Type } from '@sinclair/typebox'
import type { FastifyInstance, FastifyRequest, FastifySchema, FastifyTypeProvider } from 'fastify'
import { type Fault, InvalidRequest } from '../errors.js'
import { bodyCheck } from '../schema/body-check.js'
import { fault } from '../schema/faults.js'
import { maskReader, type ParameterTexts, parameterReader } from '../schema/parameters.js'
import { isJsonObject } from '../schema/vocabulary.js'
import { type ReceivedBody, UnparsedBody } from './body.js'
import { prefersStrict } from './parameters.js'

/** What the handler of a route with TypeBox schemas gets: `app.withTypeProvider<SchemaTypes>()`. */
export interface SchemaTypes extends FastifyTypeProvider {
  validator: this['schema'] extends TSchema ? Static<this['schema']> : unknown
}

/** A part of a request that its schema refuses. A body that cannot be read `standsAlone`: no other part is reported. */
class InvalidPart extends InvalidRequest {
  constructor(
    readonly part: Part,
    faults: Fault[],
    readonly standsAlone = false,
  ) {
    super(faults)
  }
}

/** In the order in which Fastify validates them. */
const VALIDATED = ['params', 'body', 'querystring', 'headers'] as const
type Part = (typeof VALIDATED)[number]

/** In the order in which their faults are answered (DECISIONS section 2). */
const ANSWERED: readonly Part[] = ['params', 'querystring', 'headers', 'body']

/** What the places of faults in a part begin with. */
const PLACE = { params: 'path', querystring: 'query', headers: 'header' } as const

const NO_PARAMETERS = Type.Object({})

/** What Fastify takes from a validator. A value takes the place of what came. */
type Verdict = { value: unknown } | { error: InvalidPart }

/** Makes the schemas of routes act. The body stays as it was sent. An operation takes only the query parameters that it declares. */
export function registerRequestValidation(app: FastifyInstance): void {
  app.addHook('onRoute', route => {
    const schema = route.schema
    if (schema === undefined) return
    if (schema.operationId !== undefined) schema.querystring ??= NO_PARAMETERS
    // Each route has a compiler of its own, because a mask in its query decides what its body must hold.
    route.validatorCompiler = ({ schema: own, httpPart }) => {
      const part = own as TObject // these schemas are ours
      if (httpPart === 'body') return bodyValidator(part, schema)
      return parameterValidator(part, httpPart as keyof typeof PLACE) // Fastify has no others
    }
  })
}

/** Every fault of the request in the order of the answer. Fastify stops at the first wrong part: those behind it are checked here. */
export function faultsOfAllParts(error: InvalidRequest, request: FastifyRequest): Fault[] {
  if (!(error instanceof InvalidPart)) return error.faults
  const behind = VALIDATED.slice(VALIDATED.indexOf(error.part) + 1).map(part => invalidPart(part, request))
  const invalid = [error, ...behind.filter(found => found !== undefined)]
  const alone = invalid.find(({ standsAlone }) => standsAlone)
  if (alone !== undefined) return alone.faults
  return ANSWERED.flatMap(part => invalid.find(found => found.part === part)?.faults ?? [])
}

/** The names of the fields of a body that its schema refuses; none of one that is not an object. */
export function fieldsOfInvalidBody({ body }: FastifyRequest): string[] {
  const { parsed } = (body ?? {}) as Partial<ReceivedBody> // as the parser made it: only a valid body takes its place
  if (parsed === undefined || parsed instanceof UnparsedBody || parsed.kind !== 'value') return []
  return isJsonObject(parsed.value) ? Object.keys(parsed.value) : []
}

function invalidPart(part: Part, request: FastifyRequest): InvalidPart | undefined {
  const validate = request.getValidationFunction(part) as ((input: unknown) => Verdict) | undefined // made above
  const verdict = validate?.(part === 'querystring' ? request.query : (request[part] ?? null))
  return verdict !== undefined && 'error' in verdict ? verdict.error : undefined
}

function parameterValidator(schema: TObject, part: keyof typeof PLACE) {
  const read = parameterReader(schema, PLACE[part])
  return (texts: ParameterTexts): Verdict => {
    const parsed = read(texts)
    return 'value' in parsed ? parsed : { error: new InvalidPart(part, parsed.faults) }
  }
}

function bodyValidator(schema: TObject, route: FastifySchema) {
  const check = bodyCheck(schema)
  const maskIn = maskReader((route.querystring ?? NO_PARAMETERS) as TObject)
  const takesPrefer = Object.hasOwn((route.headers as TObject | undefined)?.properties ?? {}, 'prefer')
  return (received: ReceivedBody | null): Verdict => {
    if (received === null) return { error: new InvalidPart('body', [fault('missing', ['body'])]) }
    const { parsed, query, headers } = received
    if (parsed instanceof UnparsedBody) return { value: parsed } // its operation has it checked
    const verdict = check(parsed, { mask: maskIn(query), strict: takesPrefer && prefersStrict(headers.prefer) })
    return 'value' in verdict ? verdict : { error: new InvalidPart('body', verdict.faults, verdict.standsAlone) }
  }
}
