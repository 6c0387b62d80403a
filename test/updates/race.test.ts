import { type KyselyPlugin, type RawBuilder, sql } from 'kysely'
import t from 'tap'
import { verifyAudit } from '../../src/admin/audit-verification.js'
import type { Database } from '../../src/db/database.js'
import { appOver, type WorldApp, worldApp } from '../app.js'
import { ADMIN, BOB, CAROL } from '../fixtures/users.js'
import { worldDatabase } from '../world.js'
import { auditRows, faultsOf, storedAgent, untilLocked } from './stored-state.js'

const WRITERS = 30

function some<Item>(items: Item[], bits: number): Item[] {
  return items.filter((_, index) => (bits >> index) & 1)
}

/** Returns an update whose values are derived from `number`, so a mix of two updates is detectable. */
function variant(number: number) {
  return {
    name: `agent ${number}`,
    description: `description ${number}`,
    document_set_ids: some([1, 2, 3], number),
    num_chunks: number,
    is_public: number % 2 === 0,
    recency_bias: 'auto',
    llm_filter_extraction: true,
    llm_relevance_filter: false,
    tool_ids: some([1, 2, 10, 11, 13, 20], number + 1),
    system_prompt: 's',
    task_prompt: 't',
    datetime_aware: true,
    starter_messages: [{ name: 'n', message: String(number) }],
    users: some([ADMIN, BOB, CAROL], number * 3),
    groups: some([1, 2, 3], number * 5),
    label_ids: some([1, 2, 3], number * 7),
    user_file_ids: some(['f0000000-0000-4000-8000-000000000001', 'f0000000-0000-4000-8000-000000000003'], number),
  }
}

/** Returns the fields of a stored agent that `variant` sets, in the form of `variant`. */
function asVariant(stored: Record<string, unknown>) {
  const ids = (shares: unknown) => (shares as { id: unknown }[]).map(share => share.id)
  const fields = Object.keys(variant(0)).map(name => [name, stored[name]])
  return { ...Object.fromEntries(fields), users: ids(stored.users), groups: ids(stored.groups) }
}

t.test('200: an update that fails by a serialization failure or a deadlock is tried again', async t => {
  const world = await worldApp(t)
  const admin = await world.token('admin@example.com')
  const { db } = world.database
  for (const state of ['40001', '40P01']) {
    await sql`create sequence aborted`.execute(db)
    await sql`create function abort_twice() returns trigger language plpgsql as $$ begin
        if nextval('aborted') <= 2 then raise exception 'not now' using errcode = ${sql.lit(state)}; end if; return new; end $$;
      create trigger abort_twice before update on persona for each row execute function abort_twice()`.execute(db)
    const patch = (body: object) =>
      world.call('PATCH', `/persona/1?update_mask=${Object.keys(body)}`, { token: admin, body })
    t.equal((await patch({ description: state })).statusCode, 200, `${state}: by one statement`)
    await sql`alter sequence aborted restart`.execute(db)
    t.equal((await patch({ groups: state === '40001' ? [1] : [2] })).statusCode, 200, `${state}: under the lock`)
    await sql`alter sequence aborted restart`.execute(db)
    const { outcomes } = await world.apply({ agents: [] }, { prune: true, plan: true })
    t.ok(outcomes.length > 0, `${state}: by apply`)
    await sql`drop trigger abort_twice on persona; drop function abort_twice; drop sequence aborted`.execute(db)
  }
})

t.test('500 not_applied where the database refuses the commit', async t => {
  const { call, database, token } = await worldApp(t)
  await sql`create function refuse() returns trigger language plpgsql as $$ begin raise 'refused'; end $$`.execute(
    database.db,
  )
  await sql`create constraint trigger refused after update on persona deferrable initially deferred
    for each row execute function refuse()`.execute(database.db)
  const admin = await token('admin@example.com')
  const before = await storedAgent({ database }, 11)
  for (const headers of [{}, { 'idempotency-key': 'refused' }] as Record<string, string>[]) {
    const asked = { token: admin, body: { description: 'refused' }, headers }
    const answer = await call('PATCH', '/persona/11?update_mask=description', asked)
    t.match([answer.statusCode, answer.json()], [500, { error_code: 'INTERNAL_ERROR', outcome: 'not_applied' }])
  }
  t.strictSame(await storedAgent({ database }, 11), before)
})

t.test('updates at once, of what others change', async t => {
  const world = await worldApp(t, { LOCK_TIMEOUT_MS: '60000' })
  const admin = await world.token('admin@example.com')
  const { call, database } = world

  t.test('200: many updates of one agent at once leave exactly the state of one of them', async t => {
    const before = await storedAgent(world, 11)
    const numbers = Array.from({ length: WRITERS }, (_, index) => index + 1)
    const answers = await Promise.all(
      numbers.map(number => call('PATCH', '/persona/11', { token: admin, body: variant(number) })),
    )
    for (const [i, answer] of answers.entries()) t.equal(answer.json().name, `agent ${i + 1}`, 'its own state')
    const after = await storedAgent(world, 11)
    t.strictSame(asVariant(after), variant(Number(after.num_chunks)))
    t.equal(after.version, before.version + WRITERS)
    t.equal(new Set(answers.map(answer => answer.headers.etag)).size, WRITERS, 'each wrote a version of its own')
    t.same((await verifyAudit(database.db)).findings, [])
  })

  t.test('200: updates of agents and of the tools that they attach, at once', async t => {
    const requests = Array.from({ length: WRITERS }, (_, number) => {
      if (number % 5 === 0) {
        return call('PUT', '/admin/tool/custom/13', { token: admin, body: { description: `d${number}` } })
      }
      const definition = { openapi: '3.1.0', info: { title: 'T' }, servers: [{ url: '/' }], paths: paths(number % 2) }
      if (number % 5 === 1) return call('PUT', '/admin/tool/custom/10', { token: admin, body: { definition } })
      // Two agents attach and detach the same tools and users in opposite orders.
      const body = variant(number)
      if (number % 2 === 0) return call('PATCH', '/persona/1', { token: admin, body })
      const turned = { ...body, tool_ids: body.tool_ids.reverse(), users: body.users.reverse() }
      return call('PATCH', '/persona/2', { token: admin, body: turned })
    })
    const answers = await Promise.all(requests)
    for (const { statusCode, body } of answers) t.equal(statusCode, 200, body)
    for (const id of [1, 2]) {
      const after = await storedAgent(world, id)
      t.strictSame(asVariant(after), variant(Number(after.num_chunks)))
    }
    t.same((await verifyAudit(database.db)).findings, [])
  })

  t.test('412 for all but one of the updates that name the same version, naming the one', async t => {
    const tokens = [admin, await world.token('alice@example.com')]
    const etag = `"persona-1-${(await storedAgent(world, 1)).version}"`
    const rename = (_: unknown, i: number) => {
      const sent = { token: tokens[i % 2] as string, headers: { 'if-match': etag }, body: { name: `n${i}` } }
      return call('PATCH', '/persona/1?update_mask=name', sent)
    }
    const answers = await Promise.all(Array.from({ length: WRITERS }, rename))
    const statuses = answers.map(answer => answer.statusCode)
    t.strictSame([...statuses].sort(), [200, ...new Array(WRITERS - 1).fill(412)])
    const won = statuses.indexOf(200)
    t.equal((await storedAgent(world, 1)).name, `n${won}`)
    const row = (await auditRows(database.db, 'persona', 1)).at(-1)
    const by = won % 2 === 0 ? 'admin@example.com' : 'alice@example.com'
    t.match(row, { actor: by, fields: ['name'] })
    for (const [i, answer] of answers.entries()) {
      if (i === won) continue
      t.equal(answer.json().current_etag, answers[won]?.headers.etag)
      t.same(answer.json().changed, [{ field: 'name', by, at: row?.at }])
    }
  })

  t.test('404: an agent that is deleted while its update waits for it', async t => {
    const update = () => call('PATCH', '/persona/13?update_mask=name', { token: admin, body: { name: 'Renamed' } })
    const deletion = sql`update persona set deleted = true, version = version + 1 where id = 13`
    const answer = await meanwhile(world, deletion, update)
    t.equal(answer.statusCode, 404)
    t.equal((await storedAgent(world, 13)).name, 'Alice In Eng')
  })

  t.test('422 not_found for a record that is removed while it is being attached', async t => {
    await sql`
      insert into label (id, name) values (90, 'short-lived');
      insert into user_group (id, name) values (90, 'short-lived');
      insert into document_set (id, name) values (90, 'short-lived');
      insert into user_file (id, name, owner_id) values ('short-lived', 'f', ${sql.lit(ADMIN)});
      insert into oauth_config (id, name) values (90, 'short-lived');
    `.execute(database.db)
    const before = await storedAgent(world, 5)
    const removals: [field: string, ids: (number | string)[], table: string][] = [
      ['label_ids', [1, 90], 'label'],
      ['groups', [1, 90], 'user_group'],
      ['document_set_ids', [1, 90], 'document_set'],
      ['user_file_ids', ['f0000000-0000-4000-8000-000000000004', 'short-lived'], 'user_file'],
    ]
    for (const [field, ids, table] of removals) {
      const sent = { token: admin, body: { [field]: ids } }
      const attach = () => call('PATCH', `/persona/5?update_mask=${field}`, sent)
      const answer = await meanwhile(world, sql`delete from ${sql.table(table)} where id = ${ids[1]}`, attach)
      t.strictSame(faultsOf(answer), [`body.${field}.1 not_found`])
      t.strictSame(await storedAgent(world, 5), before, `${field}: nothing is stored`)
    }
    const link = () => call('PUT', '/admin/tool/custom/11', { token: admin, body: { oauth_config_id: 90 } })
    const answer = await meanwhile(world, sql`delete from oauth_config where id = 90`, link)
    t.strictSame(faultsOf(answer), ['body.oauth_config_id not_found'])
  })
})

/** Sends a request while a transaction with `change` is open, and commits the transaction once the request waits for a lock. */
async function meanwhile<Answer>(
  { database }: WorldApp,
  change: RawBuilder<unknown>,
  request: () => Promise<Answer>,
): Promise<Answer> {
  const trx = await database.db.startTransaction().execute()
  await change.execute(trx)
  const answer = request()
  await untilLocked(database)
  await trx.commit().execute()
  return await answer
}

function paths(number: number): object {
  return { '/x': { get: { operationId: `x${number}`, summary: 's' } } }
}

t.test('503: an update whose rights change each time it is tried is not applied, and may be sent again', async t => {
  const { database, token } = await worldDatabase(t)
  const change = () => sql`update token set requires_if_match = not requires_if_match`.execute(database.db)
  const afterCaller: KyselyPlugin = {
    transformQuery: ({ node }) => node,
    transformResult: async ({ result }) => {
      if (result.rows[0] !== undefined && 'found' in result.rows[0]) await change()
      return result
    },
  }
  const db = database.db.withPlugin(afterCaller)
  const interposed: Database = Object.assign(Object.create(database), { db, sharedReads: () => db })
  const { call } = await appOver(t, interposed)
  const asked = { token: await token('admin@example.com'), body: { description: 'x' }, headers: { 'if-match': '*' } }
  const answer = await call('PATCH', '/persona/11?update_mask=description', asked)
  t.equal(answer.statusCode, 503, answer.body)
  t.match(answer.json(), { reason: 'overloaded', outcome: 'not_applied' })
  t.ok(Number(answer.headers['retry-after']) > 0)
  t.not((await storedAgent({ database }, 11)).description, 'x')
})

t.test(
  'a right to attach that is lost while a link waits is judged as it is then; without the right to edit nothing waits',
  async t => {
    const { call, database, token } = await worldApp(t)
    const { db } = database
    const [alice, bob] = [await token('alice@example.com'), await token('bob@example.com')]
    const sets = (ids: number[], by = alice) =>
      call('PATCH', '/persona/1?update_mask=document_set_ids', { token: by, body: { document_set_ids: ids } })
    await sql`insert into document_set (id, name) values (91, 'one'), (92, 'two')`.execute(db)
    await sql`insert into document_set_user select set, id from user_account, unnest(array[91, 92]) as set where email = 'alice@example.com'`.execute(
      db,
    )
    t.equal((await sets([91])).statusCode, 200)
    const trx = await db.startTransaction().execute()
    await sql`select from persona_document_set where document_set_id = 91 for update`.execute(trx)
    const answer = sets([92])
    await untilLocked(database)
    await sql`delete from document_set_user where document_set_id = 92`.execute(db)
    await trx.commit().execute()
    t.same(faultsOf(await answer), ['body.document_set_ids.0 not_found'])
    await sql`update persona set is_public = true where id = 1`.execute(db)
    const other = await db.startTransaction().execute()
    await sql`select from document_set where id = 92 for update`.execute(other)
    t.equal((await sets([92], bob)).statusCode, 403, 'while another holds the record')
    await other.rollback().execute()
  },
)
