import helmet from '@fastify/helmet'
import type { FastifyInstance } from 'fastify'

/**
 * What `/docs` may load: its own files and nothing else, so that it works without a network and lets in no other script.
 * `data:` is for the icons inside its style sheet. There is no `upgrade-insecure-requests`: over plain HTTP, behind no
 * proxy, the page would look for its own scripts where nobody listens.
 */
export const PAGE_CONTENT_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "font-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ')

/**
 * Headers that tell a browser to do nothing with an answer but show it. JSON loads nothing at all; the pages set their own
 * policy over this one. No Strict-Transport-Security: TLS is the proxy's, and so is the promise to keep it.
 * No CORS header is ever sent: browsers let no other origin read an answer, and there is no setting to change that.
 */
export async function registerSecurityHeaders(app: FastifyInstance): Promise<void> {
  await app.register(helmet, {
    contentSecurityPolicy: {
      useDefaults: false,
      directives: { defaultSrc: ["'none'"], frameAncestors: ["'none'"] },
    },
    strictTransportSecurity: false,
    referrerPolicy: { policy: 'no-referrer' },
    xFrameOptions: { action: 'deny' },
    xDnsPrefetchControl: false,
    xDownloadOptions: false,
    xPermittedCrossDomainPolicies: false,
    xXssProtection: false,
  })
}
