import type { IncomingMessage, Server, ServerResponse } from 'node:http'

/** Requests whose clients wait to be asked for the body, with where to ask. */
const waiting = new WeakMap<IncomingMessage, ServerResponse>()

/**
 * `Expect: 100-continue` is answered when the body is about to be read, and what is refused before gets its final status alone:
 * nobody sends a body for nothing (RFC 9110, section 10.1.1). Node would ask for each body at once, and answers every other
 * expectation with a 417 without a body and without our hooks; those are ignored, as the section allows.
 */
export function heedExpectations(server: Server): void {
  server.on('checkContinue', (request, response) => {
    waiting.set(request, response)
    server.emit('request', request, response)
  })
  server.on('checkExpectation', (request, response) => server.emit('request', request, response))
}

/** Asks for the body, if its client waits for that. */
export function askForBody(request: IncomingMessage): void {
  waiting.get(request)?.writeContinue()
  waiting.delete(request)
}

/** Whether the client still waits to be asked: whether it sends the body then, nobody knows. */
export function waitsToBeAsked(request: IncomingMessage): boolean {
  return waiting.has(request)
}
