import { type Static, type TObject, type TSchema, Type } from '@sinclair/typebox'
import type { FastifyInstance, FastifyRequest, FastifySchema, FastifyTypeProvider } from 'fastify'
import { type Fault, InvalidRequest } from '../errors.js'
import { bodyCheck } from '../validation/body-check.js'
import { fault } from '../validation/faults.js'
import { maskReader, type ParameterTexts, parameterReader } from '../validation/parameters.js'
import { type ReceivedBody, UnparsedBody } from './body.js'
import { prefersStrict } from './parameters.js'

/** The types for handlers of routes with TypeBox schemas: `app.withTypeProvider<SchemaTypes>()`. */
export interface SchemaTypes extends FastifyTypeProvider {
  validator: this['schema'] extends TSchema ? Static<this['schema']> : unknown
}

/** The faults of one part of a request. `standsAlone`: the body is unreadable, and no other part is reported. */
class InvalidPart extends InvalidRequest {
  constructor(
    readonly part: Part,
    faults: Fault[],
    readonly standsAlone = false,
  ) {
    super(faults)
  }
}

/** The order in which Fastify validates the parts. */
const VALIDATED = ['params', 'body', 'querystring', 'headers'] as const
type Part = (typeof VALIDATED)[number]

/** The order of the faults in the answer (DECISIONS section 2). */
const ANSWERED: readonly Part[] = ['params', 'querystring', 'headers', 'body']

/** The first element of `loc` for faults of a part. */
const PLACE = { params: 'path', querystring: 'query', headers: 'header' } as const

const NO_PARAMETERS = Type.Object({})

/** The result of a Fastify validator. `value` replaces the input. */
type Verdict = { value: unknown } | { error: InvalidPart }

/** Validates requests against the schemas of their routes. Bodies are not changed. An undeclared query parameter is a fault. */
export function registerRequestValidation(app: FastifyInstance): void {
  app.addHook('onRoute', route => {
    const schema = route.schema
    if (schema === undefined) return
    if (schema.operationId !== undefined) schema.querystring ??= NO_PARAMETERS
    // Each route has its own compiler, because the mask in its query decides which body fields are required.
    route.validatorCompiler = ({ schema: own, httpPart }) => {
      const part = own as TObject // all routes have TypeBox schemas
      if (httpPart === 'body') return bodyValidator(part, schema)
      return parameterValidator(part, httpPart as keyof typeof PLACE) // Fastify has no other parts
    }
  })
}

/** All faults of a request in the order of the answer. Fastify stops at the first invalid part, so the later parts are checked here. */
export function faultsOfAllParts(error: InvalidRequest, request: FastifyRequest): Fault[] {
  if (!(error instanceof InvalidPart)) return error.faults
  const behind = VALIDATED.slice(VALIDATED.indexOf(error.part) + 1).map(part => invalidPart(part, request))
  const invalid = [error, ...behind.filter(found => found !== undefined)]
  const alone = invalid.find(({ standsAlone }) => standsAlone)
  if (alone !== undefined) return alone.faults
  return ANSWERED.flatMap(part => invalid.find(found => found.part === part)?.faults ?? [])
}

function invalidPart(part: Part, request: FastifyRequest): InvalidPart | undefined {
  const validate = request.getValidationFunction(part) as ((input: unknown) => Verdict) | undefined // made by `validatorCompiler` above
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
    if (parsed instanceof UnparsedBody) return { value: parsed } // the operation's worker checks it
    const verdict = check(parsed, { mask: maskIn(query), strict: takesPrefer && prefersStrict(headers.prefer) })
    return 'value' in verdict ? verdict : { error: new InvalidPart('body', verdict.faults, verdict.standsAlone) }
  }
}
