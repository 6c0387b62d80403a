import { readdirSync, readFileSync } from 'node:fs'
import swagger from '@fastify/swagger'
import { type TObject, type TSchema, Type } from '@sinclair/typebox'
import fastify, { type FastifySchema } from 'fastify'
import { registerOperations } from '../src/app.js'
import * as changes from '../src/changes/read-changes.js'
import { readConfig } from '../src/config.js'
import type { Database } from '../src/db/database.js'
import { Gate } from '../src/http/gate.js'
import * as lists from '../src/http/lists.js'
import { ERROR_ANSWERS } from '../src/http/openapi.js'
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
import { VERSION } from '../src/version.js'

/* Makes the OpenAPI document from the schemas of the routes. The service serves the checked-in file. */

const ROOMS = [changes, lists, me, writes, nested, persona, proposals, runtime, headers, tool, faults]

/** The body of an agent update as documented. With an `update_mask`, no field is required. */
const PersonaFieldsUpdate = Type.Partial(persona.PersonaUpsertRequest as TObject, {
  $id: 'PersonaFieldsUpdate',
  description: 'With `update_mask`, the fields in the mask; without it, the required fields of `PersonaUpsertRequest`.',
})

/** All named schemas: those exported by `ROOMS`, the error answers and `PersonaFieldsUpdate`. */
const COMPONENTS = [
  ...ROOMS.flatMap(room => Object.values<unknown>(room)).filter(isNamed),
  ...ERROR_ANSWERS,
  PersonaFieldsUpdate,
]

function isNamed(value: unknown): value is TSchema {
  return typeof value === 'object' && value !== null && '$id' in value
}

/** Returns the document as JSON text. Sends no request, so `database` and `service` are not used. */
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
          'Updates agents (called personas in this API) and custom tools, and validates tool definitions. An update ' +
          'keeps fields that the request omits. To change single fields of an agent, name them in `update_mask`.',
        contact: { name: 'the agent-tool-management authors' },
        license: { name: 'MIT', identifier: 'MIT' },
        'x-interface-version': 'Development',
      } as { title: string; version: string }, // the specification allows `x-` members and the identifier, but the type does not
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

/** Returns a schema for `components`. Every named schema inside the schema becomes a reference. */
function component({ $id, ...content }: TSchema): Record<string, unknown> & { $id: string } {
  return { $id: String($id), ...(withReferences(content) as Record<string, unknown>) } // `withReferences` returns an object for an object
}

/** Returns a copy of a schema in which each named schema is replaced with a reference. */
function withReferences(node: unknown): unknown {
  if (Array.isArray(node)) return node.map(withReferences)
  if (typeof node !== 'object' || node === null) return node
  if ('$id' in node) return { $ref: node.$id }
  return Object.fromEntries(Object.entries(node).map(([key, value]) => [key, withReferences(value)]))
}

const REQUEST_ID = 'Echoed and logged if it has 1 to 64 letters, digits, `-` and `_`. Any other value is replaced.'

/** Returns the schema of an operation for the document, with named schemas as references, and with the parts that all operations share. */
function documented(schema: FastifySchema): FastifySchema {
  const { properties = {} } = (schema.headers ?? {}) as Partial<TObject> // all routes have TypeBox schemas
  const headers = Type.Object({
    ...properties,
    'x-request-id': Type.Optional(Type.String({ description: REQUEST_ID })),
  })
  const shown = schema.body === persona.PersonaUpsertRequest && schema.operationId === 'update_persona'
  const body = withReferences(shown ? PersonaFieldsUpdate : schema.body)
  return { tags: ['public'], security: [{ bearer: [] }], ...schema, headers, ...(body !== undefined && { body }) }
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

/** The parts of a documented operation that `addExamples` reads or changes. */
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
    const example = JSON.parse(readFileSync(new URL(`${name}.json`, FOLDER), 'utf8')) as Example // a file of this repository
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
