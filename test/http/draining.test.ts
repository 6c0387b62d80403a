import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { sql } from 'kysely'
import t from 'tap'
import { DEFINITION } from '../matrix-organisation.js'
import { inWork, RawConnection, type Running, running } from './running.js'

t.test('every answer ends its connection from the first moment of draining, and none does before', async t => {
  const { service, token, port } = await running(t, {}, { listen: true })
  const connections = async () => {
    const authorization = `Bearer ${token}`
    const json = { 'content-type': 'application/json' }
    const answers = await Promise.all([
      ask(port, '/persona/999999?dry_run=true&update_mask=', {
        method: 'PATCH',
        headers: { authorization, ...json },
        body: '{}',
      }),
      ask(port, '/persona/1', { method: 'PATCH' }),
      ask(port, '/admin/tool/custom/validate', { method: 'POST', headers: { authorization, ...json }, body: '{"' }),
      ask(port, '/healthz'),
      ask(port, '/readyz'),
      ask(port, '/nothing'),
      ask(port, '/healthz', { method: 'DELETE' }),
    ])
    return answers
  }
  t.strictSame(await connections(), [
    '404 keep-alive',
    '401 keep-alive',
    '422 keep-alive',
    '200 keep-alive',
    '200 keep-alive',
    '404 keep-alive',
    '405 keep-alive',
  ])
  service.drain()
  t.strictSame(await connections(), [
    '404 close',
    '401 close',
    '422 close',
    '200 close',
    '503 close',
    '404 close',
    '405 close',
  ])
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

t.test(
  '503 schema_ahead: a schema that moves on is not written by a running process, once a probe has seen it',
  async t => {
    const service = await running(t)
    t.match(await rename(service, 'Before'), { status: 200, etag: /./ })
    const before = await agentRow(service)

    await declare(service, '99.0.0')
    t.match(await service.service.readiness(), { reason: 'schema_ahead' })
    for (const answer of [await rename(service, 'Too old'), await rename(service, 'Again')]) {
      t.match(answer, {
        status: 503,
        body: { reason: 'schema_ahead', outcome: 'not_applied', detail: /version 99\.0\.0 of this program: update it/ },
      })
    }
    t.match(await validate(service), { status: 503, body: { reason: 'schema_ahead' } })
    t.strictSame(await agentRow(service), before, 'nothing was written')
    t.match(service.log.join(''), /"reason":"schema_ahead"/)

    await sql`delete from schema_requirement where migration = '9999_later'`.execute(service.database.db)
    t.match(await service.service.readiness(), { status: 'ready' })
    t.match(await rename(service, 'Without it'), { status: 200 })
    await declare(service, '0.0.1')
    t.match(await service.service.readiness(), { status: 'ready' }, 'a step that this program can live with')
    t.match(await validate(service), { status: 200 })
  },
)

async function declare({ database }: Running, oldestProgram: string): Promise<void> {
  await sql`insert into schema_requirement values ('9999_later', ${oldestProgram})`.execute(database.db)
}

async function agentRow({ database }: Running) {
  return await database.db.selectFrom('persona').select(['name', 'version']).where('id', '=', 1).executeTakeFirst()
}

async function rename({ app, token }: Running, name: string) {
  const answer = await app.inject({
    method: 'PATCH',
    url: '/persona/1?update_mask=name',
    headers: { authorization: `Bearer ${token}` },
    payload: { name },
  })
  return { status: answer.statusCode, etag: answer.headers.etag, body: answer.json() }
}

async function validate({ app, token }: Running) {
  const answer = await app.inject({
    method: 'POST',
    url: '/admin/tool/custom/validate',
    headers: { authorization: `Bearer ${token}` },
    payload: { definition: DEFINITION },
  })
  return { status: answer.statusCode, body: answer.json() }
}
