import { randomBytes } from 'node:crypto'
import type { FastifyInstance } from 'fastify'
import { PAGE, PAGE_HEADERS, pageFile, serveFiles } from '../http/docs.js'

/**
 * Returns the content security policy: the page loads only its own files and calls only this service. Trusted types prevent scripts from turning
 * text into HTML. `style` contains a nonce for the style sheets that the editor creates at run time.
 */
const policyOf = (style: string) =>
  `default-src 'none'; script-src 'self'; style-src 'self'${style}; img-src 'self'; connect-src 'self'; worker-src 'self'; ` +
  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types worker"

/** Serves `GET /console` and the files of the page, which contain no data. */
export function registerReadPage(app: FastifyInstance): void {
  const page = pageFile('page.html').toString()
  app.get('/console', PAGE, (_, reply) => {
    const nonce = randomBytes(16).toString('base64')
    const headers = { ...PAGE_HEADERS, 'content-security-policy': policyOf(` 'nonce-${nonce}'`) }
    return reply.headers(headers).type('text/html; charset=utf-8').send(page.replace('{nonce}', nonce))
  })
  serveFiles(app, '/console', policyOf(''), {
    '/main.js': ['text/javascript; charset=utf-8', pageFile('main.js')],
    '/reader.js': ['text/javascript; charset=utf-8', pageFile('reader.js')],
    '/main.css': ['text/css; charset=utf-8', pageFile('main.css')],
    '/icon.svg': ['image/svg+xml', pageFile('icon.svg')],
  })
}
