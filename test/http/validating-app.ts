import fastify, { type FastifyInstance } from 'fastify'
import { registerBodyParser } from '../../src/http/body.js'
import { handleError } from '../../src/http/error-handler.js'
import { registerRequestValidation, type SchemaTypes } from '../../src/http/validation.js'

/** An application that only validates, as the service does it: no caller, no database. It ends with the test. */
export function validatingApp(t: { teardown(fn: () => Promise<void>): unknown }, jsonDepthMax = 64) {
  const app: FastifyInstance = fastify({ bodyLimit: 10_000_000 })
  app.decorateRequest('refusal', undefined)
  app.setErrorHandler(handleError)
  const bounds = { depthMax: 1_000, nodesMax: 1_000_000, keyBytesMax: 1_000 }
  registerBodyParser(app, { persona: bounds, tool: bounds })
  registerRequestValidation(app, jsonDepthMax)
  t.teardown(() => app.close())
  return app.withTypeProvider<SchemaTypes>()
}
