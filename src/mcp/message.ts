import type { Readable } from 'node:stream'
import { ClientGone, InvalidRequest, type Loc, Refused } from '../errors.js'
import { fault } from '../validation/faults.js'
import { parseJsonBody } from '../validation/json-body.js'
import type { JsonBounds } from '../validation/json-scanner.js'
import { isJsonObject } from '../validation/vocabulary.js'

/* A message of the protocol as bytes. One that is refused has an id too: without it in the answer, a client ends its session. */

export type MessageId = string | number

/** `forbidden`: the paths of keys in the arguments that could change a prototype. */
export interface Message {
  value: Record<string, unknown>
  forbidden: Loc[]
}

/** Bytes at the end of a large message in which its id is looked for. */
const END_BYTES = 512

/**
 * Reads a message of at most `bytesMax` bytes; a larger one is read to its end, because many clients read no answer before.
 * `identify` gets the id, also of a message that is refused. Throws `Refused`, `InvalidRequest`, `ClientGone`.
 */
export async function readMessage(
  stream: Readable,
  bytesMax: number,
  bounds: JsonBounds,
  identify: (id: MessageId | undefined) => void,
): Promise<Message> {
  const kept: Buffer[] = []
  let [length, end] = [0, Buffer.alloc(0)]
  try {
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      length += chunk.length
      if (length <= bytesMax || kept.length === 0) kept.push(chunk)
      end = Buffer.concat([end, chunk]).subarray(-END_BYTES)
    }
  } catch {
    throw new ClientGone()
  }
  const bytes = Buffer.concat(kept)
  identify(idIn(bytes.toString('latin1', 0, END_BYTES), end.toString('latin1')))
  if (length > bytesMax) {
    const message = `The message has ${length} bytes, and at most ${bytesMax} are taken here. Larger definitions go to the HTTP API.`
    throw new Refused('PAYLOAD_TOO_LARGE', message)
  }
  const parsed = parseJsonBody(bytes, bounds)
  if (parsed.kind !== 'value') throw new InvalidRequest(parsed.faults)
  const { value, forbidden } = parsed
  if (!isJsonObject(value)) throw new Refused('BAD_REQUEST', 'Send one message: a JSON object.')
  if (typeof value.id === 'string' || typeof value.id === 'number') identify(value.id)
  const isArgument = (loc: Loc) => loc[0] === 'params' && loc[1] === 'arguments'
  const outside = forbidden.filter(loc => !isArgument(loc))
  if (outside.length > 0) throw new InvalidRequest(outside.map(loc => fault('key_forbidden', ['body', ...loc])))
  return { value, forbidden: forbidden.map(loc => loc.slice(2)) }
}

const ID = String.raw`"id"\s*:\s*(-?\d{1,15}|"[^"\\]{1,200}")`
const VERSION = String.raw`"jsonrpc"\s*:\s*"2\.0"`
const FIRST_ID = new RegExp(String.raw`^\s*\{\s*(?:${VERSION}\s*,\s*)?${ID}`)
const LAST_ID = new RegExp(String.raw`,\s*${ID}\s*(?:,\s*${VERSION}\s*)?\}\s*$`)

/** The id of an object that begins or ends with it, as messages do that clients write. */
function idIn(start: string, end: string): MessageId | undefined {
  const [, id] = FIRST_ID.exec(start) ?? LAST_ID.exec(end) ?? []
  return id === undefined ? undefined : (JSON.parse(id) as MessageId) // a number or a text, by the expressions
}
