import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { acceptOften } from '../../src/http/accept-often.js'
import { eventually } from './running.js'

/** A server that listens, and connections to it, all of which the system has taken before it accepts the first. */
async function listening(t: Test) {
  const server = createServer((_request, response) => response.end('x'))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close())
  const { port } = server.address() as AddressInfo // it listens on TCP
  const sockets: Socket[] = []
  const open = (count: number) => {
    for (let n = 0; n < count; n++) sockets.push(connect(port, '127.0.0.1').on('error', () => undefined))
  }
  t.teardown(() => {
    for (const socket of sockets) socket.destroy()
  })
  return { server, port, sockets, open }
}

/** In how many turns of the event loop so many connections are accepted. */
async function turnsFor(server: Server, count: number): Promise<number> {
  let accepted = 0
  server.on('connection', () => accepted++)
  let turns = 0
  while (accepted < count) {
    await new Promise(setImmediate)
    turns++
  }
  return turns
}

t.test('of many connections that come at once three are accepted in each turn of the event loop', async t => {
  const { server, sockets, open } = await listening(t)
  t.equal(await acceptOften(server), 3)
  open(320)
  const turns = await turnsFor(server, sockets.length)
  t.ok(turns <= 1.5 * (sockets.length / 3), `${turns} turns`)
})

t.test('they are the server’s own: they count for its bound, and are answered', async t => {
  const { server, port, sockets, open } = await listening(t)
  await acceptOften(server)
  server.maxConnections = 5
  let dropped = 0
  server.on('drop', () => dropped++)
  open(20)
  await eventually(() => dropped === 15)
  for (const socket of sockets) socket.destroy()
  while ((await openOf(server)) > 0) await sleep(10)
  server.maxConnections = 100
  const answers = Array.from({ length: 40 }, () => fetch(`http://127.0.0.1:${port}/`).then(answer => answer.status))
  t.strictSame(new Set(await Promise.all(answers)), new Set([200]))
})

t.test('when the server closes nothing is accepted any more, though a connection is still open', async t => {
  const { server, port, open } = await listening(t)
  await acceptOften(server)
  open(1)
  await once(server, 'connection')
  server.close()
  for (let n = 0; n < 20; n++) {
    const [error] = (await once(connect(port, '127.0.0.1'), 'error')) as [NodeJS.ErrnoException]
    t.equal(error.code, 'ECONNREFUSED')
  }
})

t.test('a server that does not listen, or not any more, stays as it is', async t => {
  t.equal(await acceptOften(createServer()), 1)
  const { server } = await listening(t)
  const handles = acceptOften(server)
  await sleep(20) // some of them may have come
  server.close()
  t.equal(await handles, 1)
  const { port } = { port: 0, ...(server.address() as AddressInfo | null) }
  t.equal(port, 0)
})

function openOf(server: Server): Promise<number> {
  return new Promise((resolve, reject) => {
    server.getConnections((error, count) => (error ? reject(error) : resolve(count)))
  })
}
