import type { Socket } from 'node:net'
import { sql } from 'kysely'
import t, { type Test } from 'tap'
import { eventually, inWork, RawConnection, type Running, running, whenInWork } from './running.js'

/** Longer than the limit of a test file, so that the test fails if the shutdown waits for a timeout. */
const NEVER_MS = 2_000_000
const ENDLESS = { requestTimeout: NEVER_MS, headersTimeout: NEVER_MS, keepAliveTimeout: NEVER_MS, timeout: NEVER_MS }

function open(t: Test, port: number, text: string): RawConnection {
  const connection = new RawConnection(port).write(text)
  t.teardown(() => void connection.socket.destroy())
  return connection
}

/** Shuts down a service whose timeouts never take effect, and waits until the connections are closed. */
async function requireEnd({ app, service }: Running, connections: RawConnection[]): Promise<void> {
  Object.assign(app.server, ENDLESS)
  service.drain()
  await app.close()
  await Promise.all(connections.map(({ closed }) => closed))
}

t.test('every answer ends its connection from the first moment of draining, and none does before', async t => {
  const { service, token, port } = await running(t, {}, { listen: true })
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' }
  const asked: [path: string, init?: RequestInit][] = [
    ['/persona/999999?update_mask=', { method: 'PATCH', headers, body: '{}' }],
    ['/persona/1', { method: 'PATCH' }],
    ['/admin/tool/custom/validate', { method: 'POST', headers, body: '{"' }],
    ['/readyz'],
    ['/healthz', { method: 'DELETE' }],
  ]
  const answers = async () => (await Promise.all(asked.map(request => ask(port, ...request)))).join(', ')
  t.equal(await answers(), '404 keep-alive, 401 keep-alive, 422 keep-alive, 200 keep-alive, 405 keep-alive')
  service.drain()
  t.equal(await answers(), '404 close, 401 close, 422 close, 503 close, 405 close')
})

t.test('connections that sent nothing or a part of a head, or that wait, do not hold up the end', async t => {
  const started = await running(t, { SHUTDOWN_TIMEOUT_MS: '2000' }, { listen: true })
  const part = 'GET /healthz HTTP/1.1\r\nHo'
  const [nothing, begun] = ['', part].map(text => open(t, started.port, text)) as [RawConnection, RawConnection]
  const second = open(t, started.port, `${part}st: a\r\n\r\n${part}`)
  await second.until(/200/)
  await requireEnd(started, [nothing, begun, second])
})

t.test('a client that stops sending, or reads no answer, does not hold up the end of the service', async t => {
  const started = await running(t, { SHUTDOWN_TIMEOUT_MS: '4000' }, { listen: true })
  const { app, token, port } = started
  const accepted: Socket[] = []
  app.server.on('connection', socket => accepted.push(socket))
  const update = `PATCH /persona/1 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${token}\r\nContent-Length: 60000\r\n\r\n{`
  const silent = open(t, port, update)
  // A body that arrives steadily, so that no timeout applies, and never ends.
  const steady = open(t, port, update.replace('Content-Length: 60000', 'Transfer-Encoding: chunked').replace(/{$/, ''))
  const piece = `${(1024).toString(16)}\r\n${' '.repeat(1024)}\r\n`
  const drip = setInterval(() => steady.write(piece), 20)
  t.teardown(() => clearInterval(drip))
  // The answers exceed the buffers of both ends.
  open(t, port, 'GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(15)).socket.pause()
  const areHeld = () => accepted.some(({ writableLength }) => writableLength > 0)
  await eventually(async () => (await inWork(started)) === 2 && areHeld())
  await requireEnd(started, [silent, steady])
  t.match(silent.text, /^HTTP\/1\.1 503 [\s\S]*"reason":"draining","outcome":"not_applied"/)
  t.match(started.log.join(''), /the connection closed before the answer was sent/)
})

t.test(
  '503 unknown for what still waits at the end, also after a request whose client left, and without a body',
  async t => {
    const started = await running(t, { SHUTDOWN_TIMEOUT_MS: '1000', APPROVAL: 'anyone' }, { listen: true })
    const { app, database, token, port } = started
    const authorization = `Bearer ${token}`
    const { etag = '' } = (await app.inject({ url: '/persona/1', headers: { authorization } })).headers
    const { headers: proposed } = await app.inject({
      method: 'PATCH',
      url: '/persona/1?update_mask=name&propose=true',
      headers: { authorization, 'if-match': etag },
      payload: { name: 'Proposed' },
    })
    const trx = await database.db.startTransaction().execute()
    await sql`select from persona where id = 1 for update`.execute(trx)
    const head = `PATCH /persona/1?update_mask=name HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${token}\r\nContent-Type: application/json\r\n`
    const sent = `${head}Content-Length: 15\r\n\r\n{"name":"late"}`
    const left = open(t, port, sent)
    await whenInWork(started, 1)
    const stays = open(t, port, sent)
    await whenInWork(started, 2)
    left.socket.destroy()
    const approval = `POST ${proposed.location}/approve HTTP/1.1\r\nHost: a\r\nAuthorization: ${authorization}\r\nIf-Match: ${proposed.etag}\r\n\r\n`
    const approves = open(t, port, approval)
    await whenInWork(started, 3)
    const ended = requireEnd(started, [stays, approves])
    for (const each of [stays, approves]) await each.until(/503[\s\S]*"reason":"draining","outcome":"unknown"/)
    await trx.rollback().execute()
    await ended
  },
)

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
  const detail = /version 99\.0\.0 or later of this service\. The operator must update the service\./
  t.match((await rename()).json(), { reason: 'schema_ahead', outcome: 'not_applied', detail })
  await sql`update schema_requirement set oldest_program = '0.0.1' where migration = '9999_later'`.execute(database.db)
  t.match(await service.readiness(), { status: 'ready' }, 'a step that this program can live with')
  t.equal((await rename()).statusCode, 200)
})
