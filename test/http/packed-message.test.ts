import { createHash } from 'node:crypto'
import { createServer, type IncomingMessage, request } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { PackedMessage } from '../../src/http/packed-message.js'

interface Arrived {
  digest: string
  /** The pieces that the parser made, and those that were handed on. */
  pieces: number
  events: number
}

/** A server that answers what arrived; it reads in steps, with pauses between. */
const server = createServer({ IncomingMessage: PackedMessage }, async (message: IncomingMessage, response) => {
  const hash = createHash('sha256')
  let events = 0
  for await (const piece of message) {
    hash.update(piece as Buffer)
    if (++events % 5 === 0) await sleep(1)
  }
  const pieces = message instanceof PackedMessage ? message.pieces : Number.NaN
  response.end(JSON.stringify({ digest: hash.digest('hex'), pieces, events } satisfies Arrived))
})
await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
t.teardown(() => void server.close())

/** Sends a body in chunks, all at once or waiting for the system behind each `pauseAfter` of them. */
function sent(chunks: readonly Buffer[], pauseAfter = Number.POSITIVE_INFINITY): Promise<Arrived> {
  const { port } = server.address() as { port: number } // it listens on TCP
  return new Promise((resolve, reject) => {
    const sending = request({ port, host: '127.0.0.1', method: 'POST', agent: false }, async answer => {
      let text = ''
      for await (const piece of answer) text += piece
      resolve(JSON.parse(text))
    })
    sending.on('error', reject)
    const send = async () => {
      sending.flushHeaders()
      for (const [i, chunk] of chunks.entries()) {
        sending.write(chunk)
        if ((i + 1) % pauseAfter === 0) await sleep(2)
      }
      sending.end()
    }
    void send()
  })
}

function digestOf(chunks: readonly Buffer[]): string {
  return createHash('sha256').update(Buffer.concat(chunks)).digest('hex')
}

t.test('many small pieces of a body are handed on in few', async t => {
  const chunks = Array.from({ length: 20_000 }, (_, i) => Buffer.from([i % 251]))
  const { digest, pieces, events } = await sent(chunks)
  t.equal(digest, digestOf(chunks))
  t.equal(pieces, chunks.length)
  t.ok(events < 1_000, `${events} pieces were handed on`)
})

t.test('a body of pieces of all sizes arrives as it was sent, also where they come one by one', async t => {
  const sizes = [1, 3, 511, 512, 4_095, 4_096, 4_097, 70_000, 80]
  const chunks = Array.from({ length: 1_000 }, (_, i) => Buffer.alloc(sizes[(i * i) % 9] ?? 1, i))
  for (const pauseAfter of [Number.POSITIVE_INFINITY, 40, 7]) {
    t.equal((await sent(chunks, pauseAfter)).digest, digestOf(chunks), `a pause behind each ${pauseAfter}`)
  }
})

t.test('the pieces of ordinary bodies are handed on as they come', async t => {
  const chunks = Array.from({ length: 10 }, (_, i) => Buffer.alloc(80, i))
  t.match(await sent(chunks, 1), { digest: digestOf(chunks), pieces: 10, events: 10 })
})
