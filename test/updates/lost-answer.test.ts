import { request } from 'node:http'
import t from 'tap'
import { worldApp } from '../app.js'
import { TcpProxy } from '../db/tcp-proxy.js'
import { auditRows, hashOfEverything } from './stored-state.js'

interface Sent {
  status: number | 'lost'
  etag: string | undefined
}

t.test('200 a request whose answer was lost, sent again with the old tag, is applied once', async t => {
  const { app, token, database } = await worldApp(t)
  const admin = await token('admin@example.com')
  await app.listen({ host: '127.0.0.1', port: 0 })
  const address = app.server.address()
  if (address === null || typeof address === 'string') throw new Error('the service has no port')
  const proxy = await TcpProxy.open({ host: '127.0.0.1', port: address.port })
  t.teardown(() => proxy.close())
  for (const [kind, id, method, url, body] of [
    ['persona', 1, 'PATCH', '/persona/1?update_mask=name,tool_ids', { name: 'sent twice', tool_ids: [10, 13] }],
    ['tool', 10, 'PUT', '/admin/tool/custom/10', { custom_headers: [{ key: 'X-Key', value: 'sent twice' }] }],
  ] as const) {
    const read = await send(address.port, method, kind === 'persona' ? '/persona/1?update_mask=' : url, admin, {})
    const rows = await auditRows(database.db, kind, id)
    const headers = { 'if-match': read.etag ?? '' }
    // The first piece of the answer is cut: the server has committed, and the client never hears of it.
    proxy.onBackward = () => false
    t.equal((await send(proxy.port, method, url, admin, body, headers)).status, 'lost')
    proxy.onBackward = () => true
    const committed = await auditRows(database.db, kind, id)
    t.equal(committed.length, rows.length + 1, 'it was committed')
    const before = await hashOfEverything(database.db)
    const again = await send(address.port, method, url, admin, body, headers)
    t.equal(again.status, 200)
    t.equal(again.etag, `"${kind}-${id}-${committed.at(-1)?.version_after}"`)
    t.same(await hashOfEverything(database.db), before, 'the second changed nothing')
    const other = await send(address.port, method, url, admin, { ...body, name: 'something else' }, headers)
    t.equal(other.status, 412, 'another change with the old tag is refused')
  }
})

function send(port: number, method: string, path: string, token: string, body: object, headers = {}): Promise<Sent> {
  const content = JSON.stringify(body)
  return new Promise(resolve => {
    const asked = request(
      {
        host: '127.0.0.1',
        port,
        method,
        path,
        agent: false,
        headers: {
          authorization: `Bearer ${token}`,
          'content-type': 'application/json',
          'content-length': Buffer.byteLength(content),
          ...headers,
        },
      },
      answer => {
        answer.resume()
        answer.on('end', () => resolve({ status: answer.statusCode ?? 0, etag: answer.headers.etag }))
      },
    )
    asked.on('error', () => resolve({ status: 'lost', etag: undefined }))
    asked.end(content)
  })
}
