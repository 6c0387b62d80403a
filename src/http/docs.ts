import swagger from '@fastify/swagger'
import swaggerUi from '@fastify/swagger-ui'
import type { TSchema } from '@sinclair/typebox'
import type { FastifyInstance } from 'fastify'
import { HTTPValidationError, ValidationError } from '../schema/faults.js'
import { component } from '../schema/vocabulary.js'
import { documented, ErrorAnswer } from './openapi.js'
import { PAGE_CONTENT_POLICY, PAGE_HEADERS } from './security-headers.js'

/**
 * The OpenAPI document, made from the routes' own schemas: `GET /openapi.json`, and `GET /docs`, a page to read and try
 * it that needs no network. `components` are the features' named records. Register before the routes: only later ones
 * are described.
 */
export async function registerDocs(app: FastifyInstance, version: string, components: TSchema[]): Promise<void> {
  for (const schema of [...components, ValidationError, HTTPValidationError, ErrorAnswer]) {
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
          'never resets what was not sent.',
        'x-interface-version': 'Development',
      } as { title: string; version: string }, // the extension member is allowed by the specification, not by the type
      servers: [{ url: '/' }],
      tags: [{ name: 'public' }],
      components: { securitySchemes: { bearer: { type: 'http', scheme: 'bearer' } } },
    },
    transform: ({ schema, url }) => ({ schema: schema.operationId === undefined ? schema : documented(schema), url }),
    refResolver: { buildLocalReference: json => String(json.$id) },
  })
  await app.register(async pages => {
    pages.addHook('onRoute', route => {
      route.config = { ...route.config, policy: { permission: 'public' } }
    })
    pages.addHook('onRequest', (_request, reply, done) => {
      reply.headers(PAGE_HEADERS)
      done()
    })
    await pages.register(swaggerUi, {
      routePrefix: '/docs',
      // Without the bar on top: it offers to load other documents, which the policy forbids, and shows the framework's logo.
      uiConfig: { layout: 'BaseLayout', persistAuthorization: false, tryItOutEnabled: true },
      logo: { type: 'image/svg+xml', content: '' },
      theme: { title: 'Agent and Custom Tool Management' },
      staticCSP: PAGE_CONTENT_POLICY,
    })
  })
  app.get(
    '/openapi.json',
    { config: { policy: { permission: 'public' } }, schema: { hide: true } },
    async (_, reply) => {
      return reply.type('application/json').send(JSON.stringify(app.swagger()))
    },
  )
}
