import t from 'tap'
import { definitionOf } from '../../bench/world.js'
import { worldApp } from '../app.js'

const LIMITS = {
  LIST_ITEMS_MAX: '3',
  JSON_DEPTH_MAX: '8',
  DEFINITION_DEPTH_MAX: '20',
  DEFINITION_OPERATIONS_MAX: '2',
}

/** `levels` objects inside each other. */
function nested(levels: number): object {
  let value = {}
  for (let level = 1; level < levels; level++) value = { a: value }
  return value
}

t.test('422: lists, depths and operations are bounded by the settings, and the document says so', async t => {
  const { app, call, token } = await worldApp(t, LIMITS)
  const admin = await token('admin@example.com')
  const types = async (method: string, url: string, body: object) => {
    const answer = await call(method, url, { token: admin, body })
    return answer.statusCode === 422 ? answer.json().detail : answer.statusCode
  }
  const agent = (body: object) => types('PATCH', `/persona/1?update_mask=${Object.keys(body)[0]}`, body)
  const check = (definition: object) => types('POST', '/admin/tool/custom/validate', { definition })
  const store = (definition: object) => types('PUT', '/admin/tool/custom/10', { definition })

  t.equal(await agent({ label_ids: [1, 2, 3] }), 200)
  t.match(await agent({ label_ids: [1, 2, 3, 1] }), [{ loc: ['body', 'label_ids'], type: 'too_long' }])
  t.match(await agent({ user_file_ids: ['a', 'b', 'c', 'd'] }), [{ loc: ['body', 'user_file_ids'], type: 'too_long' }])
  t.equal(await agent({ name: 'x', unknown: nested(7) }), 200)
  t.match(await agent({ name: 'x', unknown: nested(8) }), [{ loc: ['body'], type: 'json_too_deep' }])
  for (const take of [check, store]) {
    t.equal(await take({ ...definitionOf(2), 'x-deep': nested(19) }), 200)
    t.match(await take({ ...definitionOf(2), 'x-deep': nested(20) }), [{ type: 'definition_too_deep' }])
    t.match(await take(definitionOf(3)), [{ type: 'too_many_operations' }])
  }

  const { paths, components } = (await app.inject('/openapi.json')).json()
  const { label_ids: labels } = components.schemas.PersonaUpsertRequest.properties
  t.match(JSON.stringify(labels), '"maxItems":3')
  t.match(paths['/persona/{persona_id}'].patch.description, 'nests at most 8 deep')
  t.match(paths['/admin/tool/custom/validate'].post.description, /at most 20 deep .* 2 operations/)
})

t.test('422 by default: 1,000 items, 64 levels, 128 in a definition', async t => {
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
