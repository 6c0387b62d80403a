import { createReadStream } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import type { Readable } from 'node:stream'
import { fileURLToPath } from 'node:url'
import swagger from '@fastify/swagger'
import type { TSchema } from '@sinclair/typebox'
import type { FastifyInstance } from 'fastify'
import { HTTPValidationError, ValidationError } from '../schema/faults.js'
import { component } from '../schema/vocabulary.js'
import { DOCS_ICON, DOCS_PAGE, DOCS_STYLE } from './docs-page.js'
import { addExamples } from './examples.js'
import { documented, ERROR_ANSWERS } from './openapi.js'
import { PAGE_CONTENT_POLICY, PAGE_HEADERS } from './security-headers.js'

/**
 * The OpenAPI document, made from the routes' own schemas: `GET /openapi.json`, and `GET /docs`, a page to read and try
 * it that needs no network. `components` are the features' named records. Register before the routes: only later ones
 * are described.
 */
export async function registerDocs(app: FastifyInstance, version: string, components: TSchema[]): Promise<void> {
  for (const schema of [...components, ValidationError, HTTPValidationError, ...ERROR_ANSWERS]) {
    app.addSchema(component(schema))
  }
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'Agent and Custom Tool Management',
        version,
        description:
          'Updates agents (the wire calls them personas) and custom tools, and validates tool definitions. An update ' +
          'never resets what was not sent. To change single fields of an agent, name them in `update_mask`. To read ' +
          'without changing, send a dry run that names no field.',
        contact: { name: 'the agent-tool-management authors' },
        license: { name: 'MIT', identifier: 'MIT' },
        'x-interface-version': 'Development',
      } as { title: string; version: string }, // the specification allows the extension and the identifier, the type does not
      servers: [{ url: '/' }],
      tags: [{ name: 'public', description: 'Agents and custom tools.' }],
      components: {
        securitySchemes: {
          bearer: {
            type: 'http',
            scheme: 'bearer',
            description: 'A token of `agentctl token create`: `pat_...` or `sa_...`.',
          },
        },
      },
    },
    transformObject: described => {
      if ('openapiObject' in described) addExamples(described.openapiObject)
      return 'openapiObject' in described ? described.openapiObject : described.swaggerObject
    },
    transform: ({ schema, url, route }) => {
      return { schema: schema.operationId === undefined ? schema : documented(schema, route.config), url }
    },
    refResolver: { buildLocalReference: json => String(json.$id) },
  })
  registerPage(app)
  app.get('/openapi.json', PAGE, async (_, reply) => {
    return reply.type('application/json').send(JSON.stringify(app.swagger()))
  })
}

/** Where the library that draws the page keeps what a browser loads. */
const LIBRARY = join(dirname(createRequire(import.meta.url).resolve('@fastify/swagger-ui/package.json')), 'static')
const SCRIPT = fileURLToPath(new URL('docs-page-script.js', import.meta.url))

/** The library's files change only with the package: a browser keeps them so long, in s. */
const LIBRARY_KEPT_S = 3_600

/** Everything that the page loads, by name: nothing else below `/docs/` exists, so no path has to be resolved. */
const FILES = new Map<string, PageFile>([
  ['page.js', { type: 'text/javascript; charset=utf-8', content: () => createReadStream(SCRIPT), isLibrary: false }],
  ['page.css', { type: 'text/css; charset=utf-8', content: () => DOCS_STYLE, isLibrary: false }],
  ['icon.svg', { type: 'image/svg+xml', content: () => DOCS_ICON, isLibrary: false }],
  ['swagger-ui.css', libraryFile('swagger-ui.css', 'text/css; charset=utf-8')],
  ['swagger-ui-bundle.js', libraryFile('swagger-ui-bundle.js', 'text/javascript; charset=utf-8')],
])

interface PageFile {
  type: string
  content: () => string | Readable
  isLibrary: boolean
}

function libraryFile(name: string, type: string): PageFile {
  return { type, content: () => createReadStream(join(LIBRARY, name)), isLibrary: true }
}

/** What the routes of pages have alike: open to everybody, no part of the document, and with HEAD. */
const PAGE = { exposeHeadRoute: true, config: { policy: { permission: 'public' } }, schema: { hide: true } } as const

/** `GET /docs` with its files, and `GET /`, which leads there. */
function registerPage(app: FastifyInstance): void {
  const own = { 'content-security-policy': PAGE_CONTENT_POLICY, ...PAGE_HEADERS }
  app.get('/', PAGE, (_, reply) => reply.redirect('docs'))
  app.get('/docs/', PAGE, (_, reply) => reply.redirect('../docs'))
  app.get('/docs', PAGE, (_, reply) => reply.headers(own).type('text/html; charset=utf-8').send(DOCS_PAGE))
  app.get<{ Params: { file: string } }>('/docs/:file', PAGE, (request, reply) => {
    const file = FILES.get(request.params.file)
    if (file === undefined) return reply.callNotFound()
    if (file.isLibrary) reply.header('cache-control', `private, max-age=${LIBRARY_KEPT_S}`)
    return reply.headers(own).type(file.type).send(file.content())
  })
}
