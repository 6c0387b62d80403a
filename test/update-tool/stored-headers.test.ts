import t from 'tap'
import { worldApp } from '../app.js'
import { difference, storedTool } from '../updates/stored-state.js'

const TOOL = 16
const PATH = `/admin/tool/custom/${TOOL}`
t.test('200 headers keep their secrets by mask, and only what is sent anew is sealed anew', async t => {
  const { call, token, database } = await worldApp(t)
  const admin = await token('admin@example.com')
  const send = (body: unknown) => call('PUT', PATH, { token: admin, body })
  const before = await storedTool(database.db, TOOL)
  const read = await send({})
  t.equal(read.statusCode, 200)
  const shown: { key: string; value: string }[] = read.json().custom_headers
  t.match(
    shown.map(header => header.value),
    [/^\*{4}#[0-9a-f]{12}$/, /^\*{4}#[0-9a-f]{12}$/],
  )
  t.equal((await send({ custom_headers: shown })).headers.etag, read.headers.etag, 'the masks alone change nothing')
  const plain = [
    { key: 'Authorization', value: 'Bearer abc' },
    { key: 'X-B', value: '2' },
  ]
  t.equal((await send({ custom_headers: plain })).headers.etag, read.headers.etag, 'nor do the same secrets')
  t.same(difference(before, await storedTool(database.db, TOOL)), {})
  const changed = await send({ custom_headers: [shown[0], { key: 'X-B', value: '3' }] })
  t.equal(changed.statusCode, 200, changed.body)
  const after = await storedTool(database.db, TOOL)
  const [first, second] = [before, after].map(state => state.custom_headers as Record<string, unknown>[])
  t.same(second?.[0], first?.[0], 'the kept one is byte for byte the same')
  t.not(second?.[1]?.ciphertext, first?.[1]?.ciphertext)
  t.same(Object.keys(difference(before, after)), ['custom_headers'])
})
