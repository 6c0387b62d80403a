import type { FastifyInstance } from 'fastify'
import { pageFile, serveFiles } from '../http/docs.js'

/** The page loads its own files and calls this service. Browsers that know trusted types refuse to turn a text into HTML. */
const CONTENT_POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; " +
  "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

/** `GET /console` with its files: the page for people. It has no data of its own. */
export function registerReadPage(app: FastifyInstance): void {
  serveFiles(app, '/console', CONTENT_POLICY, {
    '': ['text/html; charset=utf-8', pageFile('console.html')],
    '/console.js': ['text/javascript; charset=utf-8', pageFile('console.js')],
    '/console.css': ['text/css; charset=utf-8', pageFile('console.css')],
    '/icon.svg': ['image/svg+xml', pageFile('icon.svg')],
  })
}
