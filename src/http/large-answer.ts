import { Readable } from 'node:stream'
import type { FastifyInstance } from 'fastify'

/** A longer text is sent in pieces of this many characters. */
const PIECE_CHARACTERS = 128 * 1024

/**
 * Sends long answers in pieces, each when the one before has left. At once the encoding of one with several MiB would hold up
 * every other request for tens of milliseconds. Register behind every hook that looks at the text of an answer.
 */
export function registerLargeAnswers(app: FastifyInstance): void {
  app.addHook('onSend', (_request, reply, payload, done) => {
    if (typeof payload !== 'string' || payload.length <= PIECE_CHARACTERS) return done(null, payload)
    reply.header('content-length', Buffer.byteLength(payload))
    done(null, Readable.from(piecesOf(payload), { objectMode: false, highWaterMark: PIECE_CHARACTERS }))
  })
}

function* piecesOf(text: string): Generator<Buffer> {
  for (let from = 0; from < text.length; ) {
    const end = from + PIECE_CHARACTERS
    const to = isSplitPair(text, end) ? end + 1 : end
    yield Buffer.from(text.slice(from, to))
    from = to
  }
}

/** Whether the two halves of one character are on both sides of this place. */
function isSplitPair(text: string, at: number): boolean {
  return (text.codePointAt(at - 1) ?? 0) > 0xffff
}
