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

const NO_PARAMETERS = Type.Object({})

/**
 * Validates requests against the schemas of their routes, all parts at once: Fastify would stop at the first invalid one. Bodies are not
 * changed. An undeclared query parameter is a fault.
 */
export function registerRequestValidation(app: FastifyInstance): void {
  const checks = new Map<FastifySchema, (request: FastifyRequest) => Fault[]>()
  const schemas = new Set<FastifySchema>()
  app.setValidatorCompiler(() => () => true)
  app.addHook('onRoute', ({ schema }) => {
    if (schema === undefined) return
    if (schema.operationId !== undefined) schema.querystring ??= NO_PARAMETERS
    schemas.add(schema)
  })
  // Later, because the routes below `/api` change their schemas.
  app.addHook('onReady', async () => {
    for (const schema of schemas) checks.set(schema, requestCheck(schema))
  })
  app.addHook('preValidation', (request, _reply, done) => {
    const { schema } = request.routeOptions
    const faults = (schema && checks.get(schema)?.(request)) ?? []
    done(faults.length === 0 ? undefined : new InvalidRequest(faults))
  })
}

/** The parts with parameters in the order of their faults in the answer (DECISIONS section 2): in the schema, the request, and `loc`. */
const PARAMETERS = [
  ['params', 'params', 'path'],
  ['querystring', 'query', 'query'],
  ['headers', 'headers', 'header'],
] as const

/** Returns the check of requests: it replaces their parts by the parsed ones, and returns the faults. */
function requestCheck(schema: FastifySchema): (request: FastifyRequest) => Fault[] {
  const readers = PARAMETERS.flatMap(([part, name, place]) => {
    const own = schema[part] as TObject | undefined // all routes have TypeBox schemas
    return own === undefined ? [] : [{ name, read: parameterReader(own, place) }]
  })
  const checkBody = schema.body === undefined ? undefined : bodyReader(schema.body as TObject, schema)
  return request => {
    const body = checkBody?.(request.body as ReceivedBody | undefined) // what the parser made
    if (body !== undefined && 'faults' in body && body.standsAlone) return body.faults
    const faults: Fault[] = []
    for (const { name, read } of readers) {
      const parsed = read(request[name] as ParameterTexts)
      if ('value' in parsed) Object.assign(request, { [name]: parsed.value })
      else faults.push(...parsed.faults)
    }
    if (body === undefined) return faults
    if ('value' in body) request.body = body.value
    else faults.push(...body.faults)
    return faults
  }
}

/** The mask in the query decides which fields of the body are required. */
function bodyReader(schema: TObject, route: FastifySchema) {
  const check = bodyCheck(schema)
  const maskIn = maskReader((route.querystring ?? NO_PARAMETERS) as TObject)
  const takesPrefer = Object.hasOwn((route.headers as TObject | undefined)?.properties ?? {}, 'prefer')
  return (received: ReceivedBody | undefined): ReturnType<typeof check> => {
    if (!received) return { faults: [fault('missing', ['body'])], standsAlone: false }
    const { parsed, query, headers } = received
    if (parsed instanceof UnparsedBody) return { value: parsed } // the operation's worker checks it
    return check(parsed, { mask: maskIn(query), strict: takesPrefer && prefersStrict(headers.prefer) })
  }
}
