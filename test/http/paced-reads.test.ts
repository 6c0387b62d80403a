import { once } from 'node:events'
import { type AddressInfo, connect, type Socket } from 'node:net'
import fastify from 'fastify'
import t, { type Test } from 'tap'
import { ThreadTurns } from '../../src/db/connection/thread-turns.js'
import { paceReads } from '../../src/http/paced-reads.js'
import { eventually } from './running.js'

function busy(ms: number): void {
  const end = performance.now() + ms
  while (performance.now() < end);
}

/** A server whose requests take a millisecond each, connections that had a request of so many tokens each, and what began when. */
async function served(t: Test, connectionsOf: readonly number[]) {
  const turns = new ThreadTurns()
  const app = fastify()
  t.teardown(() => app.close())
  paceReads(app, turns)
  app.decorateRequest('work', undefined)
  let inTurn = 0
  let most = 0
  const begun: number[] = []
  app.addHook('onRequest', (request, _reply, done) => {
    if (inTurn === 0) setImmediate(() => (inTurn = 0))
    most = Math.max(most, ++inTurn)
    begun.push(Number(request.url.slice(1)))
    busy(1)
    request.work = { place: Number(request.url.slice(1)) } as NonNullable<typeof request.work>
    done()
  })
  app.get('/:place', () => 'x')
  await app.listen({ port: 0, host: '127.0.0.1' })
  const { port } = app.server.address() as AddressInfo
  let answers = 0
  const places = connectionsOf.flatMap((count, place) => Array.from({ length: count }, () => place))
  const sockets: [Socket, number][] = []
  const ask = ([socket, place]: [Socket, number]) => socket.write(`GET /${place} HTTP/1.1\r\nHost: localhost\r\n\r\n`)
  for (const place of places) {
    const socket = connect(port, '127.0.0.1')
    t.teardown(() => socket.destroy())
    socket.on('data', bytes => (answers += bytes.toString('latin1').split('HTTP/1.1 200').length - 1))
    await once(socket, 'connect')
    ask([socket, place])
    sockets.push([socket, place])
    await eventually(() => answers === sockets.length)
  }
  /** All ask at once, so many of them made here: how many requests began in one turn of the event loop at most, and whose in which order. */
  const burst = async (expected = sockets.length) => {
    most = 0
    begun.length = 0
    answers = 0
    for (const one of sockets) ask(one)
    await eventually(() => answers === expected)
    return { most, begun: [...begun] }
  }
  /** A token had a step. */
  const serve = (place: number) => turns.turn(place)
  return { app, port, burst, serve, sockets, ask }
}

t.test('of many connections that ask at once a few are read in each turn of the event loop', async t => {
  const { burst, serve } = await served(t, [100])
  for (const place of [0, 1]) await serve(place)
  const { most, begun } = await burst()
  t.equal(begun.length, 100)
  t.ok(most <= 16, `${most} in one turn`)
})

t.test('where one token alone asks all are read', async t => {
  const { burst, serve } = await served(t, [100])
  await serve(0)
  const { most } = await burst()
  t.ok(most > 16, `${most} in one turn`)
})

t.test('who has one connection is read before most of those of who has many, also in a second burst', async t => {
  const { burst, serve } = await served(t, [60, 60, 1, 1])
  for (let n = 0; n < 2; n++) {
    for (const place of [0, 1]) await serve(place)
    const { begun } = await burst()
    t.equal(begun.length, 122)
    for (const place of [2, 3]) t.ok(begun.indexOf(place) < 40, `${place} in ${begun.join(' ')}`)
  }
})

t.test('connections of which nobody knows whose they are do not wait for all that are known', async t => {
  const { app, port, sockets, burst, serve } = await served(t, Array(60).fill(2))
  let open = 0
  app.server.on('connection', () => open++)
  const unknown = Array.from({ length: 20 }, () => connect(port, '127.0.0.1'))
  for (const socket of unknown) t.teardown(() => socket.destroy())
  await eventually(() => open === unknown.length)
  for (const place of [0, 1]) await serve(place)
  sockets.push(...unknown.map((socket): [Socket, number] => [socket, 99]))
  let answers = 0
  for (const socket of unknown) socket.on('data', () => answers++)
  const bursting = burst(sockets.length - unknown.length)
  await eventually(() => answers === unknown.length)
  const { begun } = await bursting
  t.equal(begun.length, 140)
  t.ok(begun.lastIndexOf(99) < 120, begun.join(' '))
})

t.test('who asks now and then beside many that always ask is read once for a few of theirs', async t => {
  const { sockets, ask, serve } = await served(t, [...Array(4).fill(15), ...Array(20).fill(1)])
  const [busy, idle] = [sockets.slice(0, 60), sockets.slice(60)]
  for (const place of [0, 1]) await serve(place)
  let answers = 0
  let isOver = false
  for (const one of busy) {
    one[0].on('data', () => {
      answers++
      if (!isOver) ask(one)
    })
    ask(one)
  }
  const passing: number[] = []
  for (let n = 0; n < 40; n++) {
    for (const place of [0, 1]) await serve(place)
    const quiet = idle[(n * 7) % idle.length] as [Socket, number]
    const before = answers
    ask(quiet)
    await once(quiet[0], 'data')
    passing.push(answers - before)
  }
  isOver = true
  t.ok(Math.max(...passing) <= 150, `${passing.join(' ')} answers`)
})

t.test('connections that close while they are left alone keep none of the others', async t => {
  const { sockets, ask, serve, burst } = await served(t, [40, 40])
  for (const place of [0, 1]) await serve(place)
  const left = sockets.slice(60)
  const answered = left.map(([socket]) => once(socket, 'data'))
  for (const one of sockets) ask(one)
  for (const [socket] of sockets.splice(0, 60)) socket.resetAndDestroy()
  await Promise.all(answered)
  const { begun } = await burst() // a head that had come before its connection closed can be read now
  t.ok(begun.length >= 20, `${begun.length} began`)
})

t.test(
  'of many connections that send their heads byte by byte a few are read in each turn, also where nobody else asks',
  async t => {
    const { app, port } = await served(t, [])
    const accepted: Socket[] = []
    app.server.on('connection', socket => accepted.push(socket))
    const clients = Array.from({ length: 60 }, () => connect(port, '127.0.0.1'))
    for (const client of clients) t.teardown(() => client.destroy())
    await eventually(() => accepted.length === clients.length)
    const head = 'GET /1 HTTP/1.1\r\nHost: localhost\r\nx: '
    const read = () => accepted.slice(0, clients.length).map(({ bytesRead }) => bytesRead)
    const answered = clients.map(client => once(client, 'data'))
    let most = 0
    let isOver = false
    const turn = (before: number[]) => {
      const now = read()
      if (now.some(bytes => bytes >= DRIPPED))
        most = Math.max(most, now.filter((bytes, index) => bytes > (before[index] ?? 0)).length)
      if (!isOver) setImmediate(turn, now)
    }
    turn(read())
    for (let at = 0; at < head.length; at++) {
      for (const client of clients) client.write(head.charAt(at))
      await new Promise(resolve => setImmediate(resolve))
    }
    const quick = connect(port, '127.0.0.1')
    t.teardown(() => quick.destroy())
    quick.write('GET /2 HTTP/1.1\r\nHost: localhost\r\n\r\n')
    const [answer] = (await once(quick, 'data')) as [Buffer]
    t.match(answer.toString(), /^HTTP\/1\.1 200 /)
    t.ok(read().filter(bytes => bytes < head.length).length > 30, 'who sends its head at once does not wait for them')
    for (const client of clients) client.write('y\r\n\r\n')
    await Promise.all(answered)
    isOver = true
    t.ok(most > 0 && most <= 8, `${most} in one turn`)
  },
)

/** What has come of a head byte by byte when its connection is read in turns. */
const DRIPPED = 8
