import { PassThrough } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { worldApp } from '../app.js'
import { storedAgent } from './stored-state.js'

const MINIMAL = { prefer: 'return=minimal' }
const AGENT = '/persona/1?update_mask=description'
const TOOL = '/admin/tool/custom/10'

t.test(
  '204 with the tag of the stored version, and the same is stored, warned of and refused as without the preference',
  async t => {
    const { call, token, database } = await worldApp(t)
    const admin = await token('admin@example.com')
    const update = (method: string, url: string, body: object, headers: object = MINIMAL) =>
      call(method, url, { token: admin, body, headers: { ...headers } })
    for (const [method, url, read] of [
      ['PATCH', AGENT, '/persona/1'],
      ['PUT', TOOL, '/tool/10'],
    ] as const) {
      const first = await update(method, url, { description: 'minimal', nme: 1 })
      t.equal(first.statusCode, 204, first.body)
      t.equal(first.body, '')
      t.equal(first.headers['content-type'], undefined)
      t.match(first.headers, {
        'preference-applied': 'return=minimal',
        vary: 'Prefer',
        warning: /unknown field nme ignored/,
      })
      const shown = await call('GET', read, { token: admin })
      t.equal(shown.json().description, 'minimal')
      const tag = String(first.headers.etag)
      t.equal(String(shown.headers.etag).split('.')[0], tag.slice(0, -1))
      const again = await update(
        method,
        url,
        { description: 'minimal' },
        { ...MINIMAL, 'if-match': tag.replace(/\d+"$/, '1"') },
      )
      t.strictSame([again.statusCode, again.headers.etag], [200, tag], 'what is stored already is shown to an old tag')
      const stale = await update(method, url, { description: 'other' }, { ...MINIMAL, 'if-match': '"stale"' })
      t.strictSame([stale.statusCode, stale.headers['preference-applied']], [412, undefined])
      t.equal((await update(method, url, { description: 7 })).statusCode, 422)
      const both = await update(method, url, { description: 'both' }, { prefer: 'return=minimal, handling=strict' })
      t.strictSame([both.statusCode, both.headers['preference-applied']], [204, 'handling=strict, return=minimal'])
      const dry = await update(method, `${url}${url.includes('?') ? '&' : '?'}dry_run=true`, { description: 'dry' })
      t.strictSame([dry.statusCode, dry.headers['dry-run'], dry.headers.etag], [204, 'true', both.headers.etag])
      for (const prefer of ['return=representation', 'return=representation, return=minimal', 'minimal', 'return']) {
        const whole = await update(method, url, { description: 'both' }, { prefer })
        t.strictSame([whole.statusCode, whole.headers['preference-applied']], [200, undefined], prefer)
      }
      const key = { ...MINIMAL, 'idempotency-key': `"${method}"` }
      const kept = await update(method, url, { description: 'by key' }, key)
      const replayed = await update(method, url, { description: 'by key' }, key)
      t.strictSame([replayed.statusCode, replayed.headers.etag], [204, kept.headers.etag])
      t.equal(replayed.headers['idempotent-replayed'], 'true')
    }
    const whole = { tool_ids: [10, 13], document_set_ids: [1], users: [], label_ids: [1, 2] }
    const mask = Object.keys(whole).join(',')
    t.equal((await update('PATCH', `/persona/1?update_mask=${mask}`, whole)).statusCode, 204)
    t.match(await storedAgent({ database }, 1), { tool_ids: [10, 13], document_set_ids: [1], label_ids: [1, 2] })
  },
)

t.test(
  '200 with the record for a repetition with the old tag: what others made since is not skipped by its new tag',
  async t => {
    const { call, token } = await worldApp(t)
    const admin = await token('admin@example.com')
    for (const [method, url, read] of [
      ['PATCH', '/persona/1?update_mask=description', '/persona/1'],
      ['PUT', TOOL, '/tool/10'],
    ] as const) {
      const before = String((await call('GET', read, { token: admin })).headers.etag)
      const repeated = () =>
        call(method, url, { token: admin, body: { description: 'mine' }, headers: { ...MINIMAL, 'if-match': before } })
      t.equal((await repeated()).statusCode, 204)
      const other = await call(method, url.replace('=description', '=name'), {
        token: admin,
        body: { name: 'of_another' },
      })
      t.equal(other.statusCode, 200)
      const again = await repeated()
      t.strictSame([again.statusCode, again.headers['preference-applied']], [200, undefined])
      t.match(again.json(), { name: 'of_another', description: 'mine' })
    }
  },
)

t.test('what others made while the body was on its way is not taken for what it was before', async t => {
  const { app, call, token } = await worldApp(t)
  const admin = await token('admin@example.com')
  for (const [method, url, read] of [
    ['PATCH', AGENT, '/persona/1'],
    ['PUT', TOOL, '/tool/10'],
  ] as const) {
    const update = (body: object) => call(method, url, { token: admin, body })
    /** Sends the body of the update when another one was made behind its headers. */
    const overtaken = async (headers: Record<string, string>) => {
      const payload = new PassThrough()
      const answer = app.inject({
        method,
        url,
        headers: { ...MINIMAL, ...headers, authorization: `Bearer ${admin}`, 'content-type': 'application/json' },
        payload,
      })
      while (payload.listenerCount('readable') === 0) await sleep(2)
      await update({ description: 'of another' })
      payload.end(JSON.stringify({ description: 'mine' }))
      return await answer
    }
    const before = String((await update({ description: 'mine' })).headers.etag)
    const last = await overtaken({})
    t.equal(last.statusCode, 204, last.body)
    const shown = await call('GET', read, { token: admin })
    t.equal(shown.json().description, 'mine', 'the last update is stored')
    t.equal(String(shown.headers.etag).split('.')[0], String(last.headers.etag).slice(0, -1))
    t.not(last.headers.etag, before)
    t.equal((await overtaken({ 'if-match': String(last.headers.etag) })).statusCode, 412)
  }
})
