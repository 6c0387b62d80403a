import { InvalidRequest, type Loc, Refused } from '../errors.js'
import { JSON_BOUNDS } from '../http/body.js'
import { fault } from '../validation/faults.js'
import { parseJsonBody } from '../validation/json-body.js'
import { isJsonObject } from '../validation/vocabulary.js'

/** `forbidden`: the paths of keys in the arguments that could change a prototype. */
export interface Message {
  value: Record<string, unknown>
  forbidden: Loc[]
}

const BOUNDS = { ...JSON_BOUNDS.tool, nodesMax: JSON_BOUNDS.persona.nodesMax }

/** Reads a message of at most `bytesMax` bytes. Throws `Refused`, `InvalidRequest`. */
export function readMessage(bytes: Buffer | undefined, bytesMax: number): Message {
  if (bytes === undefined) throw new InvalidRequest([fault('missing', ['body'])])
  if (bytes.length > bytesMax) {
    const message = `The message has ${bytes.length} bytes, and at most ${bytesMax} are taken here. Larger definitions go to the HTTP API.`
    throw new Refused('PAYLOAD_TOO_LARGE', message)
  }
  const parsed = parseJsonBody(bytes, BOUNDS)
  if (parsed.kind !== 'value') throw new InvalidRequest(parsed.faults)
  const { value, forbidden } = parsed
  if (!isJsonObject(value)) throw new Refused('BAD_REQUEST', 'Send one message: a JSON object.')
  const outside = forbidden.filter(([first, second]) => first !== 'params' || second !== 'arguments')
  if (outside.length > 0) throw new InvalidRequest(outside.map(loc => fault('key_forbidden', ['body', ...loc])))
  requireRequest(value)
  return { value, forbidden: forbidden.map(loc => loc.slice(2)) }
}

/** The protocol's package answers these without the id or by a text of its validation. */
function requireRequest({ jsonrpc, method, params = {} }: Record<string, unknown>): void {
  if (jsonrpc !== '2.0' || typeof method !== 'string' || !isJsonObject(params)) {
    const message = 'Send a request of JSON-RPC 2.0: "jsonrpc" is "2.0", "method" a text, and "params" an object.'
    throw new Refused('BAD_REQUEST', message)
  }
  if (method !== 'tools/call') return
  const { name, arguments: args = {} } = params
  if (typeof name !== 'string') throw new InvalidRequest([fault('string_type', ['body', 'params', 'name'])])
  if (!isJsonObject(args)) throw new InvalidRequest([fault('dict_type', ['body', 'params', 'arguments'])])
}

/** The id of a message that is refused; null if it has none, or if it is no JSON. Without it in the answer, a client ends its session. */
export function idOf(body: unknown): string | number | null {
  try {
    const { id } = JSON.parse(String(body)) as { id?: unknown } // of another value than an object undefined, or it throws
    return typeof id === 'string' || typeof id === 'number' ? id : null
  } catch {
    return null
  }
}
