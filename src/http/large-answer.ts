import { Readable } from 'node:stream'
import type { FastifyInstance, FastifyReply } from 'fastify'
import { type AnswerText, PIECE_LENGTH, piecesOf, turn } from '../updates/answer-text.js'
import { countBytes } from './limits.js'

/**
 * Sends long answers in pieces, each when the one before has left, with turns for others between them. At once the encoding of
 * one with several MiB would hold up every other request for tens of milliseconds. Register behind every hook that looks at
 * the text of an answer.
 */
export function registerLargeAnswers(app: FastifyInstance): void {
  app.addHook('onSend', (_request, reply, payload, done) => {
    if (typeof payload !== 'string' || payload.length <= PIECE_LENGTH) return done(null, payload)
    done(null, inPieces(reply, [payload]))
  })
}

/** What a handler answers to send a snapshot: a short one at once, a long one in pieces. */
export function answerText(reply: FastifyReply, snapshot: AnswerText): Buffer | Readable {
  if (snapshot.length <= PIECE_LENGTH) return snapshot.toBuffer()
  countBytes(reply.request, snapshot.length)
  return inPieces(reply, snapshot.pieces)
}

function inPieces(reply: FastifyReply, texts: readonly (string | Buffer)[]): Readable {
  reply.header(
    'content-length',
    texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0),
  )
  if (reply.request.method === 'HEAD') return Readable.from([])
  return Readable.from(sent(texts), { objectMode: false, highWaterMark: PIECE_LENGTH })
}

async function* sent(texts: readonly (string | Buffer)[]): AsyncGenerator<Buffer> {
  for (const piece of piecesOf(texts)) {
    await turn()
    yield typeof piece === 'string' ? Buffer.from(piece) : piece
  }
}
