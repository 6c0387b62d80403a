import fastify, { type FastifyInstance } from 'fastify'
import { registerBodyParser } from '../../src/http/body.js'
import { handleError } from '../../src/http/error-handler.js'
import { registerRequestValidation, type SchemaTypes } from '../../src/http/validation.js'

/** An application that only validates, as the service does it: no caller, no database. It ends with the test. */
export function validatingApp(t: { teardown(fn: () => Promise<void>): unknown }) {
  const app: FastifyInstance = fastify({ bodyLimit: 10_000_000 })
  app.decorateRequest('refusal', undefined)
  app.setErrorHandler(handleError)
  registerBodyParser(app)
  registerRequestValidation(app)
  t.teardown(() => app.close())
  return app.withTypeProvider<SchemaTypes>()
}
