import type { LightMyRequestResponse } from 'fastify'
import t from 'tap'
import { REQUIRED_FIELDS, worldApp } from '../app.js'

/*
 * Whether a private agent exists shows in no answer: every route that takes an agent's id answers alike for one that the caller
 * does not see and for one that is not there, in status, every header and body. Its time is that of the other within what
 * reading one state takes: a second look would take twice as long.
 */
const MISSING = 999_999
const ALSO_MISSING = 999_998
const PRIVATE = 3
const ROUNDS = 25

const world = await worldApp(t)
const alice = await world.token('alice@example.com')
const manager = await world.token('curator@example.com')

interface Request {
  method: string
  query: string
  body?: object
  headers?: Record<string, string>
}

const REQUESTS: Request[] = [
  { method: 'GET', query: '' },
  { method: 'HEAD', query: '' },
  { method: 'GET', query: '', headers: { 'if-none-match': '*' } },
  { method: 'GET', query: '?version=1' },
  { method: 'GET', query: '?at=2020-01-01T00:00:00Z' },
  { method: 'PATCH', query: '', body: REQUIRED_FIELDS },
  { method: 'PATCH', query: '?update_mask=name', body: { name: 'x' } },
  { method: 'PATCH', query: '?update_mask=&dry_run=true', body: {} },
  { method: 'PATCH', query: '?update_mask=name', body: { name: 'x' }, headers: { 'idempotency-key': '"one"' } },
  { method: 'PATCH', query: '?update_mask=name', body: { name: 'x' }, headers: { 'if-match': '"persona-3-1"' } },
  {
    method: 'PATCH',
    query: '?update_mask=name',
    body: { name: 'x' },
    headers: { 'if-match': '"persona-3-1"', prefer: 'merge=fields' },
  },
  { method: 'DELETE', query: '' },
]

const ask = ({ method, query, body, headers = {} }: Request, id: number, token: string) =>
  world.call(method, `/persona/${id}${query}`, {
    token,
    headers: { 'x-request-id': 'same', ...headers },
    ...(body !== undefined && { body }),
  })

/** Everything of an answer but the clocks and what is left of quotas. */
function whole({ statusCode, headers, body }: LightMyRequestResponse): object {
  const { date: _, 'token-expires-at': __, ratelimit: ___, ...others } = headers
  return { statusCode, others, body }
}

t.test('alike: an agent that the caller does not see, and one that is not there, on every route', async t => {
  for (const token of [alice, manager]) {
    for (const request of REQUESTS) {
      const title = `${request.method} ${request.query} ${JSON.stringify(request.headers ?? {})}`
      const missing = await ask(request, MISSING, token)
      t.notMatch(String(missing.statusCode), /^[25]/, title)
      t.strictSame(whole(await ask(request, PRIVATE, token)), whole(missing), title)
      t.strictSame(whole(await ask(request, ALSO_MISSING, token)), whole(missing), `${title}: the control`)
    }
  }
})

t.test('the times of both, and of two that are not there, one after the other', async t => {
  for (const request of REQUESTS.slice(0, 7)) {
    const times = new Map<number, number[]>([PRIVATE, MISSING, ALSO_MISSING].map(id => [id, []]))
    for (let round = 0; round < ROUNDS; round++) {
      for (const [id, taken] of times) {
        const start = performance.now()
        await ask(request, id, alice)
        taken.push(performance.now() - start)
      }
    }
    const [unseen = 0, missing = 0, control = 0] = [...times.values()].map(median)
    t.ok(unseen < 2 * Math.max(missing, control), `${request.method} ${request.query}`)
    t.comment(`${request.method} ${request.query}: private ${unseen} ms, missing ${missing} ms, control ${control} ms`)
  }
})

function median(times: number[]): number {
  return Number((times.sort((a, b) => a - b)[Math.floor(times.length / 2)] ?? 0).toFixed(2))
}
