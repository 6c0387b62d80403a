import fastify, { type FastifyInstance } from 'fastify'
import { registerBodyParser } from '../../src/http/body-parser.js'
import { handleError } from '../../src/http/error-handler.js'
import { registerRequestMemory } from '../../src/http/request-memory.js'
import { UnfinishedTransfers } from '../../src/http/unfinished-transfers.js'
import { registerRequestValidation, type SchemaTypes } from '../../src/http/validation.js'

/** An application that only validates, as the service does it: no caller, no database. It ends with the test. */
export function validatingApp(t: { teardown(fn: () => Promise<void>): unknown }, jsonDepthMax = 64) {
  const app: FastifyInstance = fastify()
  app.decorateRequest('refusal', undefined)
  app.setErrorHandler(handleError)
  const bounds = {
    limitBytes: 10_000_000,
    depthMax: 1_000,
    nodesMax: 1_000_000,
    keyBytesMax: 1_000,
    turnBytes: 64 * 1024,
  }
  const memory = { totalBytes: 100_000_000, perTokenBytes: 100_000_000 }
  registerRequestMemory(app, { ...memory, ofBodies: memory }, new UnfinishedTransfers())
  registerBodyParser(app, {
    persona: bounds,
    tool: bounds,
    onRead: () => {},
    unfinished: new UnfinishedTransfers(),
    shared: { places: { words: '', setting: '' }, memory: { words: '', setting: '' } },
  })
  registerRequestValidation(app, jsonDepthMax)
  t.teardown(() => app.close())
  return app.withTypeProvider<SchemaTypes>()
}
