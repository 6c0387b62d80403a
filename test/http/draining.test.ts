import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { sql } from 'kysely'
import t from 'tap'
import { inWork, RawConnection, running } from './running.js'

t.test('every answer ends its connection from the first moment of draining, and none does before', async t => {
  const { service, token, port } = await running(t, {}, { listen: true })
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' }
  const asked: [status: number, drained: number, path: string, init?: RequestInit][] = [
    [404, 404, '/persona/999999?update_mask=', { method: 'PATCH', headers, body: '{}' }],
    [401, 401, '/persona/1', { method: 'PATCH' }],
    [422, 422, '/admin/tool/custom/validate', { method: 'POST', headers, body: '{"' }],
    [200, 503, '/readyz'],
    [405, 405, '/healthz', { method: 'DELETE' }],
  ]
  const answers = () => Promise.all(asked.map(([, , path, init]) => ask(port, path, init)))
  t.strictSame(
    await answers(),
    asked.map(([status]) => `${status} keep-alive`),
  )
  service.drain()
  t.strictSame(
    await answers(),
    asked.map(([, status]) => `${status} close`),
  )
})

t.test(
  'connections that sent nothing, a part of a head, or that only wait do not hold the end of the service',
  async t => {
    const { app, service, port } = await running(t, { SHUTDOWN_TIMEOUT_MS: '2000' }, { listen: true })
    const sockets = [
      '',
      'GET /healthz HTTP/1.1\r\nHo',
      'GET /healthz HTTP/1.1\r\nHost: a\r\n\r\nGET /healthz HTTP/1.1\r\nHo',
    ].map(text => {
      const socket = connect(port, '127.0.0.1').on('error', () => undefined)
      t.teardown(() => void socket.destroy())
      socket.write(text)
      return socket
    })
    await once(sockets[2] as Socket, 'data')
    const ended = sockets.map(socket => once(socket, 'close'))
    service.drain()
    const held = sleep(ENDED_WITHIN_MS, 'held', { ref: false })
    t.equal(await Promise.race([app.close().then(() => 'closed'), held]), 'closed')
    await Promise.all(ended)
  },
)

t.test('a client that stops sending, or reads no answer, does not hold up the end of the service', async t => {
  const started = await running(t, { SHUTDOWN_TIMEOUT_MS: '4000' }, { listen: true })
  const { app, service, token, port } = started
  const accepted: Socket[] = []
  app.server.on('connection', socket => accepted.push(socket))
  const open = (text: string) => {
    const socket = connect(port, '127.0.0.1').on('error', () => undefined)
    t.teardown(() => void socket.destroy())
    socket.write(text)
    return socket
  }
  const update = `PATCH /persona/1 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${token}\r\nContent-Length: 60000\r\n\r\n{`
  const silent = new RawConnection(port).write(update)
  // Fast enough to count as one that goes on, and without an end.
  const steady = open(update.replace('Content-Length: 60000', 'Transfer-Encoding: chunked').replace(/{$/, ''))
  const piece = `${(1024).toString(16)}\r\n${' '.repeat(1024)}\r\n`
  const drip = setInterval(() => steady.write(piece), 20)
  t.teardown(() => clearInterval(drip))
  // More answers than the buffers of both sides hold.
  open('GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(15)).pause()
  const bodiesAreRead = async () => (await inWork(started)) === 2
  while (!(await bodiesAreRead()) || accepted.every(({ writableLength }) => writableLength === 0)) await sleep(20)
  const ended = [silent.closed, once(steady.resume(), 'close')]
  service.drain()
  const held = sleep(ENDED_WITHIN_MS, 'held', { ref: false })
  t.equal(await Promise.race([app.close().then(() => 'closed'), held]), 'closed')
  await Promise.all(ended)
  t.match(silent.text, /^HTTP\/1\.1 503 [\s\S]*"reason":"draining","outcome":"not_applied"/)
  t.match(started.log.join(''), /the connection closed before the answer was read/)
})

/** Much longer than it takes; what held it did so for longer. */
const ENDED_WITHIN_MS = 15_000

async function ask(port: number, path: string, init: RequestInit = {}): Promise<string> {
  const answer = await fetch(`http://127.0.0.1:${port}${path}`, init)
  await answer.text()
  return `${answer.status} ${answer.headers.get('connection')}`
}

t.test('503 schema_ahead: a running process stops once a probe has seen a schema that is too new for it', async t => {
  const { service, app, token, database } = await running(t)
  const url = '/persona/1?update_mask=name'
  const headers = { authorization: `Bearer ${token}` }
  const rename = () => app.inject({ method: 'PATCH', url, headers, payload: { name: 'New' } })
  await sql`insert into schema_requirement values ('9999_later', '99.0.0')`.execute(database.db)
  t.match(await service.readiness(), { reason: 'schema_ahead' })
  const refused = {
    reason: 'schema_ahead',
    outcome: 'not_applied',
    detail: /version 99\.0\.0 of this program: update it/,
  }
  t.match((await rename()).json(), refused)
  await sql`update schema_requirement set oldest_program = '0.0.1' where migration = '9999_later'`.execute(database.db)
  t.match(await service.readiness(), { status: 'ready' }, 'a step that this program can live with')
  t.equal((await rename()).statusCode, 200)
})
