import t from 'tap'
import { definitionOf } from '../../bench/world.js'
import { worldApp } from '../app.js'

/** `levels` objects inside each other. */
function nested(levels: number): object {
  let value = {}
  for (let level = 1; level < levels; level++) value = { a: value }
  return value
}

t.test('422: 1,000 items, 64 levels, 128 in a definition', async t => {
  const { call, token } = await worldApp(t)
  const admin = await token('admin@example.com')
  const statusOf = async (method: string, url: string, body: object) =>
    (await call(method, url, { token: admin, body })).statusCode
  const many = (count: number) => ({ label_ids: Array.from({ length: count }, () => 1) })
  t.equal(await statusOf('PATCH', '/persona/1?update_mask=label_ids', many(1_000)), 200)
  t.equal(await statusOf('PATCH', '/persona/1?update_mask=label_ids', many(1_001)), 422)
  t.equal(await statusOf('PATCH', '/persona/1?update_mask=name', { name: 'x', deep: nested(63) }), 200)
  t.equal(await statusOf('PATCH', '/persona/1?update_mask=name', { name: 'x', deep: nested(64) }), 422)
  const check = (levels: number) =>
    statusOf('POST', '/admin/tool/custom/validate', { definition: { ...definitionOf(1), 'x-deep': nested(levels) } })
  t.equal(await check(127), 200)
  t.equal(await check(128), 422)
})
