import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import swagger from '@fastify/swagger'
import type { TSchema } from '@sinclair/typebox'
import type { FastifyInstance } from 'fastify'
import { HTTPValidationError, ValidationError } from '../schema/faults.js'
import { component } from '../schema/vocabulary.js'
import { DOCS_ICON, DOCS_PAGE, DOCS_STYLE } from './docs-page.js'
import { addExamples } from './examples.js'
import { PAGE_CONTENT_POLICY, PAGE_HEADERS } from './headers.js'
import { documented, ERROR_ANSWERS } from './openapi.js'

/**
 * Makes the OpenAPI document from the schemas of the routes that follow. `components` are the features' named records. Answers where
 * its text is found once the application is ready.
 */
export async function registerDocument(
  app: FastifyInstance,
  version: string,
  components: TSchema[],
): Promise<() => Buffer> {
  for (const schema of [...components, ValidationError, HTTPValidationError, ...ERROR_ANSWERS]) {
    app.addSchema(component(schema))
  }
  let document = Buffer.alloc(0)
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'Agent and Custom Tool Management',
        version,
        description:
          'Updates agents (the wire calls them personas) and custom tools, and validates tool definitions. An update ' +
          'never resets what was not sent. To change single fields of an agent, name them in `update_mask`. A read with ' +
          '`view=update` answers the body of an update, to be edited and sent back.',
        contact: { name: 'the agent-tool-management authors' },
        license: { name: 'MIT', identifier: 'MIT' },
        'x-interface-version': 'Development',
      } as { title: string; version: string }, // the specification allows the extension and the identifier, the type does not
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
      if (!('openapiObject' in described)) return described.swaggerObject
      described.openapiObject.servers = [{ url: '.' }] // relative to the document, whatever prefix a proxy serves it under
      addExamples(described.openapiObject)
      document = Buffer.from(JSON.stringify(described.openapiObject))
      return {} // what is returned is kept for as long as the process runs
    },
    transform: ({ schema, url, route }) => {
      return { schema: schema.operationId === undefined ? schema : documented(schema, route.config), url }
    },
    refResolver: { buildLocalReference: json => String(json.$id) },
  })
  app.addHook('onReady', async () => {
    app.swagger()
  })
  return () => document
}

/** Where the library that draws the page keeps what a browser loads. */
const LIBRARY = join(dirname(createRequire(import.meta.url).resolve('@fastify/swagger-ui/package.json')), 'static')
const SCRIPT = fileURLToPath(new URL('docs-page-script.js', import.meta.url))

/** The library's files change only with the package: a browser keeps them so long, in s. */
const LIBRARY_KEPT_S = 3_600

/** A file of the page: read once, by the first who asks, so that an answer costs no memory of its own, however many are under way. */
interface PageFile {
  type: string
  content: Buffer
  isLibrary: boolean
}

/** Everything that the page loads, by name: nothing else below `/docs/` exists, so no path has to be resolved. */
async function readFiles(): Promise<ReadonlyMap<string, PageFile>> {
  const [script, style] = ['text/javascript; charset=utf-8', 'text/css; charset=utf-8'] as const
  const library = async (name: string, type: string): Promise<PageFile> => {
    return { type, content: await readFile(join(LIBRARY, name)), isLibrary: true }
  }
  return new Map([
    ['page.js', { type: script, content: await readFile(SCRIPT), isLibrary: false }],
    ['page.css', { type: style, content: Buffer.from(DOCS_STYLE), isLibrary: false }],
    ['icon.svg', { type: 'image/svg+xml', content: Buffer.from(DOCS_ICON), isLibrary: false }],
    ['swagger-ui.css', await library('swagger-ui.css', style)],
    ['swagger-ui-bundle.js', await library('swagger-ui-bundle.js', script)],
  ])
}

/** What the routes of pages have alike: open to everybody, no part of the document, and with HEAD. */
const PAGE = { exposeHeadRoute: true, config: { policy: { permission: 'public' } }, schema: { hide: true } } as const

/** `GET /openapi.json`; `GET /docs` with its files, a page to read and try it that needs no network; and `GET /`, which leads there. */
export function registerDocs(app: FastifyInstance, document: () => Buffer): void {
  app.get('/openapi.json', PAGE, (_, reply) => reply.type('application/json').send(document()))
  let files: ReturnType<typeof readFiles> | undefined
  const own = { 'content-security-policy': PAGE_CONTENT_POLICY, ...PAGE_HEADERS }
  app.get('/', PAGE, (_, reply) => reply.redirect('docs'))
  app.get('/docs/', PAGE, (_, reply) => reply.redirect('../docs'))
  app.get('/docs', PAGE, (_, reply) => reply.headers(own).type('text/html; charset=utf-8').send(DOCS_PAGE))
  app.get<{ Params: { file: string } }>('/docs/:file', PAGE, async (request, reply) => {
    files ??= readFiles()
    const file = (await files).get(request.params.file)
    if (file === undefined) return reply.callNotFound()
    if (file.isLibrary) reply.header('cache-control', `private, max-age=${LIBRARY_KEPT_S}`)
    return reply.headers(own).type(file.type).send(file.content)
  })
}
