import { sql } from 'kysely'
import t from 'tap'
import { eventually, untilPublished, untilWaiting } from '../eventually.js'
import { inWork, RawConnection, running, saysItsLimit, tokenOf, whenInWork } from '../http/running.js'

/* Requests that wait for changes do not hold resources that other requests need. */

const PATIENT = { LOCK_TIMEOUT_MS: '600000', STATEMENT_TIMEOUT_MS: '600000' }
const SETTINGS = { DATABASE_POOL_SIZE: '4', CONCURRENT_REQUESTS_MAX: '20', ...PATIENT }
const service = await running(t, SETTINGS, { listen: true })
const { app, call, database, port, service: life } = service
const { db, pool } = database

let people = 0
const newToken = () => tokenOf(database, { email: `waiting+${++people}@example.com` })

async function cursor(): Promise<string> {
  return (await call('GET', '/changes', { token: service.token })).json().next
}

const wait = (token: string, after: string, seconds = 60) =>
  call('GET', `/changes?after=${after}&wait=${seconds}`, { token })

/** Waits for a change. Repeats the request if it ends without one or gets 503, which can happen on a busy machine. */
async function changed(token: string, after: string) {
  for (;;) {
    const { statusCode, json } = await wait(token, after)
    if (statusCode !== 503 && (statusCode !== 200 || json().changes.length > 0)) return { statusCode, json }
  }
}

const change = (agent: number, description: string) =>
  call('PATCH', `/persona/${agent}?update_mask=description`, { token: service.token, body: { description } })

/** Returns a connection whose request waits for changes. As long as it waits, another waiting request with the same token is refused. */
async function waitingConnection(token: string, after: string): Promise<RawConnection> {
  const line = `GET /changes?after=${after}&wait=60 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${token}\r\n\r\n`
  for (;;) {
    const before = await inWork(service)
    const connection = new RawConnection(port).write(line)
    await whenInWork(service, before + 1)
    await call('GET', '/me', { token: service.token }) // lets the request begin to wait
    await eventually(async () => (await wait(token, after, 1)).statusCode === 429 || connection.text !== '')
    if (connection.text === '') return connection
    connection.socket.destroy()
  }
}

t.test('200 requests wait without a connection or a place, and the next change answers each', async t => {
  const [token, another, after] = [await newToken(), await newToken(), await cursor()]
  const waiting = [changed(token, after)]
  while (waiting.length < 200) {
    waiting.push(changed(await newToken(), after))
    await call('GET', '/me', { token: service.token }) // lets the earlier requests begin to wait, so that few are in progress
  }
  const isFull = async () =>
    /^At most 200 requests can wait for changes/.test((await wait(another, after, 1)).json().detail)
  await eventually(isFull)
  const second = await wait(token, after)
  t.strictSame(
    [second.statusCode, second.headers['ratelimit-policy']],
    [429, '"token-waiting";q=1;qu="concurrent-requests"'],
  )
  saysItsLimit(t, second)
  await eventually(() => pool.totalCount === pool.idleCount && pool.waitingCount === 0)
  t.equal((await call('GET', '/me', { token })).statusCode, 200, 'its token may do all else')
  t.equal((await change(2, 'that all wait for')).statusCode, 200)
  for (const { statusCode, json } of await Promise.all(waiting))
    t.match([statusCode, json()], [200, { changes: [{ kind: 'persona', id: 2, action: 'updated' }] }])
})

t.test('the answer is empty when the time is over; what the caller does not see ends no wait', async t => {
  const [token, after] = [await newToken(), await cursor()]
  await db
    .updateTable('user_account')
    .set({ permissions: [] })
    .where('email', '=', `waiting+${people}@example.com`)
    .execute()
  t.strictSame((await wait(token, after, 1)).json(), { changes: [], next: after })
  await change(1, 'private')
  await eventually(async () => {
    const { changes, next } = (await wait(token, after, 1)).json()
    t.strictSame(changes, [])
    return next !== after
  })
})

t.test('a request whose turn does not come reads when its time is over', async t => {
  const [slow, late, after] = [await newToken(), await newToken(), await cursor()]
  await change(2, 'stored before the wait')
  await untilPublished(db)
  const holding = await db.startTransaction().execute()
  await sql`lock table proposal in access exclusive mode`.execute(holding)
  const reading = wait(slow, after)
  await untilWaiting(db)
  const answer = wait(late, after, 1)
  await Promise.race([answer, untilWaiting(db, 2)])
  await holding.rollback().execute()
  for (const { statusCode, json } of [await answer, await reading])
    t.match([statusCode, json()], [200, { changes: [{ kind: 'persona', id: 2, action: 'updated' }] }])
})

t.test('401 for a token that is revoked while it waits', async t => {
  const [token, after] = [await newToken(), await cursor()]
  const waiting = wait(token, after)
  const { id } = (await call('GET', '/me', { token })).json().token
  await db.updateTable('token').set({ revoked_at: new Date().toISOString() }).where('id', '=', id).execute()
  await change(2, 'after the revocation')
  t.equal((await waiting).statusCode, 401)
})

t.test('200 within a few seconds for a token whose client left', async () => {
  const [token, after] = [await newToken(), await cursor()]
  const gone = await waitingConnection(token, after)
  gone.socket.destroy()
  await eventually(async () => (await wait(token, after, 1)).statusCode === 200)
})

t.test('a service that shuts down ends all waits', async t => {
  const waiting = await waitingConnection(service.token, await cursor())
  life.drain()
  t.match(await waiting.until(/\}$/), /"changes":\[\]/)
  await app.close()
})
