import { sql } from 'kysely'
import t from 'tap'
import { recordLastUse } from '../../src/auth/last-use.js'
import { worldDatabase } from '../world.js'

t.test('the last use of a token is written at most once a minute and never waits for the row', async t => {
  const world = await worldDatabase(t)
  const { db } = world.database
  await world.token('alice@example.com')
  await world.token('admin@example.com')
  const tokens = await db.selectFrom('token').select('id').orderBy('id').execute()
  const [first = 0, second = 0] = tokens.map(({ id }) => id)
  const used = async () => {
    const rows = await db
      .selectFrom('token')
      .select(['id', 'last_used_at'])
      .where('id', 'in', [first, second])
      .execute()
    return new Map(rows.map(({ id, last_used_at }) => [id, last_used_at]))
  }
  const record = (id: number) => recordLastUse.for({ id }).batched(world.database)
  await db.transaction().execute(async trx => {
    await sql`select from token where id = ${first} for update`.execute(trx)
    await Promise.all([first, second].map(record))
    const found = await used()
    t.equal(found.get(first), null, 'left as it is while somebody has the row')
    t.not(found.get(second), null)
  })
  const before = (await used()).get(second)
  await record(first)
  await record(second)
  const found = await used()
  t.not(found.get(first), null)
  t.equal(found.get(second), before, 'less than a minute ago')
})
