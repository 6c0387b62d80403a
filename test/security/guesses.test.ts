import type { LightMyRequestResponse } from 'fastify'
import t from 'tap'
import { makeLogger } from '../../src/http/logging.js'
import { worldApp } from '../app.js'
import { saysItsLimit } from '../http/running.js'

/*
 * Who may manage a tool could try guesses of its stored header values: the answer to a dry run, or to a stale If-Match, tells
 * whether a guess is right. Each different one is counted and logged (DECISIONS section 5).
 */
const TOOL = 10
const log: string[] = []
const world = await worldApp(t, { HEADER_TRIALS_PER_HOUR: '11' }, makeLogger('info', { write: line => log.push(line) }))
const admin = await world.token('admin@example.com')
const other = await world.token('admin@example.com')
const second = await world.token('gcurator@example.com')
const stranger = await world.token('alice@example.com')

interface Sent {
  query?: string
  headers?: Record<string, string>
  token?: string
  tool?: number
}

const guess = (value: string, { query = '?dry_run=true', headers = {}, token = admin, tool = TOOL }: Sent = {}) =>
  world.call('PUT', `/admin/tool/custom/${tool}${query}`, {
    token,
    headers,
    body: { custom_headers: [{ key: 'X-Key', value }] },
  })

const isLimited = ({ statusCode, headers }: LightMyRequestResponse) =>
  statusCode === 429 && Number(headers['retry-after']) > 3_000

t.test('429: a user has eleven different guesses an hour at a tool, in whatever way they are sent', async t => {
  const stored = await guess('the-secret', { query: '' })
  t.equal(stored.statusCode, 200)
  const mask: string = stored.json().custom_headers[0].value
  for (let i = 0; i < 20; i++) t.equal((await guess(`of a stranger ${i}`, { token: stranger })).statusCode, 403)
  for (let i = 0; i < 5; i++) t.equal((await guess(`guess ${i}`)).statusCode, 200, 'by dry run')
  const stale = { query: '', headers: { 'if-match': '"tool-10-1"' } }
  for (let i = 5; i < 10; i++) t.equal((await guess(`guess ${i}`, stale)).statusCode, 412, 'by a stale precondition')
  const refused = await guess('guess 10')
  t.ok(isLimited(refused), 'another one')
  t.equal(refused.headers['ratelimit-policy'], '"header-values";q=11;w=3600')
  t.match(refused.headers.ratelimit, /^"header-values";r=0;t=\d+$/)
  saysItsLimit(t, refused.headers, refused.json())
  t.ok(isLimited(await guess('guess 11', stale)))
  t.ok(isLimited(await guess('guess 12', { query: '' })), 'also one that would be stored')
  t.ok(isLimited(await guess('guess 13', { token: other })), 'by another token of theirs')
  t.equal((await guess('guess 13', { token: second })).statusCode, 200, 'another user has their own')
  t.equal((await guess('the-secret')).statusCode, 200, 'what was sent before says nothing new')
  t.equal((await guess('guess 1')).statusCode, 200)
  t.equal((await guess(mask)).statusCode, 200, 'a mask is no guess')
  t.equal((await guess('guess 14', { tool: 11 })).statusCode, 200, 'another tool has its own')
  const lines = log.map(line => JSON.parse(line)).filter(({ msg }) => msg === 'header values in clear text')
  t.equal(lines.filter(({ resource_id }) => resource_id === TOOL).length, 14, 'each leaves a line')
  t.match(lines[1], { resource_id: TOOL, sets: 2, dry_run: true, caller: /^[0-9a-f-]{36}$/ })
  t.notMatch(log.join(''), /the-secret|guess 1/)
})
