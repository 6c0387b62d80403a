import { sql } from 'kysely'
import t from 'tap'
import { pruneHistory } from '../../src/updates/prune.js'
import { worldApp } from '../app.js'
import { DEFINITION } from '../matrix-organisation.js'
import { auditRows, faultsOf, newPerson } from './stored-state.js'

const { call, token, database, admin: alice } = await worldApp(t)
await newPerson(database, 'second@example.com', 'manage:actions')
const bob = await token('second@example.com')

type Sent = { key?: string; by?: string; query?: string; headers?: Record<string, string> }

const PLACES = {
  agent: { method: 'PATCH', url: '/persona/1', kind: 'persona', id: 1, mask: true },
  tool: { method: 'PUT', url: '/admin/tool/custom/10', kind: 'tool', id: 10, mask: false },
} as const

type Place = (typeof PLACES)[keyof typeof PLACES]

function sendTo(place: Place, body: object, { key, by = alice, query = '', headers = {} }: Sent = {}) {
  const mask = place.mask ? `update_mask=${Object.keys(body)}` : ''
  const sent = { ...headers, ...(key !== undefined && { 'idempotency-key': key }) }
  return call(place.method, `${place.url}?${[mask, query].filter(Boolean).join('&')}`, {
    token: by,
    body,
    headers: sent,
  })
}

for (const [name, place] of Object.entries(PLACES)) {
  const send = (body: object, sent?: Sent) => sendTo(place, body, sent)
  const tag = async () => String((await send({}, { query: 'dry_run=true' })).headers.etag)
  const rowsOf = async () => (await auditRows(database.db, place.kind, place.id)).length

  t.test(`200 again for a repetition, without a second effect, also after somebody else's edit: ${name}`, async t => {
    const first = await send({ description: 'once' }, { key: `"first-1-${name}"` })
    t.strictSame([first.statusCode, first.headers['idempotent-replayed']], [200, undefined])
    const rows = await rowsOf()
    t.equal((await send({ description: 'by another', name: 'Other' })).statusCode, 200)
    const replayed = { statusCode: 200, headers: { 'idempotent-replayed': 'true', etag: first.headers.etag } }
    for (const key of [`"first-1-${name}"`, `first-1-${name}`]) {
      const again = await send({ description: 'once' }, { key })
      t.match(again, replayed, 'the bare form is the same key')
      t.match(again.json(), { name: 'Other', description: 'by another' }, 'the record as it is')
    }
    t.equal(await rowsOf(), rows + 1)
  })

  t.test(`422 for another request with the same key; a dry run has none: ${name}`, async t => {
    t.equal((await send({ description: 'keyed' }, { key: `"k-2-${name}"` })).statusCode, 200)
    const other = await send({ description: 'another' }, { key: `"k-2-${name}"` })
    t.strictSame(faultsOf(other), ['header.idempotency-key idempotency_key_reused'])
    const dry = await send({ description: 'another' }, { key: `"k-2-${name}"`, query: 'dry_run=true' })
    t.strictSame([dry.statusCode, dry.headers['idempotent-replayed']], [200, undefined])
    const key = `"k-3-${name}"`
    t.equal((await send({ description: 'of a dry run' }, { key, query: 'dry_run=true' })).statusCode, 200)
    t.equal((await send({ description: 'not of it' }, { key })).statusCode, 200)
  })

  t.test(`a refused request keeps no key: ${name}`, async t => {
    const stale = { key: `"k-4-${name}"`, headers: { 'if-match': `"${place.kind}-${place.id}-1"` } }
    t.equal((await send({ description: 'refused' }, stale)).statusCode, 412)
    t.equal((await send({ description: 'something else' }, { key: `"k-4-${name}"` })).statusCode, 200)
  })

  t.test(`200 again where the first changed nothing, also after somebody else's edit: ${name}`, async t => {
    t.equal((await send({ description: 'already' })).statusCode, 200)
    const minimal = { prefer: 'return=minimal' }
    const stale = { 'if-match': `"${place.kind}-${place.id}-1"`, ...minimal }
    const ways: Record<string, string>[] = [{}, { 'if-match': await tag() }, { 'if-match': '*' }, minimal, stale]
    for (const [index, headers] of ways.entries()) {
      await send({ description: 'already' })
      const sent = { key: `"k-0-${name}-${index}"`, headers }
      const first = await send({ description: 'already' }, sent)
      const status = headers === minimal ? 204 : 200
      t.strictSame([first.statusCode, first.headers['idempotent-replayed']], [status, undefined], first.body)
      t.notMatch(first.headers.warning ?? '', /Idempotency-Key/)
      t.equal((await send({ description: `by another ${index}` })).statusCode, 200)
      const [rows, read] = [await rowsOf(), await tag()]
      const again = await send({ description: 'already' }, sent)
      t.match(again, {
        statusCode: 'prefer' in headers ? 204 : 200,
        headers: { etag: first.headers.etag, 'idempotent-replayed': 'true' },
      })
      if (again.statusCode === 200) t.equal(again.json().description, `by another ${index}`, 'the record as it is')
      t.match([await rowsOf(), await tag()], [rows, read], 'nothing is overwritten')
      const other = await send({ description: 'another' }, sent)
      t.strictSame(faultsOf(other), ['header.idempotency-key idempotency_key_reused'])
    }
    const reading = { key: `"k-r-${name}"` }
    const read = await send({}, reading)
    await send({ description: 'after the read' })
    t.equal((await send({}, reading)).headers.etag, read.headers.etag, 'one that names no field is no exception')
  })
}

t.test('keys of updates that changed nothing are kept as long as audit rows', async t => {
  const agent = await sendTo(PLACES.agent, { tool_ids: [10] })
  await sendTo(PLACES.tool, { description: 'before' })
  const first = await sendTo(PLACES.agent, { tool_ids: [10] }, { key: '"kept"' })
  t.match(first.json().tools, [{ description: 'before' }])
  t.equal(first.headers.etag, agent.headers.etag)
  await sendTo(PLACES.tool, { description: 'after' })
  const again = await sendTo(PLACES.agent, { tool_ids: [10] }, { key: '"kept"' })
  t.match(again.headers, { etag: first.headers.etag, 'idempotent-replayed': 'true' })
  const prune = () => pruneHistory(database.db, { auditRetentionDays: 400, versionsMax: 100 })
  const kept = async () => (await database.db.selectFrom('request_key').select('version').execute()).length
  const count = await kept()
  await prune()
  t.equal(await kept(), count)
  await sql`update request_key set at = at - interval '401 days'`.execute(database.db)
  await prune()
  t.equal(await kept(), 0)
  t.equal((await sendTo(PLACES.agent, { tool_ids: [] }, { key: '"kept"' })).statusCode, 200, 'the key is free again')
})

t.test('422 for the same body under the same key with another update_mask', async t => {
  const body = { name: 'of a mask', description: 'of a mask' }
  const patch = (mask: string) =>
    call('PATCH', `/persona/1?update_mask=${mask}`, { token: alice, body, headers: { 'idempotency-key': '"mask"' } })
  t.equal((await patch('name')).statusCode, 200)
  for (const mask of ['description', 'name,description', ''])
    t.strictSame(faultsOf(await patch(mask)), ['header.idempotency-key idempotency_key_reused'], mask)
  t.equal((await patch('name')).headers['idempotent-replayed'], 'true')
})

t.test('422 for another header value under the same key; keys of two people are two keys', async t => {
  const put = (value: string) => sendTo(PLACES.tool, { custom_headers: [{ key: 'X', value }] }, { key: '"secret"' })
  const first = await put('one')
  t.equal(first.statusCode, 200)
  t.strictSame(faultsOf(await put('two')), ['header.idempotency-key idempotency_key_reused'])
  t.match(await put('one'), { statusCode: 200, headers: { etag: first.headers.etag, 'idempotent-replayed': 'true' } })
  for (const id of ['gone', null]) {
    const lost = sql`update request_key set key_id = ${id} where key_id is not null or ${id}::text is null`
    await lost.execute(database.db)
    t.strictSame(faultsOf(await put('one')), ['header.idempotency-key idempotency_key_reused'], 'a lost key, or 2.1')
  }
  const mine = await sendTo(PLACES.tool, { name: 'mine' }, { key: '"shared"' })
  const his = await sendTo(PLACES.tool, { name: 'his' }, { key: '"shared"', by: bob })
  t.match([mine.statusCode, his.statusCode], [200, 200])
  t.not(mine.headers.etag, his.headers.etag)
})

t.test('200 again for a definition that is refused by now', async t => {
  const form = { requestBody: { content: { 'text/csv': { schema: { type: 'string' } } } } }
  const upload = { post: { operationId: 'upload', summary: 'Upload', ...form } }
  const definition = { ...DEFINITION, paths: { ...DEFINITION.paths, '/upload': upload } }
  const put = (headers = {}) => sendTo(PLACES.tool, { definition }, { key: '"passed over"', headers })
  t.equal((await put()).statusCode, 200)
  const again = await put({ prefer: 'handling=strict' })
  t.match(again, { statusCode: 200, headers: { 'idempotent-replayed': 'true' } }, again.body)
})

t.test('422 for what is not a key, 403 for a repetition without the right', async t => {
  for (const key of ['""', '"a', 'a b', 'a,', '"a";b=1', 'ä', `"${'x'.repeat(256)}"`, '"\\x"']) {
    const answer = await sendTo(PLACES.agent, { name: 'n' }, { key: Buffer.from(key).toString('latin1') })
    t.strictSame(faultsOf(answer), ['header.idempotency-key string_pattern_mismatch'], key)
  }
  const put = () => sendTo(PLACES.tool, { name: 'kept' }, { key: `"${'\\"'.repeat(255)}"`, by: bob })
  t.equal((await put()).statusCode, 200)
  t.equal((await put()).headers['idempotent-replayed'], 'true')
  await sql`update user_account set permissions = '{basic}' where email = 'second@example.com'`.execute(database.db)
  t.equal((await put()).statusCode, 403)
})
