import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import swagger from '@fastify/swagger'
import type { FastifyInstance } from 'fastify'

/** Reads a file of the built pages. */
export const pageFile = (name: string) => readFileSync(new URL(`../../page/${name}`, import.meta.url))

const LIBRARY = import.meta.resolve('@fastify/swagger-ui/package.json')
const library = (name: string) => readFileSync(new URL(`static/${name}`, LIBRARY))

/** The content security policy of `/docs`. Allows only files of this origin, and `data:` icons in the style sheet. */
const DOCS_POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self' data:; connect-src 'self'; " +
  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

/** Registers `GET /openapi.json`, the API documentation at `GET /docs`, and `GET /`, which redirects browsers to `/console`, others to `/docs`. */
export async function registerDocs(app: FastifyInstance): Promise<void> {
  const baseDir = fileURLToPath(new URL('../../../openapi', import.meta.url))
  await app.register(swagger, { mode: 'static', specification: { path: `${baseDir}/openapi.json`, baseDir } })
  const document = Buffer.from(`${JSON.stringify(app.swagger(), null, 2)}\n`)
  app.get('/openapi.json', PAGE, (_, reply) => reply.type('application/json').send(document))
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

/** The options of a page's route: no token is needed, HEAD is supported, and the OpenAPI document omits the route. */
export const PAGE = {
  exposeHeadRoute: true,
  config: { policy: { permission: 'public' } },
  schema: { hide: true },
} as const

/** The headers of every page file, in addition to the content security policy of the page. */
export const PAGE_HEADERS = { 'cross-origin-opener-policy': 'same-origin', 'origin-agent-cluster': '?1' }

/** Serves the files of a page under `address`, with their media types. */
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
