import { type Kysely, sql, type Transaction } from 'kysely'
import t from 'tap'
import { applyOrganisation } from '../../src/admin/apply.js'
import { listAudit } from '../../src/admin/audit-list.js'
import { verifyAudit } from '../../src/admin/audit-verification.js'
import { eraseUser } from '../../src/admin/erasure.js'
import { exportOrganisation } from '../../src/admin/export.js'
import { createUser } from '../../src/admin/people.js'
import { readConfig } from '../../src/config.js'
import type { Tables } from '../../src/db/tables.js'
import { recordAccess } from '../../src/updates/access-events.js'
import { auditHash, sha256 } from '../../src/updates/audit.js'
import { PRUNER, pruneHistory } from '../../src/updates/prune.js'
import { worldApp } from '../app.js'
import { deleteTool } from '../deletion.js'
import { inVain as inVainOf, readRows } from './trail.js'

const { call, token, database, ring } = await worldApp(t)
const { db } = database
const alice = await token('alice@example.com')
const edit = async (id: number, body: object) => {
  const mask = Object.keys(body).join(',')
  const answer = await call('PATCH', `/persona/${id}?update_mask=${mask}`, { token: alice, body })
  if (answer.statusCode !== 200) throw new Error(answer.body)
}
for (const description of ['one', 'two', 'three', 'four']) await edit(1, { description })
await edit(11, { description: 'other' })

/** What verification finds after SQL that nothing records; the database is as before afterwards. */
async function found(...statements: ReturnType<typeof sql>[]): Promise<string[]> {
  return await inVain(async trx => {
    for (const statement of statements) await statement.execute(trx)
    const { findings } = await verifyAudit(trx)
    return findings.map(({ kind, subject, number, problem }) => `${problem} ${kind}:${subject} ${number}`)
  })
}

const inVain = <T>(work: (trx: Transaction<Tables>) => Promise<T>) => inVainOf(db, work)

const agent = (id: number, ...more: ReturnType<typeof sql>[]) =>
  sql.join([sql`resource_kind = 'persona' and resource_id = ${id}`, ...more], sql` and `)

t.test('nothing is wrong before', async t => {
  t.same(await found(), [])
})

t.test('version and count lowered together below the rows', async t => {
  const lowered = sql`update persona set version = version - 2, audit_count = audit_count - 2 where id = 1`
  t.match(await found(lowered), ['head_mismatch persona:1 4'])
  const withHead = sql`update persona p set audit_head = a.hash from audit a
    where p.id = 1 and a.resource_kind = 'persona' and a.resource_id = 1 and a.version_after = p.version`
  t.match(await found(lowered, withHead), ['head_mismatch persona:1 4'])
})

t.test('differences set to null, the newest too', async t => {
  for (const version of [2, 3, 5]) {
    const emptied = sql`update audit set difference = null where ${agent(1, sql`version_after = ${version}`)}`
    t.same(await found(emptied), [`emptied persona:1 ${version}`])
  }
})

t.test('each column of a row edited, a row removed, another head, a version too many', async t => {
  for (const edit of [
    sql`actor = 'mallory@example.com'`,
    sql`client_address = '203.0.113.9'`,
    sql`at = at - interval '1 second'`,
    sql`request_id = 'other'`,
    sql`token_id = coalesce(token_id, 0) + 1`,
    sql`command = 'agentctl apply'`,
    sql`fields = '{name}'`,
    sql`difference = '{"name":{"from":"a","to":"b"}}'`,
    sql`difference_bytes = 1`,
    sql`content_hash = sha256('x')`,
  ]) {
    const edited = sql`update audit set ${edit} where ${agent(1, sql`version_after = 3`)}`
    t.same(await found(edited), ['edited persona:1 3'])
  }
  t.same(await found(sql`delete from audit where ${agent(1, sql`version_after = 3`)}`), ['deleted persona:1 3'])
  t.same(await found(sql`delete from audit where ${agent(1, sql`version_after = 5`)}`), ['deleted persona:1 5'])
  t.same(await found(sql`update persona set audit_head = sha256('x') where id = 1`), ['head_mismatch persona:1 5'])
  const raised = sql`update persona set version = version + 1, audit_count = audit_count + 1 where id = 1`
  t.same(await found(raised), ['deleted persona:1 6'])
})

t.test('young rows removed with a forged anchor', async t => {
  const removed = sql`delete from audit where ${agent(1, sql`version_after < 4`)}`
  const anchored = sql`update persona p set audit_anchor = a.previous_hash, audit_anchor_version = 3 from audit a
    where p.id = 1 and a.resource_kind = 'persona' and a.resource_id = 1 and a.version_after = 4`
  t.same(await found(removed, anchored), ['deleted persona:1 1', 'anchor_mismatch persona:1 3'])
})

t.test('content changed by SQL without a row: columns, relations, share levels, header values', async t => {
  for (const [statement, place] of [
    [sql`update persona set description = 'other' where id = 1`, 'persona:1 5'],
    [sql`update persona set is_public = not is_public where id = 1`, 'persona:1 5'],
    [sql`update persona_user set level = 'editor' where persona_id = 11`, 'persona:11 2'],
    [
      sql`insert into persona_user (persona_id, user_id, level)
        select 1, id, 'editor' from user_account where email = 'bob@example.com'`,
      'persona:1 5',
    ],
    [sql`delete from persona_tool where persona_id = 11`, 'persona:11 2'],
    [sql`update tool set description = 'other' where id = 16`, 'tool:16 1'],
    [sql`update tool_header set mask = decode(repeat('00', 32), 'hex') where tool_id = 16`, 'tool:16 1'],
  ] as const) {
    t.same(await found(statement), [`content_mismatch ${place}`])
  }
})

t.test('the text of a definition changed by SQL', async t => {
  const { hash } = await db
    .selectFrom('tool_definition')
    .select(sql<string>`encode(hash, 'hex')`.as('hash'))
    .orderBy('hash')
    .executeTakeFirstOrThrow()
  const own = sql`encode(hash, 'hex') = ${hash}`
  const mine = [`content_mismatch tool_definition:${hash} 0`]
  t.same(await found(sql`update tool_definition set content = (content::text || ' ')::json where ${own}`), mine)
  t.same(await found(sql`update tool_definition set content = '{}' where ${own}`), mine)
})

t.test('access changed by SQL without an event', async t => {
  const id = await createUser(db, { email: 'nora@example.com', kind: 'person', permissions: [] })
  const mine = `content_mismatch user:${id} 1`
  t.same(await found(sql`update user_account set permissions = '{admin}' where id = ${id}`), [mine])
  t.same(await found(sql`update user_account set email = 'n@example.com' where id = ${id}`), [mine])
  const [group] = await db.selectFrom('user_group').select('id').orderBy('id').execute()
  t.match(await found(sql`insert into user_group_member (user_id, user_group_id) values (${id}, ${group?.id})`), [
    /^content_mismatch group:\d+ 1$/,
  ])
  t.match(await found(sql`update token set expires_at = expires_at + interval '1 year'`), [/^content_mismatch token:/])
  t.match(await found(sql`update token set scopes = null, hash = sha256('x')`), [/^content_mismatch token:/])
})

t.test('what SQL puts there is found: it has no event', async t => {
  const account = sql`insert into user_account (id, email, kind, permissions)
    values ('00000000-0000-4000-8000-00000000beef', 'planted@example.com', 'person', '{admin}')`
  t.same(await found(account), ['unrecorded user:00000000-0000-4000-8000-00000000beef 0'])
  const chain = sql`insert into access_chain (kind, subject, number, hash)
    values ('user', '00000000-0000-4000-8000-00000000beef', 0, decode(repeat('00', 32), 'hex'))`
  t.same(
    await found(account, chain),
    ['unrecorded user:00000000-0000-4000-8000-00000000beef 0'],
    'nor by an empty chain',
  )
  const forToken = sql`insert into token (hash, user_id) select sha256('planted'), id from user_account limit 1`
  t.match(await found(forToken), [/^unrecorded token:\d+ 0$/])
  const forGroup = sql`with made as (insert into user_group (name, permissions) values ('planted', '{}') returning id)
    insert into user_group_member (user_id, user_group_id) select u.id, made.id from made, user_account u limit 1`
  t.match(await found(forGroup), [/^unrecorded group:\d+ 0$/])
  const forAgent = sql`insert into persona (name, description, recency_bias, llm_filter_extraction, llm_relevance_filter, version, audit_count)
    values ('planted', '', 'auto', true, true, 0, 0)`
  t.match(await found(forAgent), [/^unrecorded persona:\d+ 0$/])
})

t.test('a young token that loses its events and gets another user', async t => {
  const { rows } = await sql<{ subject: string }>`
    select subject from access_chain where kind = 'token' limit 1`.execute(db)
  const subject = rows[0]?.subject
  const own = sql`kind = 'token' and subject = ${subject}`
  t.same(
    await found(
      sql`delete from access_event where ${own}`,
      sql`delete from access_chain where ${own}`,
      sql`update token set user_id = (select id from user_account where 'admin' = any(permissions) limit 1)
        where id::text = ${subject}`,
    ),
    [`unrecorded token:${subject} 0`],
  )
})

t.test('events edited, deleted, moved, cut off', async t => {
  const [chain] = await db.selectFrom('access_chain').selectAll().where('kind', '=', 'token').execute()
  const own = sql`kind = 'token' and subject = ${chain?.subject}`
  const place = `token:${chain?.subject}`
  t.same(await found(sql`update access_event set command = 'x' where ${own}`), [`edited ${place} 1`])
  t.same(await found(sql`update access_event set person = 'x@example.com' where ${own}`), [`edited ${place} 1`])
  t.same(await found(sql`update access_event set client_address = 'elsewhere' where ${own}`), [`edited ${place} 1`])
  t.same(await found(sql`delete from access_event where ${own}`), [`deleted ${place} 1`])
  t.same(await found(sql`update access_chain set number = 2 where ${own}`), [`deleted ${place} 2`])
})

t.test('ids below 1, which nothing gives out, and an event of no kind', async t => {
  const below = sql`insert into persona (id, name, description, recency_bias, llm_filter_extraction, llm_relevance_filter)
    values (-7, 'planted', '', 'auto', true, true)`
  const told = await found(below)
  t.ok(told.includes('unrecorded persona:-7 0'), String(told))
  const event = sql`insert into access_event (kind, subject, number, at, action, actor, request_id, client_address, salt,
      identity_hash, person, person_salt, person_hash, detail, previous_hash, hash)
    values ('', '', 1, now(), 'granted admin', 'alice@example.com', '', '', '', '', 'mallory@example.com', '', '', '{}', '', '')`
  t.match(await found(event), ['edited : 1'])
})

t.test('what cannot be read is found, and hides nothing else', async t => {
  const changed = sql`update persona set name = 'other' where id = 11`
  const other = 'content_mismatch persona:11 2'
  const afterEvent = async (kind: 'erasure' | 'prune', subject: string, detail: unknown) =>
    await inVain(async trx => {
      await changed.execute(trx)
      await recordAccess(trx, PRUNER, [{ kind, subject, action: 'forged', detail }])
      return (await verifyAudit(trx)).findings.map(one => `${one.problem} ${one.kind}:${one.subject} ${one.number}`)
    })
  for (const detail of [{ erased: 5 }, { erased: [5, null, {}, ['persona:1:1']] }, null, 5, []]) {
    const told = await afterEvent('erasure', 'x', detail)
    t.same(told.sort(), [other, 'edited erasure:x 1'], JSON.stringify(detail))
  }
  const escaped = await inVain(async trx => {
    await changed.execute(trx)
    await recordAccess(trx, PRUNER, [{ kind: 'erasure', subject: 'x', action: 'forged', detail: { erased: [] } }])
    await sql`update access_event set detail = '{"erased":[["\\u0000","x"]]}' where subject = 'x'`.execute(trx)
    return (await verifyAudit(trx)).findings.map(one => `${one.problem} ${one.kind}:${one.subject} ${one.number}`)
  })
  t.same(escaped.sort(), [other, 'edited erasure:x 1'], 'an event that the database cannot take apart')
  const unreadable = await inVain(async trx => {
    await sql`update persona set description = 'by hand' where id = 11`.execute(trx)
    await sql`update audit set difference = '{"description":{"from":"a","to":"\\u0000"},"\\ud800":{}}'
      where resource_kind = 'persona' and resource_id = 11`.execute(trx)
    return (await verifyAudit(trx)).findings.map(({ problem, number }) => `${problem} ${number}`)
  })
  t.ok(unreadable.includes('edited 1'), 'a difference that the database cannot take apart')
  for (const detail of [null, 5, [], { anchor_version: 'x' }]) {
    const told = await afterEvent('prune', 'persona:1', detail)
    t.same(told.sort(), [other, 'edited prune:persona:1 1'], JSON.stringify(detail))
  }
  for (const subject of ['abc', '99999999999', '2147483648', '-1', '']) {
    const noted = sql`insert into audit_upgrade_head (kind, subject, number, hash) values ('tool', ${subject}, 1, 'x')`
    const told = await found(changed, noted)
    t.ok(told.includes(other) && told.includes(`head_mismatch tool:${subject} 1`), `${subject}: ${told}`)
  }
  for (const difference of ['null', '5', '[]', '{"name":null}']) {
    const told = await inVain(async trx => {
      await changed.execute(trx)
      const row = (await readRows(trx, agent(1))).at(-1)
      if (row === undefined) throw new Error('there is no row')
      const forged = { ...row, difference_bytes: difference.length, difference_hash: sha256(difference) }
      await sql`update audit set difference = ${difference}::json, difference_bytes = ${forged.difference_bytes},
        difference_hash = decode(${forged.difference_hash}, 'hex'), hash = decode(${auditHash(forged)}, 'hex')
        where ${agent(1, sql`version_after = ${row.version_after}`)}`.execute(trx)
      return (await verifyAudit(trx)).findings.map(one => `${one.problem} ${one.kind}:${one.subject} ${one.number}`)
    })
    t.ok(told.includes(other) && told.includes('edited persona:1 5'), `${difference}: ${told}`)
  }
  for (const time of ['infinity', '-infinity', '0044-03-15 BC', '20000-01-01']) {
    const told = await found(changed, sql`update audit set at = ${time}::timestamptz where ${agent(1)}`)
    t.ok(told.includes(other) && told.includes('edited persona:1 5'), `${time}: ${told}`)
  }
})

t.test('the text of a definition in use removed, with triggers off', async t => {
  const { id, hash } = await db
    .selectFrom('tool')
    .select(['id', sql<string>`encode(definition_hash, 'hex')`.as('hash')])
    .where('definition_hash', 'is not', null)
    .orderBy('id')
    .executeTakeFirstOrThrow()
  const told = await found(
    sql`set local session_replication_role = replica`,
    sql`delete from tool_definition where encode(hash, 'hex') = ${hash}`,
  )
  t.ok(told.includes(`content_mismatch tool:${id} 0`), String(told))
})

t.test('erasing by hand is found, erasing is not; of a pruned history too', async t => {
  const byHand = sql`update audit set actor = 'erased', client_address = 'erased', salt = null where ${agent(1, sql`version_after = 3`)}`
  t.same(await found(byHand), ['erased persona:1 3'])
  t.same(await found(sql`update audit set salt = null where ${agent(1, sql`version_after = 3`)}`), [
    'edited persona:1 3',
  ])
  await inVain(async trx => {
    const plan = await eraseUser(trx as Kysely<Tables>, 'Alice@example.com')
    t.match(plan, { has_account: true, audit_rows: 5 })
    t.same((await verifyAudit(trx)).findings, [])
    const kept = await sql<{ text: string }>`
      select concat((select string_agg(a::text, '') from audit a), (select string_agg(e::text, '') from access_event e),
        (select string_agg(u::text, '') from user_account u)) as text`.execute(trx)
    t.notMatch(kept.rows[0]?.text, /alice@example\.com/i)
    await sql`update audit set request_id = 'x' where ${agent(1, sql`version_after = 3`)}`.execute(trx)
    await sql`update audit set actor = 'bob@example.com' where ${agent(1, sql`version_after = 4`)}`.execute(trx)
    const edited = [3, 4].map(number => ({ problem: 'edited', number }))
    t.match((await verifyAudit(trx)).findings, edited, 'what is left is still held')
  })
})

t.test('pruning says what it took, and nothing more is believed', async t => {
  await pruneHistory(db, { ...readConfig({}).history, versionsMax: 2 })
  t.same(await found(), [])
  const emptied = sql`update audit set difference = null where ${agent(1, sql`version_after = 4`)}`
  t.same(await found(emptied), ['emptied persona:1 4'])
  t.same(await found(sql`update audit set difference_bytes = 1 where ${agent(1, sql`version_after = 2`)}`), [
    'edited persona:1 2',
  ])
  const forged = sql`update access_event set detail = '{"emptied_to":9}' where kind = 'prune' and subject = 'persona:1'`
  t.ok((await found(emptied, forged)).includes('edited prune:persona:1 1'))
  await pruneHistory(db, { ...readConfig({}).history, auditRetentionDays: 0 })
  t.same(await found(), [])
  t.same(await found(sql`update persona set name = 'other' where id = 1`), ['content_mismatch persona:1 5'])
  await edit(1, { description: 'five' })
  t.same(await found(), [])
})

t.test('each pruning stays in the trail: none can be taken out', async t => {
  const numbers = async () =>
    (await listAudit(db, { kind: 'prune', subject: 'agent:1' })).map(({ number, actor }) => `${number} ${actor}`)
  const before = await numbers()
  for (const [index, name] of ['mallory', 'pruning', 'pruning'].entries()) {
    await edit(1, { description: `more ${index}` })
    await pruneHistory(db, { ...readConfig({}).history, versionsMax: 1 }, undefined, { ...PRUNER, name })
  }
  t.same(await found(), [])
  const count = before.length
  const added = [`${count + 3} pruning`, `${count + 2} pruning`, `${count + 1} mallory`]
  t.same(await numbers(), [...added, ...before])
  const own = sql`kind = 'prune' and subject = 'persona:1'`
  t.match(await found(sql`delete from access_event where ${own} and number = ${count + 2}`), [
    `deleted prune:persona:1 ${count + 2}`,
  ])
  t.same(await found(sql`delete from access_event where ${own} and number <= ${count + 1}`), [
    'deleted prune:persona:1 1',
  ])
})

t.test('a tool that was deleted, and whose rows were pruned by age, comes back under its id', async t => {
  const { tools } = (await exportOrganisation(db)) as { tools: { id: number }[] }
  const { id } = await db
    .selectFrom('tool')
    .select('id')
    .where('in_code_tool_id', 'is', null)
    .where(sql<boolean>`not exists (select from tool_header where tool_id = id)`)
    .executeTakeFirstOrThrow()
  const gone = tools.find(tool => tool.id === id)
  await deleteTool(database, id)
  await pruneHistory(db, { ...readConfig({}).history, auditRetentionDays: 0 })
  t.same(await found(), [])
  await applyOrganisation(database, { version: 1, tools: [gone] }, { ring, env: {} })
  t.equal((await db.selectFrom('tool').select('id').where('id', '=', id).execute()).length, 1)
  t.same(await found(), [])
  t.same(await found(), [])
  const changed = sql`update tool set description = 'by hand' where id = ${id}`
  t.match(await found(changed), [new RegExp(`^content_mismatch tool:${id} `)])
})
