import t from 'tap'
import { type Running, running } from './running.js'

t.test('a dry run is one whose decoded query says so', async t => {
  const { app, token, database } = await running(t)
  await database.close()
  const outcome = async (query: string) => {
    const headers = { authorization: `Bearer ${token}`, 'idempotency-key': '"a"' }
    const answer = await app.inject({ method: 'PATCH', url: `/persona/1${query}`, headers, payload: {} })
    return answer.json().outcome
  }
  for (const query of ['dry_run=true', 'dry%5Frun=true', 'a=b&dry_run=%74rue', 'update_mask=&dry%5frun=true'])
    t.equal(await outcome(`?${query}`), 'not_applied', query)
  for (const query of ['', '?', '?dry_run=false', '?x=dry_run=true', '?dry_run=true&dry_run=true'])
    t.equal(await outcome(query), 'unknown', query)
})

t.test('an empty Content-Type is one that is absent, and an address without an id is 404', async t => {
  const { app, token } = await running(t)
  const send = async (url: string, headers: Record<string, string>) => {
    const all = { authorization: `Bearer ${token}`, ...headers }
    return (await app.inject({ method: 'PATCH', url, headers: all, payload: '{}' })).statusCode
  }
  const url = '/persona/999999?dry_run=true&update_mask='
  t.equal(await send(url, { 'content-type': '' }), 404, 'read as JSON: the agent is not there')
  t.equal(await send(url, { 'content-type': 'application/merge-patch+json' }), 404)
  t.equal(await send(url, { 'content-type': 'text/plain' }), 415)
  t.equal(await send('/persona/', { 'content-type': 'application/json' }), 404)
  t.equal(await send('/persona/?update_mask=', { 'content-type': 'application/json' }), 404)
})

t.test('422 for a body in UTF-16, whatever its charset says: JSON is UTF-8', async t => {
  const { app, token } = await running(t)
  for (const [text, start] of [['{"name":"x"}', []] as const, ['{"name":"x"}', [0xff, 0xfe]] as const]) {
    const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json; charset=utf-16' }
    const payload = Buffer.concat([Buffer.from(start), Buffer.from(text, 'utf16le')])
    const answer = await app.inject({ method: 'PATCH', url: '/persona/1?update_mask=name', headers, payload })
    t.match(answer, { statusCode: 422 })
    t.match(answer.json(), { detail: [{ type: 'json_invalid' }] })
  }
})

t.test('X-Onyx-Authorization is read before Authorization where the operator says so, and nowhere else', async t => {
  const [off, on] = [await running(t), await running(t, { X_ONYX_AUTHORIZATION: 'on' })]
  const status = async ({ app }: Running, headers: Record<string, string>) =>
    (await app.inject({ url: '/me', headers })).statusCode
  const basic = { authorization: 'Basic cHJveHk6cHJveHk=' }
  t.equal(await status(on, { ...basic, 'x-onyx-authorization': `Bearer ${on.token}` }), 200)
  t.equal(await status(on, { authorization: `Bearer ${on.token}` }), 200)
  t.equal(await status(on, { authorization: `Bearer ${on.token}`, 'x-onyx-authorization': 'Bearer x' }), 401)
  t.equal(await status(off, { ...basic, 'x-onyx-authorization': `Bearer ${off.token}` }), 401)
  t.equal(await status(off, { authorization: `Bearer ${off.token}`, 'x-onyx-authorization': 'Bearer x' }), 200)
})

t.test('the servers of the document are relative to it', async t => {
  const { app } = await running(t)
  t.strictSame((await app.inject('/openapi.json')).json().servers, [{ url: '.' }])
})
