import t from 'tap'
import { worldApp } from '../app.js'
import { DEFINITION } from '../matrix-organisation.js'

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
    t.equal(Number(answer.headers.get('content-length')), Buffer.byteLength(text))
    const head = await fetch(`http://127.0.0.1:${port}/tool/10`, { method: 'HEAD', headers })
    t.equal(head.headers.get('content-length'), answer.headers.get('content-length'))
  }
})
