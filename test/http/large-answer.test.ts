import { createHash } from 'node:crypto'
import type { Socket } from 'node:net'
import { sql } from 'kysely'
import t from 'tap'
import { appOver, worldApp } from '../app.js'
import { DEFINITION } from '../matrix-organisation.js'
import { worldDatabase } from '../world.js'
import { eventually, RawConnection, running } from './running.js'

t.test('200: an answer that is sent in pieces is whole, whatever its characters are', async t => {
  const { app, call, token } = await worldApp(t)
  const admin = await token('admin@example.com')
  await app.listen({ host: '127.0.0.1', port: 0 })
  const { port } = app.server.address() as { port: number } // it listens on TCP
  for (const shift of ['', 'x', 'xy', 'xyz']) {
    const definition = { ...DEFINITION, 'x-text': shift + '\u00e9\u{1f600}\u4e16'.repeat(100_000) }
    const stored = await call('PUT', '/admin/tool/custom/10', { token: admin, body: { definition } })
    t.equal(stored.statusCode, 200)
    const headers = { authorization: `Bearer ${admin}` }
    const answer = await fetch(`http://127.0.0.1:${port}/tool/10`, { headers })
    const text = await answer.text()
    t.strictSame(JSON.parse(text).definition, definition)
    t.equal(text, stored.body)
    t.equal(Number(answer.headers.get('content-length')), Buffer.byteLength(text))
    const head = await fetch(`http://127.0.0.1:${port}/tool/10`, { method: 'HEAD', headers })
    t.equal(head.headers.get('content-length'), answer.headers.get('content-length'))
  }
})

t.test('200: a long answer of a validation is as a short one', async t => {
  const { call, token } = await worldApp(t)
  const admin = await token('admin@example.com')
  const validate = async (description: string) => {
    const spec = { ...DEFINITION.paths['/now'].get, description }
    const definition = { ...DEFINITION, paths: { '/now': { get: spec } } }
    const answer = await call('POST', '/admin/tool/custom/validate', { token: admin, body: { definition } })
    t.equal(answer.statusCode, 200)
    t.strictSame(answer.json().methods[0].spec, spec)
    t.equal(answer.headers['content-length'], String(Buffer.byteLength(answer.body)))
    return answer.headers['content-type']
  }
  t.equal(await validate('\u00e9\u{1f600}\u4e16'.repeat(100_000)), await validate('short'))
})

t.test('the tag is that of what is shown, whether or not its definitions were cached', async t => {
  const { database, token } = await worldDatabase(t)
  const { call } = await appOver(t, database)
  const admin = await token('admin@example.com')
  const get = (url: string, headers = {}) => call('GET', url, { token: admin, headers })
  const agent = '/persona/1'
  const attached = await call('PATCH', `${agent}?update_mask=tool_ids`, {
    token: admin,
    body: { tool_ids: [10, 11, 13] },
  })
  t.equal(attached.statusCode, 200, attached.body)
  // Nobody has read these definitions before. One is sent in pieces, one is short, one tool has none.
  const store = async (n: number) => {
    for (const [tool, length] of [
      [10, 300_000],
      [11, 3],
    ] as const) {
      const text = JSON.stringify({ ...DEFINITION, 'x-n': n, 'x-text': '\u00e9'.repeat(length) })
      const hash = createHash('sha256').update(text).digest()
      await sql`insert into tool_definition (hash, content, size_bytes) values (${hash}, ${text}, ${Buffer.byteLength(text)})`.execute(
        database.db,
      )
      await sql`update tool set definition_hash = ${hash} where id = ${tool}`.execute(database.db)
    }
    await sql`update tool set definition_hash = null where id = 13`.execute(database.db)
  }
  const tags: unknown[] = []
  for (const n of [1, 2]) {
    await store(n)
    for (const path of [agent, '/tool/10', '/tool/11', '/tool/13']) {
      const cold = await get(path)
      const warm = await get(path)
      const tag = String(cold.headers.etag)
      t.equal(cold.statusCode, 200)
      t.equal(warm.body, cold.body)
      t.equal(warm.headers.etag, tag)
      t.equal(warm.headers['content-length'], String(Buffer.byteLength(cold.body)))
      const head = await call('HEAD', path, { token: admin })
      t.match(head, {
        statusCode: 200,
        body: '',
        headers: { etag: tag, 'content-length': warm.headers['content-length'] },
      })
      const unchanged = await get(path, { 'if-none-match': tag })
      t.match(unchanged, { statusCode: 304, body: '', headers: { etag: tag, 'content-length': undefined } })
      tags.push(tag)
    }
  }
  t.equal(new Set(tags).size, 7, 'another definition gives another tag; the tool without one is as it was')
  const tag = String(tags.at(4)).replace(/\.[0-9a-f]{12}"$/, '.0123456789ab"') // as a version with other digests wrote it
  const update = await call('PATCH', `${agent}?update_mask=description`, {
    token: admin,
    headers: { 'if-match': tag },
    body: { description: 'by an older tag' },
  })
  t.equal(update.statusCode, 200)
  t.equal((await get(agent)).body, update.body)
})

t.test(
  '200: pages that nobody reads are sent a piece in each turn of the event loop, and keep no other address from theirs',
  async t => {
    const { app, port } = await running(t, {}, { listen: true })
    const file = '/docs/swagger-ui-bundle.js'
    const whole = await app.inject(file)
    const bytes = Buffer.byteLength(whole.body)
    t.equal(whole.headers['content-length'], String(bytes))
    t.ok(bytes > 1_000_000)
    const head = await app.inject({ method: 'HEAD', url: file })
    t.match(head, { statusCode: 200, body: '', headers: { 'content-length': String(bytes) } })

    const accepted: Socket[] = []
    app.server.on('connection', socket => accepted.push(socket))
    const unread = Array.from({ length: 40 }, () => new RawConnection(port))
    t.teardown(() => {
      for (const { socket } of unread) socket.destroy()
    })
    await eventually(() => accepted.length === unread.length)
    const written = () => accepted.reduce((sum, { bytesWritten }) => sum + bytesWritten, 0)
    let most = 0
    let isOver = false
    const turn = (before: number) => {
      const now = written()
      most = Math.max(most, now - before)
      if (!isOver) setImmediate(turn, now)
    }
    turn(written())
    for (const { socket } of unread) socket.pause().write(`GET ${file} HTTP/1.1\r\nHost: a\r\n\r\n`)
    await eventually(() => accepted.every(({ bytesWritten }) => bytesWritten > 0))
    const other = new RawConnection(port, '127.0.0.2').write(
      `GET ${file} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`,
    )
    await other.closed
    const ofOthers = written() - (accepted.at(-1)?.bytesWritten ?? 0)
    isOver = true
    t.equal(other.text.slice(other.text.indexOf('\r\n\r\n') + 4).length, bytes)
    t.ok(most > 0 && most < 300_000, `${most} bytes in one turn at most`)
    t.ok(
      ofOthers < 30 * bytes,
      `${ofOthers} bytes of 40 pages of ${bytes} went to another address before it had its page`,
    )
    const [reader] = unread as [RawConnection]
    reader.socket.resume()
    await eventually(() => reader.text.length > bytes)
    t.match(reader.headers, { 'content-length': String(bytes) })
  },
)
