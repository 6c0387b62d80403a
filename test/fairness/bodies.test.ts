import { randomUUID } from 'node:crypto'
import { setMaxListeners } from 'node:events'
import { connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { eventually } from '../http/running.js'
import { FULL, fairService, peakResidentBytes, repeatedly, requireFairness, residentBytes } from './beside.js'
import { fairnessWorld, owner } from './world.js'

const LIMIT_BYTES = 4 * 2 ** 20
const CHUNKS_PEAK_BYTES_MAX = 200 * 2 ** 20

const world = await fairnessWorld(t)

t.test('bodies that are dear to read', async t => {
  const service = await fairService(t, world)
  const { attacker } = world
  const path = `/persona/${attacker.agentId}`
  const attacks = {
    'row 5: two bodies of 4 MiB a second that hold a million numbers': `{"x":[${'1,'.repeat(LIMIT_BYTES / 2 - 20)}1]}`,
    'row 5: the same with fields of names of their own': `{${numbered(LIMIT_BYTES / 16, index => `"k${index}":0`)}}`,
    'row 9: 800,000 brackets inside each other': '['.repeat(800_000),
    'row 5: two bodies of 4 MiB a second that hold a million objects': `{"x":[${'{},'.repeat(LIMIT_BYTES / 3 - 20)}{}]}`,
  }
  for (const [name, text] of Object.entries(attacks).slice(FULL ? 0 : -1)) {
    const body = Buffer.from(text)
    t.test(name, async t => {
      await requireFairness(t, world, service, (over, callers) =>
        repeatedly(over, 2, 900, async () => {
          const { status } = await callers.send('PATCH', path, attacker.token, body)
          t.equal(status, 422)
        }),
      )
    })
  }
  const refused = {
    'keys of 200,000 characters': `{${numbered(19, index => `"${'d'.repeat(200_000)}${index}":1`)}}`,
    'a number of four million digits': `{"num_chunks":${'9'.repeat(4_000_000)}}`,
    'a text of 690,000 escapes': `{"description":"${'\\u0000'.repeat(690_000)}"}`,
    'thousands of wrong items': JSON.stringify({
      starter_messages: Array.from({ length: 3_000 }, () => ({ x: 1 })),
      users: Array.from({ length: 4_000 }, () => 'x'),
    }),
    '9,900 fields with names like one': `{${numbered(9_900, index => `"descriptioo${index}":1`)}}`,
    'blanks, up to the limit': `{${' '.repeat(LIMIT_BYTES - 20)}}`,
  }
  const single = Object.entries(refused).map(([name, text]): [string, string[]] => [name, [text]])
  const all: [string, string[]] = ['all of these bodies in turn', Object.values(refused)]
  for (const [name, texts] of FULL ? [...single, all] : [all]) {
    const bodies = texts.map(text => Buffer.from(text))
    t.test(`four at once that say nothing: ${name}`, async t => {
      // With a quota of its own.
      const { token, agentId } = await owner(world.client, `alice+${randomUUID()}@example.com`, [])
      const masked = `/persona/${agentId}?update_mask=description,starter_messages,users,num_chunks`
      const statuses = new Set<number>()
      let turn = 0
      await requireFairness(t, world, service, (over, callers) =>
        repeatedly(over, 4, 0, async () => {
          const body = bodies[turn++ % bodies.length] ?? ''
          const { status } = await callers.send('PATCH', masked, token, body)
          statuses.add(status)
          if (status === 429) await sleep(300)
        }),
      )
      t.ok(statuses.has(422))
      t.strictSame(
        [...statuses].filter(status => status !== 422 && status !== 429),
        [],
      )
    })
  }
})

t.test('row 6: 200 bodies that never end', async t => {
  const service = await fairService(t, world)
  const { attacker } = world
  t.test('in chunks of a byte they hold little more than their bytes', async t => {
    const { token, agentId } = await owner(world.client, `alice+${randomUUID()}@example.com`, [])
    const lines = [
      `PATCH /persona/${agentId} HTTP/1.1`,
      'Host: localhost',
      `Authorization: Bearer ${token}`,
      'Content-Type: application/json',
      'Transfer-Encoding: chunked',
    ]
    const text = `${lines.join('\r\n')}\r\n\r\n${'1\r\n \r\n'.repeat(30_000)}`
    const sockets = Array.from({ length: 60 }, () => {
      const socket = connect(service.port, '127.0.0.1').on('error', () => undefined) // it is cut where it is refused
      socket.write(text)
      return socket
    })
    await sleep(3_000) // most of what the buffers take is read by then
    const peak = peakResidentBytes(service.pid)
    t.ok(peak < CHUNKS_PEAK_BYTES_MAX, `${Math.round(peak / 2 ** 20)} MiB resident at most`)
    for (const socket of sockets) socket.destroy()
  })
  const head = [
    `PATCH /persona/${attacker.agentId} HTTP/1.1`,
    'Host: localhost',
    `Authorization: Bearer ${attacker.token}`,
    'Content-Type: application/json',
    `Content-Length: ${LIMIT_BYTES}`,
  ]
  const unfinished = Buffer.from(`${head.join('\r\n')}\r\n\r\n{"name":"${'x'.repeat(LIMIT_BYTES - 100_000)}`)
  const answers: string[] = []
  await requireFairness(t, world, service, async over => {
    const sockets: Socket[] = []
    for (let i = 0; i < 200; i++) {
      const socket = connect(service.port, '127.0.0.1')
      socket.on('error', () => undefined) // it is cut where the service refuses it
      socket.on('data', bytes => answers.push(bytes.toString('latin1')))
      socket.write(unfinished)
      sockets.push(socket)
      await sleep(10)
    }
    await eventually(() => answers.some(isTold)) // they are read in turns, slowly
    while (!over.aborted) await sleep(20)
    for (const socket of sockets) socket.destroy()
  })
  await eventually(() => residentBytes(service.pid) < 400 * 2 ** 20)
})

t.test('bodies that are refused', async t => {
  const service = await fairService(t, world)
  const { attacker } = world
  const blanks = Buffer.from(`{${' '.repeat(LIMIT_BYTES - 20)}}`)
  const sending = (over: AbortSignal, connections: number, token: string, announcedBytes: number) => {
    const path = `/persona/${attacker.agentId}?update_mask=description`
    const head = [
      `PATCH ${path} HTTP/1.1`,
      'Host: localhost',
      `Authorization: Bearer ${token}`,
      'Content-Type: application/json',
      `Content-Length: ${announcedBytes}`,
    ]
    const start = `${head.join('\r\n')}\r\n\r\n`
    setMaxListeners(0, over)
    return repeatedly(over, connections, 200, () => sentUntilItsEnd(over, service.port, start, blanks, announcedBytes))
  }
  /** Many large bodies of one token at once: most of them find no turn to be read. */
  const many = (over: AbortSignal) => sending(over, FULL ? 450 : 250, attacker.token, blanks.length)
  /** Of nobody, sent on after the answer. */
  const endless = (over: AbortSignal) => sending(over, 4, 'pat_nope', 1_000_000_000)
  const attacks: Record<string, (over: AbortSignal) => Promise<void>> = FULL
    ? { 'of one token, 450 at once': many, 'of no token, a gigabyte each': endless }
    : { 'of one token and of none': async over => void (await Promise.all([many(over), endless(over)])) }
  for (const [name, attack] of Object.entries(attacks)) {
    t.test(name, async t => {
      await requireFairness(t, world, service, attack)
    })
  }
})

/** Sends so many bytes for as long as the connection takes them, whatever is answered. */
async function sentUntilItsEnd(over: AbortSignal, port: number, start: string, piece: Buffer, bytes: number) {
  const socket = connect(port, '127.0.0.1')
  const closed = new Promise<void>(resolve => socket.once('close', () => resolve()))
  socket.on('error', () => undefined) // it is cut
  socket.resume()
  socket.write(start)
  let left = bytes
  const send = () => {
    while (left > 0 && !socket.destroyed) {
      left -= piece.length
      if (!socket.write(piece)) return
    }
  }
  socket.on('drain', send)
  send()
  const end = () => socket.destroy()
  over.addEventListener('abort', end)
  await closed
  over.removeEventListener('abort', end)
}

function isTold(text: string): boolean {
  return /^HTTP\/1\.1 429 /.test(text) && /\r\nretry-after: \d+\r\n/i.test(text)
}

function numbered(count: number, make: (index: number) => string): string {
  return Array.from({ length: Math.floor(count) }, (_, index) => make(index)).join(',')
}
