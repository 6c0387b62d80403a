import { sql } from 'kysely'
import t from 'tap'
import { REQUIRED_FIELDS, worldApp } from '../app.js'
import { faultsOf, hashOfEverything, storedAgent, warningsOf } from './stored-state.js'

const GOES = 'calls of this tool send the new header values to https://api.example.com'

t.test('200 with Warning: the notice of what an update replaced', async t => {
  const { call, token, database } = await worldApp(t)
  const [alice, admin] = [await token('alice@example.com'), await token('admin@example.com')]
  const set = async (as: string, body: object, headers = {}) =>
    warningsOf(await call('PATCH', `/persona/1?update_mask=${Object.keys(body)}`, { token: as, body, headers }))
  /** Dates the agent's last change `seconds` ago. */
  const age = async (seconds: number) => {
    await sql`update persona set recent_changes = jsonb_set(recent_changes, '{-1,at}', to_jsonb(${Date.now() - seconds * 1000}::bigint))
      where id = 1`.execute(database.db)
  }
  let n = 0
  const rename = (as: string, headers = {}) => set(as, { name: `name ${n++}` }, headers)

  await rename(alice)
  await age(42)
  const notice = (ago: string) =>
    new RegExp(`^field name overwrites a change that alice@example\\.com made ${ago} s ago$`)
  t.match((await rename(admin)).join(), notice('4[2-9]'))
  await rename(alice)
  await age(870)
  t.match((await rename(admin)).join(), notice('8[789]\\d'))
  await age(901)
  t.same(await rename(alice), [], 'within 15 minutes, not beyond')
  t.same(await set(admin, { description: 'another' }), [], 'only for what the request replaces')
  const { name } = await storedAgent({ database }, 1)
  t.same(await set(admin, { name }), [], 'the same value replaces nothing')
  t.same(await rename(admin, { 'if-match': '*' }), [], 'not where If-Match says that the caller has seen it')
  const put = async (as: string, value: string) => {
    const body = { custom_headers: [{ key: 'X-A', value }] }
    return warningsOf(await call('PUT', '/admin/tool/custom/10', { token: as, body }))
  }
  await put(await token('gcurator@example.com'), '1')
  const ofTool = /^field custom_headers overwrites a change that gcurator@example\.com made \d+ s ago$/
  t.match(await put(admin, '2'), [GOES, ofTool])
})

t.test('200 with Warning, or 422 and 403 under strict handling: fields that are ignored or kept', async t => {
  const { call, database, alice, admin } = await worldApp(t)
  const hashed = await hashOfEverything(database.db)
  const whole = { ...REQUIRED_FIELDS, document_set_ids: [1, 2] }
  const dry = (body: object, headers = {}) =>
    call('PATCH', '/persona/11?dry_run=true', { token: alice, body: { ...whole, ...body }, headers })
  const strict = { prefer: 'handling=strict' }

  t.test('200 an unknown field is named in a Warning', async t => {
    const { statusCode, headers } = await dry({ system_promt: 'typo' })
    t.strictSame([statusCode, headers.warning], [200, '299 - "unknown field system_promt was ignored"'])
    t.notOk('preference-applied' in headers)
  })
  t.test('200 what a name holds cannot break the header', async t => {
    const names = ['é\r\nX-Evil: 1', 'a"b\\c', '名前', 'x'.repeat(500), '\u0001', '']
    for (const name of names) {
      const { statusCode, headers } = await dry({ [name]: 1 })
      t.strictSame([statusCode, headers['x-evil']], [200, undefined])
      t.match(headers.warning, /^299 - "unknown field [\x20-\x21\x23-\x5b\x5d-\x7e]* was ignored"$/)
      t.ok(String(headers.warning).length < 120)
    }
  })
  t.test('200 unknown fields inside records are named with their place', async t => {
    const body = { starter_messages: [{ name: 'a', message: 'b', extra: 1, mesage: 2 }] }
    t.same(warningsOf(await dry(body)), [
      'unknown field starter_messages.0.extra was ignored',
      'unknown field starter_messages.0.mesage was ignored',
    ])
    const headers = { custom_headers: [{ key: 'X-A', value: '1', extra: 1 }] }
    const tool = await call('PUT', '/admin/tool/custom/10?dry_run=true', { token: admin, body: headers })
    t.same(warningsOf(tool), [GOES, 'unknown field custom_headers.0.extra was ignored'])
  })
  t.test('422 strict handling refuses unknown fields, nested ones too', async t => {
    const answer = await dry({ system_promt: 1, starter_messages: [{ name: 'a', message: 'b', extra: 1 }] }, strict)
    const faults = ['body.system_promt extra_forbidden', 'body.starter_messages.0.extra extra_forbidden']
    t.strictSame(faultsOf(answer), faults)
    t.equal(answer.json().detail[0].msg, 'Extra inputs are not permitted')
    const body = { custom_headers: [{ key: 'X-A', value: '1', extra: 1 }], nam: 'x' }
    const tool = await call('PUT', '/admin/tool/custom/10', { token: admin, body, headers: strict })
    t.strictSame(faultsOf(tool), ['body.custom_headers.0.extra extra_forbidden', 'body.nam extra_forbidden'])
  })
  t.test('200 Preference-Applied answers what was applied, in every spelling', async t => {
    for (const prefer of ['handling=strict', 'Handling = "Strict"', 'respond-async, handling=strict; x=1']) {
      const answer = await dry({}, { prefer })
      t.equal(answer.headers['preference-applied'], 'handling=strict', prefer)
    }
    for (const prefer of ['handling=lenient', 'strict', 'foo; handling=strict']) {
      const { statusCode, headers } = await dry({ unknown: 1 }, { prefer })
      t.strictSame([statusCode, headers['preference-applied']], [200, undefined], prefer)
    }
    const put = { token: admin, body: {}, headers: strict }
    t.equal((await call('PUT', '/admin/tool/custom/10', put)).headers['preference-applied'], 'handling=strict')
  })
  t.test('nothing of all this was stored', async t => {
    t.same(await hashOfEverything(database.db), hashed)
  })
})

t.test('200 with Warning, or 422 under strict handling: a null that does not clear what is stored', async t => {
  const { call, admin } = await worldApp(t)
  const patch = async (body: object, headers = {}, query = '') =>
    await call('PATCH', `/persona/1${query}`, { token: admin, body: { ...REQUIRED_FIELDS, ...body }, headers })
  const set = { label_ids: [1], uploaded_image_id: 'image', display_priority: 4 }
  const stored = await patch(set)
  t.equal(stored.statusCode, 200, stored.body)
  const seen = { 'if-match': String(stored.headers.etag) }
  const nulls = { label_ids: null, uploaded_image_id: null, display_priority: null, user_file_ids: null }
  t.same(warningsOf(await patch(nulls)), [], 'as the published web form sends on each save, without a tag')
  const told = await patch(nulls, seen)
  t.equal(told.headers.etag, stored.headers.etag)
  const named = ['uploaded_image_id', 'label_ids', 'display_priority'] // `user_file_ids` is already empty
  const advice = 'was kept, because null keeps the value. To clear the field, name it in update_mask'
  t.equal(warningsOf(told).join(), named.map(name => `field ${name} ${advice}`).join())
  t.same(warningsOf(await patch({ uploaded_image_id: null, remove_image: true }, seen, '?dry_run=true')), [])
  const refused = faultsOf(await patch(nulls, { prefer: 'handling=strict' }))
  t.equal(refused.join(), named.map(name => `body.${name} null_keeps`).join())
  const cleared = await patch(nulls, { ...seen, prefer: 'handling=strict' }, `?update_mask=${Object.keys(nulls)}`)
  t.equal(cleared.statusCode, 200, cleared.body)
  t.match(cleared.json(), { labels: [], uploaded_image_id: null, display_priority: null })
  t.same(warningsOf(await patch(nulls, { 'if-match': String(cleared.headers.etag) })), [], 'nothing is stored')
})

const MINIMAL = { prefer: 'return=minimal' }
const AGENT = '/persona/1?update_mask=description'
const TOOL = '/admin/tool/custom/10'

t.test('204 with the tag of the stored version; all else is as without the preference', async t => {
  const { call, database, admin } = await worldApp(t)
  const update = (method: string, url: string, body: object, headers: object = MINIMAL) =>
    call(method, url, { token: admin, body, headers: { ...headers } })
  for (const [method, url, read] of [
    ['PATCH', AGENT, '/persona/1'],
    ['PUT', TOOL, '/tool/10'],
  ] as const) {
    const first = await update(method, url, { description: 'minimal', nme: 1 })
    t.strictSame([first.statusCode, first.body, first.headers['content-type']], [204, '', undefined])
    const applied = { 'preference-applied': 'return=minimal' }
    t.match(first.headers, { ...applied, warning: /unknown field nme was ignored/ })
    const shown = await call('GET', read, { token: admin })
    t.equal(shown.json().description, 'minimal')
    const tag = String(first.headers.etag)
    t.equal(String(shown.headers.etag).split('.')[0], tag.slice(0, -1))
    const old = { ...MINIMAL, 'if-match': tag.replace(/\d+"$/, '1"') }
    const again = await update(method, url, { description: 'minimal' }, old)
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
})
