import { sql } from 'kysely'
import t from 'tap'
import { createUser } from '../../src/admin/people.js'
import { worldApp } from '../app.js'

const { call, token, database } = await worldApp(t)
await database.db
  .transaction()
  .execute(trx => createUser(trx, { email: 'second@example.com', kind: 'person', permissions: ['admin'] }))
const alice = await token('admin@example.com')
const bob = await token('second@example.com')

interface Update {
  by: string
  tag?: string
  body: object
  status?: number
}

const AGENT = { method: 'PATCH', url: '/persona/1' }
const TOOL = { method: 'PUT', url: '/admin/tool/custom/10' }

for (const target of [AGENT, TOOL]) {
  const send = async ({ by, tag, body }: Update) => {
    const mask = target === AGENT ? `?update_mask=${Object.keys(body).join(',')}` : ''
    const headers = tag === undefined ? {} : { 'if-match': tag }
    const response = await call(target.method, `${target.url}${mask}`, { token: by, body, headers })
    return { status: response.statusCode, tag: String(response.headers.etag), body: response.json() }
  }
  const current = async () => (await send({ by: alice, body: {} })).tag

  t.test(`412 tells that the update was stored before somebody else wrote: ${target.url}`, async t => {
    const tag = await current()
    const mine = { by: alice, tag, body: { name: 'mine', description: 'of alice' } }
    const stored = await send(mine)
    t.equal(stored.status, 200)
    t.equal((await send({ by: bob, body: { name: 'his' } })).status, 200)
    const again = await send(mine)
    t.match(again, {
      status: 412,
      body: { applied_etag: stored.tag, changed: [{ field: 'name' }, { field: 'description' }] },
    })
    t.match(again.body.detail, /^Your update was stored before/)
  })

  t.test(
    `412 tells that it was not: another's content, other content, a part of it, another's version: ${target.url}`,
    async t => {
      const tag = await current()
      t.equal((await send({ by: bob, body: { name: 'bob first' } })).status, 200)
      const same = await send({ by: alice, tag, body: { name: 'bob first', description: 'and more' } })
      t.match(same, { status: 412, body: { applied_etag: null } }, "another's")
      const next = await current()
      t.equal((await send({ by: alice, body: { name: 'alice one' } })).status, 200)
      t.equal((await send({ by: bob, body: { name: 'bob two' } })).status, 200)
      for (const body of [
        { name: 'alice other' },
        { name: 'alice one', description: 'never stored' },
        { description: 'never' },
      ]) {
        t.match(
          await send({ by: alice, tag: next, body }),
          { status: 412, body: { applied_etag: null } },
          JSON.stringify(body),
        )
      }
      const lost = await send({ by: alice, tag: next, body: { name: 'alice one' } })
      t.not(lost.body.applied_etag, null, 'and this one was')
    },
  )

  t.test(`412 tells that it was though a later change made a part of it so again: ${target.url}`, async t => {
    const tag = await current()
    const mine = { by: alice, tag, body: { name: 'both', description: 'of them' } }
    const stored = await send(mine)
    for (const name of ['away', 'both']) t.equal((await send({ by: bob, body: { name } })).status, 200)
    t.equal((await send({ by: bob, body: { description: 'away' } })).status, 200)
    t.match(await send(mine), { status: 412, body: { applied_etag: stored.tag } })
  })
}

t.test('412 tells it of header values, and shows none', async t => {
  const headers = (value: string) => ({ custom_headers: [{ key: 'X-Key', value }] })
  const put = async (body: object, tag?: string) =>
    await call('PUT', TOOL.url, { token: alice, body, headers: tag === undefined ? {} : { 'if-match': tag } })
  const tag = String((await put({})).headers.etag)
  const stored = await put(headers('s3cret'), tag)
  t.equal((await put(headers('another'))).statusCode, 200)
  const again = await put(headers('s3cret'), tag)
  t.equal(again.statusCode, 412)
  t.equal(again.json().applied_etag, stored.headers.etag)
  t.equal((await put(headers('guess'), tag)).json().applied_etag, null)
  t.notMatch(again.body, /s3cret|another/)
})

t.test(
  '412, not 422, for masks of the state that a stale tag names; it tells whether the update was stored',
  async t => {
    const put = async (by: string, body: object, tag?: string) =>
      await call('PUT', TOOL.url, { token: by, body, headers: tag === undefined ? {} : { 'if-match': tag } })
    const base = await put(alice, { name: 'base', custom_headers: [{ key: 'X-Key', value: 'first' }] })
    const tag = String(base.headers.etag)
    const mine = { name: 'with masks', custom_headers: base.json().custom_headers }
    const stored = await put(alice, mine, tag)
    t.equal(stored.statusCode, 200, stored.body)
    t.equal((await put(bob, { custom_headers: [{ key: 'X-Key', value: 'second' }] })).statusCode, 200)
    const again = await put(alice, mine, tag)
    t.equal(again.statusCode, 412, again.body)
    t.equal(again.json().applied_etag, stored.headers.etag)
    const other = await put(alice, { ...mine, name: 'never stored' }, tag)
    t.match(other.json(), { error_code: 'PRECONDITION_FAILED', applied_etag: null })
    t.notMatch(other.json().detail, /no longer known/)
    const fresh = await put(alice, mine)
    t.match(fresh.json(), { detail: [{ type: 'mask_mismatch' }] }, 'without a tag it is a mask of nothing')
  },
)

t.test('412 says so where it is no longer known whether the update was stored', async t => {
  const patch = async (by: string, body: object, tag?: string) => {
    const headers = tag === undefined ? {} : { 'if-match': tag }
    return await call('PATCH', `${AGENT.url}?update_mask=${Object.keys(body)}`, { token: by, body, headers })
  }
  const rows = sql`resource_kind = 'persona' and resource_id = 1`
  const tag = String((await patch(alice, {})).headers.etag)
  const mine = { name: 'stored, then pruned' }
  t.equal((await patch(alice, mine, tag)).statusCode, 200)
  t.equal((await patch(bob, { name: 'his' })).statusCode, 200)
  t.notMatch((await patch(alice, { name: 'other' }, tag)).json().detail, /no longer known/)
  await sql`update audit set difference = null where ${rows}`.execute(database.db)
  const again = await patch(alice, mine, tag)
  t.match(again.json(), { error_code: 'PRECONDITION_FAILED', applied_etag: null, changed: [{ field: 'name' }] })
  t.match(again.json().detail, /Whether your update was stored since then is no longer known\.$/)
  const bobs = await patch(bob, mine, tag)
  t.notMatch(bobs.json().detail, /no longer known/, "the version behind the tag is another's")
})
