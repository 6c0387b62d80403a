import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import swagger from '@fastify/swagger'
import type { TSchema } from '@sinclair/typebox'
import type { FastifyInstance } from 'fastify'
import { HTTPValidationError, ValidationError } from '../validation/faults.js'
import { component } from '../validation/vocabulary.js'
import { addExamples } from './examples.js'
import { documented, ERROR_ANSWERS } from './openapi.js'

/**
 * Builds the OpenAPI document from the schemas of the routes registered after it. `components` are the named records. The returned function
 * gives its text once the application is ready.
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
      document = Buffer.from(JSON.stringify(described.openapiObject))
      return {} // the plugin would keep the returned object for the life of the process
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

/** A file of a page, as the build left it. It has no inline scripts, and its addresses are relative, so that it works behind a proxy's path prefix. */
export const pageFile = (name: string) => readFileSync(new URL(`../../page/${name}`, import.meta.url))

const LIBRARY = join(dirname(createRequire(import.meta.url).resolve('@fastify/swagger-ui/package.json')), 'static')
const library = (name: string) => readFileSync(join(LIBRARY, name))

/** Only its own files, also over plain HTTP. `data:` is for icons in its style sheet. */
const DOCS_POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self' data:; connect-src 'self'; " +
  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

/** Registers `GET /openapi.json`, `GET /docs` (a page to read and try the API without network access), and `GET /`, which leads a browser to `/console`. */
export function registerDocs(app: FastifyInstance, document: () => Buffer): void {
  app.get('/openapi.json', PAGE, (_, reply) => reply.type('application/json').send(document()))
  app.get('/', PAGE, ({ headers: { accept = '' } }, reply) => {
    reply.header('vary', 'accept')
    return /\btext\/html\b/i.test(accept) ? reply.redirect('console', 303) : reply.redirect('docs')
  })
  serveFiles(app, '/docs', DOCS_POLICY, {
    '': ['text/html; charset=utf-8', pageFile('docs.html')],
    '/page.js': ['text/javascript; charset=utf-8', pageFile('docs.js')],
    '/swagger-ui-bundle.js': ['text/javascript; charset=utf-8', library('swagger-ui-bundle.js')],
    '/swagger-ui.css': ['text/css; charset=utf-8', library('swagger-ui.css')],
    '/favicon-32x32.png': ['image/png', library('favicon-32x32.png')],
  })
}

/** Options of page routes: public, not in the document, with HEAD. */
export const PAGE = {
  exposeHeadRoute: true,
  config: { policy: { permission: 'public' } },
  schema: { hide: true },
} as const

/** Headers of each file of a page, in addition to its policy. */
export const PAGE_HEADERS = { 'cross-origin-opener-policy': 'same-origin', 'origin-agent-cluster': '?1' }

/** Serves the files of a page, with their media types, below its address. */
export function serveFiles(
  app: FastifyInstance,
  address: `/${string}`,
  contentPolicy: string,
  files: Readonly<Record<string, readonly [type: string, content: string | Buffer]>>,
): void {
  const headers = { ...PAGE_HEADERS, 'content-security-policy': contentPolicy }
  for (const [name, [type, content]] of Object.entries(files))
    app.get(`${address}${name}`, PAGE, (_, reply) => reply.headers(headers).type(type).send(content))
  app.get(`${address}/`, PAGE, (_, reply) => reply.redirect(`..${address}`))
}
