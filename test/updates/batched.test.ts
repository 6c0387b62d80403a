import { sql } from 'kysely'
import t from 'tap'
import { definitionOf } from '../../bench/world.js'
import { verifyAudit } from '../../src/admin/audit-verification.js'
import { readConfig } from '../../src/config.js'
import { parseDatabaseUrl } from '../../src/db/connection/database-url.js'
import { openUrl } from '../../src/db/open.js'
import { appOver, type WorldApp, worldApp } from '../app.js'
import { TcpProxy } from '../db/tcp-proxy.js'
import { worldDatabase } from '../world.js'
import { auditRows, storedAgent, storedTool } from './stored-state.js'

/*
 * Updates that are asked in the same turn of the event loop are written by one statement. `inject` asks them so: each test
 * below holds what must then be as if each had been written alone.
 */

const AGENTS = [1, 2, 3, 4, 5, 8, 9, 10]
const TOOLS = [10, 11, 12, 13, 15, 16, 17, 20]

const ROUNDS_MAX = 20

const isPooled = process.env.TEST_POOLER_URL !== undefined

t.test('200 for updates of many agents at once: few statements, each its own answer and audit row', async t => {
  const world = await worldApp(t)
  const token = await world.token('admin@example.com')
  const update = (round: number) =>
    Promise.all(
      AGENTS.map(id =>
        world.call('PATCH', `/persona/${id}?update_mask=description`, {
          token,
          body: { description: `of ${id} in ${round}` },
          headers: { 'x-request-id': `request-${id}-${round}` },
        }),
      ),
    )
  await update(0) // notes the token's first use
  // On a busy machine the requests of a round may come apart: what must happen is that some round shares statements.
  let round = 0
  let roundTrips = Number.POSITIVE_INFINITY
  let answers: Awaited<ReturnType<typeof update>> = []
  while (roundTrips >= AGENTS.length && round < ROUNDS_MAX) {
    round += 1
    const before = { ...world.database.counters }
    answers = await update(round)
    roundTrips = world.database.counters.roundTrips - before.roundTrips
  }
  for (const [i, id] of AGENTS.entries()) {
    t.match(answers[i]?.json(), { id, description: `of ${id} in ${round}` })
    t.equal((await storedAgent(world.database.db, id)).description, `of ${id} in ${round}`)
    const last = (await auditRows(world.database.db, 'persona', id)).at(-1)
    t.match(last, { request_id: new RegExp(`^request-${id}-${round}\\.[\\w-]{16}$`), fields: ['description'] })
    t.equal(answers[i]?.headers.etag, `"persona-${id}-${last?.version_after}"`)
  }
  t.ok(roundTrips < AGENTS.length, `${roundTrips} round trips for ${AGENTS.length} updates`)
  t.same((await verifyAudit(world.database.db)).findings, [])
})

t.test('200 for different relations of different agents at once: each gets its own', async t => {
  const world = await worldApp(t)
  const token = await world.token('admin@example.com')
  const update = (id: number, body: object) =>
    world.call('PATCH', `/persona/${id}?update_mask=${Object.keys(body).join(',')}`, { token, body })
  const full = { label_ids: [1, 2, 3], tool_ids: [10, 11, 13], document_set_ids: [1, 2] }
  for (const id of AGENTS) t.equal((await update(id, full)).statusCode, 200)
  // What each keeps is another part.
  const kept = (id: number) => ({ label_ids: [1 + (id % 3)], tool_ids: id % 2 ? [10] : [], document_set_ids: [1] })
  const answers = await Promise.all(AGENTS.map(id => update(id, kept(id))))
  for (const [i, id] of AGENTS.entries()) {
    t.equal(answers[i]?.statusCode, 200, String(answers[i]?.body))
    t.match(await storedAgent(world.database.db, id), kept(id))
    t.match(
      answers[i]?.json().labels.map((label: { id: number }) => label.id),
      kept(id).label_ids,
    )
  }
  t.same((await verifyAudit(world.database.db)).findings, [])
})

t.test('200 for levels of shares that change for several agents at once', async t => {
  const world = await worldApp(t)
  const token = await world.token('admin@example.com')
  const [bob, carol] = await usersOf(world, ['bob@example.com', 'carol@example.com'])
  const share = (id: number, users: unknown[]) =>
    world.call('PATCH', `/persona/${id}?update_mask=users`, { token, body: { users } })
  const agents = AGENTS.filter(id => id !== 3 && id !== 4) // those are Bob's: an owner has no share
  for (const id of agents) await share(id, [bob, carol])
  await sql`update persona_user set level = case when persona_id % 2 = 0 then 'editor' else 'viewer' end`.execute(
    world.database.db,
  )
  const answers = await Promise.all(agents.map(id => share(id, id % 3 ? [bob] : [carol])))
  for (const [i, id] of agents.entries()) {
    t.equal(answers[i]?.statusCode, 200, String(answers[i]?.body))
    const level = id % 2 === 0 ? 'editor' : 'viewer'
    t.same((await storedAgent(world.database.db, id)).users, [`${id % 3 ? bob : carol} ${level}`])
  }
})

t.test('200 for definitions and headers of several tools at once: each gets its own', async t => {
  const world = await worldApp(t)
  const token = await world.token('admin@example.com')
  // Two of each definition, so that one statement stores the same new one twice; 0 to 3 headers each.
  const body = (id: number, round: number) => ({
    name: `tool ${id} ${round}`,
    definition: definitionOf(2 + (id % 4) + round),
    custom_headers: Array.from({ length: (id + round) % 4 }, (_, i) => ({
      key: `X-${i}`,
      value: `${id} ${i} ${round}`,
    })),
  })
  for (const round of [0, 1]) {
    const answers = await Promise.all(
      TOOLS.map(id => world.call('PUT', `/admin/tool/custom/${id}`, { token, body: body(id, round) })),
    )
    for (const [i, id] of TOOLS.entries()) {
      const { name, definition, custom_headers: headers } = body(id, round)
      t.equal(answers[i]?.statusCode, 200, String(answers[i]?.body))
      t.match(answers[i]?.json(), { id, name, definition, custom_headers: headers.map(({ key }) => ({ key })) })
      const stored = await storedTool(world.database.db, id)
      t.equal(stored.definition, JSON.stringify(definition))
      t.match(
        stored.custom_headers ?? [],
        headers.map(({ key }) => ({ name: key })),
      )
      t.equal(((stored.custom_headers ?? []) as unknown[]).length, headers.length)
    }
  }
  t.same((await verifyAudit(world.database.db)).findings, [])
})

t.test('an update that the database refuses fails alone: those beside it are written', async t => {
  const world = await worldApp(t)
  const token = await world.token('admin@example.com')
  await sql`create function refuse() returns trigger language plpgsql as
    $$begin raise exception 'this row is not to be written'; end$$`.execute(world.database.db)
  await sql`create trigger refuse before update on persona for each row when (new.description like '%refuse%')
    execute function refuse()`.execute(world.database.db)
  const texts = AGENTS.map(id => (id === 4 ? 'refuse this' : `written ${id}`))
  const answers = await Promise.all(
    AGENTS.map((id, i) =>
      world.call('PATCH', `/persona/${id}?update_mask=description`, { token, body: { description: texts[i] } }),
    ),
  )
  t.same(
    answers.map(answer => answer.statusCode),
    AGENTS.map(id => (id === 4 ? 500 : 200)),
  )
  for (const [i, id] of AGENTS.entries()) {
    const { description } = await storedAgent(world.database.db, id)
    if (id === 4) t.not(description, texts[i])
    else t.equal(description, texts[i])
  }
  t.same((await verifyAudit(world.database.db)).findings, [])
})

t.test('an update that waits for another lets those beside it through', async t => {
  const world = await worldApp(t)
  const token = await world.token('admin@example.com')
  await world.call('PATCH', '/persona/1?update_mask=label_ids', { token, body: { label_ids: [] } })
  const deleting = await world.database.db.startTransaction().execute()
  await sql`delete from label where id = 3`.execute(deleting)
  let attached = false
  const attaching = world
    .call('PATCH', '/persona/1?update_mask=label_ids', { token, body: { label_ids: [3] } })
    .finally(() => {
      attached = true
    })
  const others = await Promise.all(
    AGENTS.slice(1).map(id =>
      world.call('PATCH', `/persona/${id}?update_mask=description`, { token, body: { description: 'past it' } }),
    ),
  )
  t.ok(
    others.every(answer => answer.statusCode === 200),
    'the others are done',
  )
  t.equal(attached, false, 'while one waits')
  await deleting.commit().execute()
  t.equal((await attaching).statusCode, 422)
})

t.test(
  'a commit whose answer is lost is settled for each of those that shared it',
  { skip: isPooled && 'a pooler hides whether a server process is gone' },
  async t => {
    const world = await worldDatabase(t)
    const token = await world.token('admin@example.com')
    const parsed = parseDatabaseUrl(world.url)
    if (!parsed.ok) throw new Error('the test database has no URL')
    const proxy = await TcpProxy.open(parsed.url)
    t.teardown(() => proxy.close())
    const { user, password = '', database: name } = parsed.url
    const proxied = `postgresql://${user}:${encodeURIComponent(password)}@127.0.0.1:${proxy.port}/${name}`
    const database = openUrl(proxied, readConfig({ DATABASE_POOL_SIZE: '20' }))
    t.teardown(() => database.close())
    const { call } = await appOver(t, database)
    const update = (text: string) =>
      Promise.all(
        AGENTS.map(id =>
          call('PATCH', `/persona/${id}?update_mask=description`, { token, body: { description: `${text} ${id}` } }),
        ),
      )
    await update('first')

    let cuts = 0
    const after = (text: string, cut: 'statement' | 'answer') => {
      let written = false
      proxy.onForward = data => {
        written ||= data.includes(text)
        if (written && cut === 'statement') cuts += 1
        return !(data.includes(text) && cut === 'statement')
      }
      proxy.onBackward = data => {
        const isShared = data.toString('latin1').split(text).length > 2 // one may have come before the others
        if (!(written && cut === 'answer' && isShared)) return true
        cuts += 1
        proxy.onBackward = () => true
        return false
      }
    }
    after('answer lost', 'answer')
    const lost = await update('answer lost')
    t.ok(cuts > 0, 'an answer was cut')
    for (const [i, id] of AGENTS.entries()) {
      t.equal(lost[i]?.statusCode, 200, String(lost[i]?.body))
      t.equal(lost[i]?.json().description, `answer lost ${id}`)
      t.equal((await auditRows(world.database.db, 'persona', id)).length, 3)
    }

    after('never sent', 'statement')
    const unsent = await update('never sent')
    proxy.onForward = () => true
    for (const [i, id] of AGENTS.entries()) {
      t.match(unsent[i]?.json(), { outcome: 'not_applied' })
      t.equal((await storedAgent(world.database.db, id)).description, `answer lost ${id}`)
    }
    t.same((await verifyAudit(world.database.db)).findings, [])
  },
)

async function usersOf({ database }: WorldApp, emails: string[]): Promise<string[]> {
  const rows = await database.db.selectFrom('user_account').select(['id', 'email']).execute()
  return emails.map(email => rows.find(row => row.email === email)?.id ?? '')
}
