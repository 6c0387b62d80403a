import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import swagger from '@fastify/swagger'
import type { TSchema } from '@sinclair/typebox'
import type { FastifyInstance } from 'fastify'
import { HTTPValidationError, ValidationError } from '../validation/faults.js'
import { component } from '../validation/vocabulary.js'
import { addExamples } from './examples.js'
import { PAGE_CONTENT_POLICY, PAGE_HEADERS } from './headers.js'
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
            description: 'A token of `agentctl token create`: `pat_...`, `sa_...` or `ro_...`.',
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

/** The page at `/docs`. It has no inline scripts, and relative addresses work behind a proxy's path prefix. */
const PAGE_TEXT = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Agent and Custom Tool Management</title>
<link rel="icon" href="docs/favicon-32x32.png">
<link rel="stylesheet" href="docs/swagger-ui.css">
<script src="docs/swagger-ui-bundle.js" defer></script>
<script src="docs/page.js" defer></script>
</head>
<body>
<noscript><p>This page needs JavaScript. <a href="openapi.json">openapi.json</a> says the same.</p></noscript>
<div id="reference"></div>
</body>
</html>
`

/** `validatorUrl: null`: the page contacts no other server. A token entered at "Authorize" stays in the page. */
const PAGE_SCRIPT = `SwaggerUIBundle({ url: 'openapi.json', dom_id: '#reference', tryItOutEnabled: true, validatorUrl: null })
`

/** The folder of the files that a browser loads. */
const LIBRARY = join(dirname(createRequire(import.meta.url).resolve('@fastify/swagger-ui/package.json')), 'static')

/** The files that the page loads, with their media types. Only these names exist below `/docs/`, so no path is resolved. */
const LIBRARY_FILES: Record<string, string> = {
  'favicon-32x32.png': 'image/png',
  'swagger-ui.css': 'text/css; charset=utf-8',
  'swagger-ui-bundle.js': 'text/javascript; charset=utf-8',
}

/** Cache time for a browser, in s. The files change only with the package. */
const LIBRARY_KEPT_S = 3_600

/** Options of page routes: public, not in the document, with HEAD. */
export const PAGE = {
  exposeHeadRoute: true,
  config: { policy: { permission: 'public' } },
  schema: { hide: true },
} as const

/**
 * Registers `GET /openapi.json`, `GET /docs` with its files (a page to read and try the API without network access), and `GET /`, which
 * redirects there, or a browser to `browserPage`.
 */
export function registerDocs(app: FastifyInstance, document: () => Buffer, browserPage = 'docs'): void {
  app.get('/openapi.json', PAGE, (_, reply) => reply.type('application/json').send(document()))
  const own = { 'content-security-policy': PAGE_CONTENT_POLICY, ...PAGE_HEADERS }
  const html = 'text/html; charset=utf-8'
  app.get('/', PAGE, ({ headers: { accept = '' } }, reply) => {
    reply.header('vary', 'accept')
    return /\btext\/html\b/i.test(accept) && browserPage !== 'docs'
      ? reply.redirect(browserPage, 303)
      : reply.redirect('docs')
  })
  app.get('/docs/', PAGE, (_, reply) => reply.redirect('../docs'))
  app.get('/docs', PAGE, (_, reply) => reply.headers(own).type(html).send(PAGE_TEXT))
  app.get('/docs/page.js', PAGE, (_, reply) => {
    return reply.headers(own).type('text/javascript; charset=utf-8').send(PAGE_SCRIPT)
  })
  const read = new Map<string, Promise<Buffer>>() // read once and shared by all answers
  for (const [name, type] of Object.entries(LIBRARY_FILES)) {
    app.get(`/docs/${name}`, PAGE, async (_, reply) => {
      const content = read.get(name) ?? readFile(join(LIBRARY, name))
      read.set(name, content)
      reply.headers(own).header('cache-control', `private, max-age=${LIBRARY_KEPT_S}`)
      return reply.type(type).send(await content)
    })
  }
}
