import { readdirSync, readFileSync } from 'node:fs'
import { STATUS_CODES } from 'node:http'
import swagger from '@fastify/swagger'
import { type TObject, type TProperties, type TSchema, Type } from '@sinclair/typebox'
import fastify, { type FastifySchema } from 'fastify'
import { registerOperations } from '../src/app.js'
import * as changes from '../src/changes/read-changes.js'
import { readConfig } from '../src/config.js'
import type { Database } from '../src/db/database.js'
import { ERROR_CODES, STALE, UNAVAILABLE_REASONS } from '../src/errors.js'
import { Gate } from '../src/http/gate.js'
import * as lists from '../src/http/lists.js'
import type { HeaderName, OwnAnswer } from '../src/http/openapi.js'
import * as me from '../src/http/read-me.js'
import { registerRequestValidation } from '../src/http/validation.js'
import * as writes from '../src/http/writes.js'
import type { Lifecycle } from '../src/lifecycle.js'
import * as nested from '../src/persona/nested-schemas.js'
import * as persona from '../src/persona/schema.js'
import * as proposals from '../src/proposals/schema.js'
import * as runtime from '../src/runtime/read-runtime.js'
import * as headers from '../src/tool/headers.js'
import * as tool from '../src/tool/schema.js'
import * as faults from '../src/validation/faults.js'
import { list, nullable, text } from '../src/validation/vocabulary.js'
import { VERSION } from '../src/version.js'

/* Makes the OpenAPI document of the schemas of the routes. The service serves the checked-in file. */

const ROOMS = [changes, lists, me, writes, nested, persona, proposals, runtime, headers, tool, faults]

/** The body of an agent update with an `update_mask`, in which no field is required. */
const PersonaFieldsUpdate = Type.Partial(persona.PersonaUpsertRequest as TObject, {
  $id: 'PersonaFieldsUpdate',
  description: 'With `update_mask` the fields that it names; without it all that `PersonaUpsertRequest` requires.',
})

/** The headers of answers. */
const HEADERS: Readonly<Record<HeaderName, string>> = {
  'dry-run': '`true` when nothing was stored because the request was a dry run.',
  etag: 'The entity tag of what is stored, or of what is answered. As `If-Match` of an update it stands for the stored version.',
  'idempotent-replayed':
    '`true` when the same request with this `Idempotency-Key` was stored before: the tag is that of its version.',
  link: 'The next page, relative to this address, with `rel="next"`; absent on the last.',
  location: 'Where it is read.',
  'preference-applied': 'Which preferences made a difference: `handling=strict` and `return=minimal` when asked for.',
  ratelimit: 'What is left of the quota, and the seconds until it is whole again: `"token";r=599;t=60`.',
  'ratelimit-policy':
    'The quota that this request counted against: `"token";q=600;w=60` is 600 requests in 60 s. Of a 429 the limit that refused it.',
  'retry-after': 'Seconds to wait before another attempt.',
  'token-expires-at': 'When the token expires, if it does.',
  warning:
    'What the caller should know: ignored, kept or missing fields, a change of somebody else that was replaced, what is left out or follows.',
  'www-authenticate': 'The bearer challenge, with what is wrong.',
  'x-request-id': 'The id of this request, in every answer and every log line of it.',
}

/** The headers of every answer to a caller. */
const OF_CALLERS = ['ratelimit', 'ratelimit-policy', 'token-expires-at'] as const

/** An error answer: its schema's name, by which generated clients tell refusals apart, and what it has beyond code, sentence and request id. */
interface ErrorAnswer {
  name: string
  /** By default the name of the status. */
  meaning?: string
  members?: TProperties
  headers?: readonly HeaderName[]
}

const OUTCOME = Type.Optional(
  Type.String({ description: 'What became of the change.', enum: ['not_applied', 'unknown', 'applied'] }),
)

/** The error answers by status; 422 has its own. */
const ERRORS = {
  400: { name: 'BadRequestError' },
  401: { name: 'UnauthorizedError', headers: ['www-authenticate', ...OF_CALLERS] },
  403: { name: 'ForbiddenError', headers: ['www-authenticate'] },
  404: { name: 'NotFoundError' },
  408: { name: 'RequestTimeoutError' },
  409: {
    name: 'ConflictError',
    meaning:
      'Nothing was changed: the answer would be too large, agents use the tool, a request with the same key is under way, or the proposal ' +
      'is closed or does not fit what is stored now.',
    members: {
      conflicts: Type.Optional(
        list(text(), {
          description: 'Of `PROPOSAL_CONFLICT`: the fields that changed since the base of the proposal.',
        }),
      ),
      agents: Type.Optional(
        list(Type.Object({ id: Type.Integer(), name: Type.String() }), {
          description: 'Of `TOOL_IN_USE`: the agents that use the tool and that the caller may see, at most 100.',
        }),
      ),
      others: Type.Optional(Type.Integer({ description: 'Likewise: how many more use it.' })),
    },
    headers: ['retry-after'],
  },
  410: {
    name: 'GoneError',
    meaning: 'There was such a version, and its content is no longer kept.',
    members: {
      reason: Type.String({
        description:
          '`pruned` by retention; `deleted`: it is gone, or another has its id now; `reset`: the cursor is of another database.',
        enum: ['pruned', 'deleted', 'reset'],
      }),
    },
  },
  412: {
    name: 'PreconditionFailedError',
    meaning: 'The stored state is not the one that If-Match names, or it is one that If-None-Match excludes.',
    members: {
      reason: Type.String({
        description:
          '`changed` since a tag that was sent; `unknown_tag`: the agent or tool never had one of them; `matched`: ' +
          '`If-None-Match` names the stored state; `nothing_stored`: a creation has no state for `If-Match`.',
        enum: Object.keys(STALE),
      }),
      current_etag: nullable(text({ description: 'The tag of the stored state; null before a creation.' })),
      changed: Type.Unsafe<unknown>({
        type: ['array', 'null'],
        description: 'What changed since the tag that was sent; null if that is not known.',
        items: Type.Object({ field: Type.String(), by: Type.String(), at: Type.String({ format: 'date-time' }) }),
      }),
    },
  },
  413: { name: 'ContentTooLargeError' },
  415: { name: 'UnsupportedMediaTypeError', meaning: 'A body without a Content-Type is read as JSON.' },
  428: { name: 'PreconditionRequiredError', meaning: 'This server, or this token, demands If-Match.' },
  429: {
    name: 'TooManyRequestsError',
    meaning:
      'RateLimit-Policy names the limit: `token` (requests a minute), `token-requests` or `token-waiting` (at a time). Retry-After says when to come back.',
    headers: ['retry-after', ...OF_CALLERS],
  },
  431: { name: 'HeadersTooLargeError' },
  500: { name: 'InternalServerError', members: { outcome: OUTCOME } },
  503: {
    name: 'ServiceUnavailableError',
    meaning: 'Not possible now; `reason` says why, Retry-After when to try again.',
    members: {
      reason: Type.String({ description: 'Why it is not possible now.', enum: [...UNAVAILABLE_REASONS] }),
      outcome: OUTCOME,
    },
    headers: ['retry-after'],
  },
} satisfies Record<number, ErrorAnswer>

/** The schemas of all error bodies except 422. */
const ERROR_ANSWERS: readonly TObject[] = Object.entries<ErrorAnswer>(ERRORS).map(([status, answer]) => {
  const codes = Object.entries(ERROR_CODES).flatMap(([code, its]) => (its === Number(status) ? [code] : []))
  const shared = {
    error_code: Type.String({ enum: codes }),
    detail: Type.String({ description: 'A sentence for people.' }),
    request_id: Type.String({ description: 'As in the header `X-Request-ID`, and in the log.' }),
  }
  return Type.Object({ ...shared, ...answer.members }, { $id: answer.name })
})

/** The refusals that every operation has. */
const ANY_OPERATION: readonly (keyof typeof ERRORS)[] = [400, 401, 403, 408, 429, 431, 500, 503]

/** The named records: what those files export with an `$id`. */
const COMPONENTS = [
  ...ROOMS.flatMap(room => Object.values<unknown>(room)).filter(isNamed),
  ...ERROR_ANSWERS,
  PersonaFieldsUpdate,
]

function isNamed(value: unknown): value is TSchema {
  return typeof value === 'object' && value !== null && '$id' in value
}

/** The document as JSON text, over a database and a service that are never asked. */
export async function documentOf(database: Database, service: Lifecycle): Promise<string> {
  const buildSerializer = () => () => JSON.stringify
  const app = fastify({
    exposeHeadRoutes: false,
    schemaController: { compilersFactory: { buildSerializer } },
  })
  registerRequestValidation(app)
  for (const schema of COMPONENTS) app.addSchema(component(schema))
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'Agent and Custom Tool Management',
        version: VERSION,
        description:
          'Updates agents (the wire calls them personas) and custom tools, and validates tool definitions. An update ' +
          'never resets what was not sent. To change single fields of an agent, name them in `update_mask`.',
        contact: { name: 'the agent-tool-management authors' },
        license: { name: 'MIT', identifier: 'MIT' },
        'x-interface-version': 'Development',
      } as { title: string; version: string }, // the specification allows the extension and the identifier, but the type does not
      tags: [{ name: 'public', description: 'Agents and custom tools.' }],
      components: {
        securitySchemes: {
          bearer: {
            type: 'http',
            scheme: 'bearer',
            description: 'A token of `agentctl token create`: `pat_...`, `sa_...`, `ro_...`, `rt_...` or `pp_...`.',
          },
        },
      },
    },
    transformObject: described => {
      if (!('openapiObject' in described)) return described.swaggerObject
      described.openapiObject.servers = [{ url: '.' }] // relative to the document, so that it works behind any path prefix
      addExamples(described.openapiObject)
      return described.openapiObject
    },
    transform: ({ schema, url }) => {
      return { schema: schema.hide ? schema : documented(schema), url }
    },
    refResolver: { buildLocalReference: json => String(json.$id) },
  })
  const config = readConfig({})
  registerOperations(app, { config, database, service }, new Gate(config))
  await app.ready()
  const document = JSON.stringify(app.swagger(), null, 2)
  await app.close()
  return `${document}\n`
}

/** The schema as the document lists it: every named schema inside it is a reference. */
function component({ $id, ...content }: TSchema): Record<string, unknown> & { $id: string } {
  return { $id: String($id), ...(withReferences(content) as Record<string, unknown>) } // an object goes in
}

/** Replaces each named schema inside a schema by a reference. */
function withReferences(node: unknown): unknown {
  if (Array.isArray(node)) return node.map(withReferences)
  if (typeof node !== 'object' || node === null) return node
  if ('$id' in node) return { $ref: node.$id }
  return Object.fromEntries(Object.entries(node).map(([key, value]) => [key, withReferences(value)]))
}

const REQUEST_ID = 'Echoed and logged, if it is 1 to 64 letters, digits, `-` and `_`; another is replaced.'

/** The answers of an operation, with the refusals that every operation has. */
function answersOf(answers: Readonly<Record<string, Partial<OwnAnswer>>>): Record<string, object> {
  const all: Record<string, object> = {}
  for (const [status, { headers, ...answer }] of Object.entries(answers)) {
    if (headers !== undefined) all[status] = { ...answer, headers: headersOf([...headers, ...OF_CALLERS]) }
  }
  for (const status of new Set([...ANY_OPERATION, ...Object.keys(answers).map(Number)])) {
    if (status in all) continue
    const {
      name,
      meaning = STATUS_CODES[status],
      headers = [],
    } = (ERRORS as Record<number, ErrorAnswer>)[status] ?? { name: '' }
    all[status] = { $ref: name, description: meaning, headers: headersOf(headers) }
  }
  return all
}

/** Headers as @fastify/swagger takes them: it copies the schema's description. */
function headersOf(names: readonly HeaderName[]) {
  const all: HeaderName[] = [...names, 'x-request-id']
  return Object.fromEntries(
    all.map(name => [name, { description: HEADERS[name], type: name === 'retry-after' ? 'integer' : 'string' }]),
  )
}

/** An operation for the document: named schemas become references, and the common parts are added. */
function documented(schema: FastifySchema): FastifySchema {
  const { properties = {} } = (schema.headers ?? {}) as Partial<TObject> // all routes have TypeBox schemas
  const headers = Type.Object({
    ...properties,
    'x-request-id': Type.Optional(Type.String({ description: REQUEST_ID })),
  })
  const shown = schema.body === persona.PersonaUpsertRequest && schema.operationId === 'update_persona'
  const body = withReferences(shown ? PersonaFieldsUpdate : schema.body)
  const response = answersOf(schema.response as Record<string, OwnAnswer>) // made by `responses`
  return {
    tags: ['public'],
    security: [{ bearer: [] }],
    ...schema,
    headers,
    ...(body !== undefined && { body }),
    response,
  }
}

/** A recorded example of `openapi/examples`: a request to the demo organisation, and its answer. */
interface Example {
  about: string
  request: { path: string; headers: Record<string, string>; body: unknown }
  answer?: { status: number; body: unknown }
}

interface Content {
  content?: Record<string, { examples?: Record<string, { summary: string; description?: string; value: unknown }> }>
}

/** The parts of an operation in the OpenAPI document that this file uses. */
interface Operation {
  operationId: string
  requestBody?: Content
  responses: Record<string, Content>
}

const FOLDER = new URL('../../openapi/examples/', import.meta.url)

/** Headers whose values depend on earlier requests. */
const OF_THE_PAST = ['if-match', 'idempotency-key']

/**
 * Adds the examples to an OpenAPI document in place: accepted requests, and answers by status. A file's name begins with its operation, or
 * with `any_operation`.
 */
function addExamples(document: { paths?: object }): void {
  const items = Object.values(document.paths ?? {}) as Record<string, Operation>[] // the shape of an OpenAPI document
  const operations = items.flatMap(item => Object.values(item))
  const names = readdirSync(FOLDER).map(file => file.replace(/\.json$/, ''))
  const isShared = (name: string) => Number(name.startsWith('any_operation'))
  for (const name of names.sort().sort((a, b) => isShared(a) - isShared(b))) {
    const example = JSON.parse(readFileSync(new URL(`${name}.json`, FOLDER), 'utf8')) as Example // the package's own file
    const { about, request, answer } = example
    const [operationId] = name.split('-')
    const query = request.path.split('?')[1]
    const show = (part: Content | undefined, value: unknown, description = {}) => {
      const media = part?.content?.['application/json']
      if (media !== undefined) media.examples = { ...media.examples, [name]: { summary: about, ...description, value } }
    }
    for (const operation of operations) {
      const isOwn = operation.operationId === operationId
      if (answer === undefined || !(isOwn || operationId === 'any_operation')) continue
      if (isOwn && answer.status < 300 && !OF_THE_PAST.some(header => header in request.headers))
        show(operation.requestBody, request.body, query && { description: `With \`?${query}\`.` })
      show(operation.responses[answer.status], answer.body)
    }
  }
}
