import { gzipSync } from 'node:zlib'
import t from 'tap'
import { worldApp } from '../app.js'

const BODY = '{"description":"as it came"}'
const PATH = '/persona/1?update_mask=description'

t.test('200: a body without a Content-Type is read as JSON, on every operation', async t => {
  const { app, token } = await worldApp(t)
  const authorization = `Bearer ${await token('admin@example.com')}`
  const send = (method: 'PATCH' | 'PUT' | 'POST', url: string, payload: string, headers = {}) =>
    app.inject({ method, url, payload, headers: { authorization, ...headers } })
  const patched = await send('PATCH', PATH, BODY)
  t.equal(patched.statusCode, 200, patched.body)
  t.equal(patched.json().description, 'as it came')
  t.equal((await send('PUT', '/admin/tool/custom/10', BODY)).statusCode, 200)
  const invalid = await send('POST', '/admin/tool/custom/validate', '{"definition":1}')
  t.strictSame(invalid.json().detail, [
    { loc: ['body', 'definition'], msg: 'Input should be a valid dictionary', type: 'dict_type' },
  ])
  t.strictSame((await send('PATCH', PATH, '')).json().detail[0].type, 'missing')
  t.strictSame((await send('PATCH', PATH, '{')).json().detail[0].type, 'json_invalid')
  t.equal((await send('PATCH', PATH, BODY, { 'content-encoding': 'identity' })).statusCode, 200)
})

t.test('415 for another media type, and for a content coding, with the header that says what is read', async t => {
  const { app, token } = await worldApp(t)
  const authorization = `Bearer ${await token('admin@example.com')}`
  const send = (headers: Record<string, string>, payload: string | Buffer = BODY, url = PATH) =>
    app.inject({ method: 'PATCH', url, payload, headers: { authorization, ...headers } })
  for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x', 'json']) {
    const answer = await send({ 'content-type': type })
    t.equal(answer.statusCode, 415, type)
    t.equal(answer.json().error_code, 'UNSUPPORTED_MEDIA_TYPE')
  }
  const form = await send({ 'content-type': 'application/x-www-form-urlencoded' }) // as curl sends with -d alone
  t.equal(form.headers.accept, 'application/json')
  t.match(form.json().detail, /with the header Content-Type: application\/json\.$/)
  const json = { 'content-type': 'application/json' }
  const codings: [string, string | Buffer][] = [
    ['gzip', gzipSync(BODY)],
    ['gzip', BODY],
    ['br', BODY],
    ['identity, gzip', BODY],
    ['identity;q=1', BODY],
  ]
  for (const [coding, payload] of codings) {
    const answer = await send({ ...json, 'content-encoding': coding }, payload)
    t.equal(answer.statusCode, 415, coding)
    t.equal(answer.headers['accept-encoding'], 'identity')
  }
  t.equal((await send({ 'content-encoding': 'gzip' }, gzipSync(BODY))).statusCode, 415, 'without a media type too')
  const nowhere = await send({ 'content-type': 'text/plain' }, BODY, '/nowhere')
  t.equal(nowhere.statusCode, 404, 'an address that is not there is just that')
  const read = await app.inject({ url: '/persona/1', headers: { authorization } })
  t.equal(read.json().description === 'as it came', false, 'nothing was stored')
})

t.test('422 key_forbidden stands among the other faults in their places, and hides none', async t => {
  const { call, token } = await worldApp(t)
  const admin = await token('admin@example.com')
  const faults = async (method: string, url: string, body: string, headers = {}) => {
    const answer = await call(method, url, { token: admin, body, headers })
    t.equal(answer.statusCode, 422, answer.body)
    return answer.json().detail.map(({ loc, type }: { loc: unknown[]; type: string }) => `${loc.join('.')} ${type}`)
  }
  const agent = `{"__proto__":1,"task_prompt":2,"name":3,
    "starter_messages":[{"name":4,"message":""},{"name":"a","message":"b","constructor":{"prototype":1}},{"name":5,"message":""}]}`
  const mask = 'update_mask=name,task_prompt,starter_messages'
  t.strictSame(await faults('PATCH', `/persona/x?${mask}&page=1`, agent), [
    'path.persona_id int_parsing',
    'query.page extra_forbidden',
    'body.name string_type',
    'body.task_prompt string_type',
    'body.starter_messages.0.name string_type',
    'body.starter_messages.1.constructor.prototype key_forbidden',
    'body.starter_messages.2.name string_type',
    'body.__proto__ key_forbidden',
  ])
  const strict = { prefer: 'handling=strict' }
  t.strictSame(await faults('PATCH', '/persona/1?update_mask=name', '{"__proto__":1,"nme":1,"name":""}', strict), [
    'body.name string_too_short',
    'body.nme extra_forbidden',
    'body.__proto__ key_forbidden',
  ])
  const tool = '{"passthrough_auth":1,"definition":{"paths":{"__proto__":{},"/a":{"__proto__":{}}}},"name":""}'
  t.strictSame(await faults('PUT', '/admin/tool/custom/10', tool), [
    'body.name string_too_short',
    'body.definition.paths.__proto__ key_forbidden',
    'body.definition.paths./a.__proto__ key_forbidden',
    'body.passthrough_auth bool_type',
  ])
})
