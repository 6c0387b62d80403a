import { readFile } from 'node:fs/promises'
import type { FastifyInstance } from 'fastify'
import { PAGE } from '../http/docs.js'
import { PAGE_HEADERS } from '../http/headers.js'

/** The page loads its own files and calls this service. Browsers that know trusted types refuse to turn a text into HTML. */
const CONTENT_POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; " +
  "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

/** The files are plain: nothing compiles or copies them. */
const FILES = new URL('../../../src/console/page/', import.meta.url)

/** The files by their addresses. Those in the page are relative, so that a path prefix of a proxy works. */
const TYPES = {
  '/console': ['console.html', 'text/html; charset=utf-8'],
  '/console/console.js': ['console.js', 'text/javascript; charset=utf-8'],
  '/console/console.css': ['console.css', 'text/css; charset=utf-8'],
  '/console/icon.svg': ['icon.svg', 'image/svg+xml'],
} as const

/** `GET /console` with its files: the page for people. It has no data of its own. */
export async function registerReadPage(app: FastifyInstance): Promise<void> {
  for (const [address, [file, type]] of Object.entries(TYPES)) {
    const content = await readFile(new URL(file, FILES)) // now, so that a package without it does not start
    app.get(address, PAGE, (_, reply) => {
      return reply
        .headers({ 'content-security-policy': CONTENT_POLICY, ...PAGE_HEADERS })
        .type(type)
        .send(content)
    })
  }
  app.get('/console/', PAGE, (_, reply) => reply.redirect('../console'))
}
