import fc from 'fast-check'
import { sql } from 'kysely'
import t from 'tap'
import { readBacklog } from '../../src/changes/feed.js'
import { BOB } from '../fixtures/users.js'
import { historyWorld } from '../history/world.js'

const world = await historyWorld(t)
const { call, get, agentOf, db } = world
const people = {
  owner: world.alice,
  editor: world.bob,
  viewer: await world.token('carol@example.com'),
  admin: world.admin,
}
type Person = keyof typeof people
const PEOPLE = Object.keys(people) as Person[]

const VALUES: Record<string, unknown[]> = {
  name: ['Agent', 'B', 'C'],
  description: ['x', 'y', 'z'],
  is_public: [true, false],
  is_default_persona: [true, false],
  tool_ids: [[], [10], [13], [10, 13]],
  users: [[BOB], []],
  groups: [[], [1]],
}

const person = fc.constantFrom(...PEOPLE)
const fields = fc
  .uniqueArray(fc.constantFrom(...Object.keys(VALUES)), { minLength: 1, maxLength: 2 })
  .chain(names => fc.record(Object.fromEntries(names.map(name => [name, fc.constantFrom(...(VALUES[name] ?? []))]))))
const step = fc.oneof(
  { weight: 8, arbitrary: fc.record({ act: fc.constant('propose' as const), by: person, fields }) },
  { weight: 1, arbitrary: fc.record({ act: fc.constant('edit' as const), by: person, fields }) },
  { weight: 8, arbitrary: fc.record({ act: fc.constant('approve' as const), by: person, which: fc.nat(2) }) },
  {
    weight: 1,
    arbitrary: fc.record({
      act: fc.constantFrom('reject' as const, 'withdraw' as const),
      by: person,
      which: fc.nat(2),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({ act: fc.constant('share' as const), level: fc.constantFrom('editor', 'viewer') }),
  },
  { weight: 1, arbitrary: fc.record({ act: fc.constant('delete' as const), by: person }) },
  { weight: 1, arbitrary: fc.record({ act: fc.constant('restore' as const), by: person }) },
)

const contents = async (id: number) => {
  const [row] = await world.query<Record<string, unknown>>`
    select version, name, description, is_public, is_default_persona, deleted,
      array(select tool_id from persona_tool where persona_id = p.id order by 1) as tool_ids,
      array(select user_id from persona_user where persona_id = p.id order by 1) as users,
      array(select user_group_id from persona_group where persona_id = p.id order by 1) as groups
    from persona p where id = ${id}`
  return row ?? {}
}

t.test(
  'in any order: what is approved its approver may store, and nothing that changed since the base is overwritten',
  async t => {
    let approved = 0
    const update = (id: number, token: string, sent: object, query = '', tag = '*') =>
      call('PATCH', `/persona/${id}?update_mask=${Object.keys(sent)}${query}`, {
        token,
        body: sent,
        headers: { 'if-match': tag, prefer: 'handling=strict' },
      })
    const property = fc.asyncProperty(fc.array(step, { minLength: 20, maxLength: 30 }), async steps => {
      const id = await agentOf({ is_public: true, users: [BOB] })
      const proposals: { id: number; by: Person; base: number; fields: object }[] = []
      for (const one of steps) {
        const before = await contents(id)
        if (one.act === 'propose') {
          const answer = await update(
            id,
            people[one.by],
            one.fields,
            '&propose=true',
            `"persona-${id}-${before.version}"`,
          )
          if (answer.statusCode === 202)
            proposals.push({ id: answer.json().id, by: one.by, base: Number(before.version), fields: one.fields })
          t.same(await contents(id), before, 'a proposal changes nothing')
        } else if (one.act === 'edit') await update(id, people[one.by], one.fields)
        else if (one.act === 'share')
          await sql`update persona_user set level = ${one.level} where persona_id = ${id} and user_id = ${BOB}`.execute(
            db,
          )
        else if (one.act === 'delete') await call('DELETE', `/persona/${id}`, { token: people[one.by] })
        else if (one.act === 'restore')
          await call('POST', `/persona/${id}/restore`, { token: people[one.by], body: { version: 1 } })
        else {
          const proposal = proposals.at(-1 - (one.which % Math.max(proposals.length, 1))) // usually one of the newest
          if (proposal === undefined) continue
          const url = `/proposals/${proposal.id}`
          const token = people[one.by]
          const [stored] = await world.query<{ state: string; fields: Record<string, unknown> }>`
          select state, fields from proposal where id = ${proposal.id}`
          const asked = stored?.fields ?? {}
          const direct = await update(id, token, asked, '&dry_run=true')
          const headers = { 'if-match': String((await get(url, token)).headers.etag ?? '"none"') }
          const body = one.act === 'reject' ? { reason: 'no' } : undefined
          const { statusCode } = await call('POST', `${url}/${one.act}`, { token, headers, ...(body && { body }) })
          const after = await contents(id)
          if (one.act !== 'approve' || statusCode !== 204) {
            t.same(after, before, `${one.act}: ${statusCode}`)
            continue
          }
          approved += 1
          t.equal(stored?.state, 'open')
          t.not(one.by, proposal.by)
          t.equal(direct.statusCode, 200, `${one.by} may store it: ${direct.body}`)
          const later = await world.query<{ field: string }>`
            select unnest(fields) as field from audit
            where resource_kind = 'persona' and resource_id = ${id} and version_after > ${proposal.base} and version_after <= ${before.version}`
          const changed = later.map(({ field }) => field)
          for (const field of Object.keys(asked)) t.notOk(changed.includes(field), `${field} is as at the base`)
          const wanted: Record<string, unknown> = { ...before, ...asked, version: Number(before.version) + 1 }
          t.same(after, wanted)
          t.same(await world.query`select state from proposal where id = ${proposal.id}`, [{ state: 'approved' }])
        }
        const { deleted } = await contents(id)
        const open = await world.query`select from proposal where resource_id = ${id} and state = 'open'`
        if (deleted) t.same(open, [], 'a deleted agent has no open proposals')
      }
    })
    await fc.assert(property, { numRuns: 15, endOnFailure: true })
    t.ok(approved > 10, `${approved} approvals`)
  },
)

t.test('a connection that ends between the update and the end of the proposal leaves neither', async t => {
  const id = await agentOf({ is_public: true })
  const sent = { token: people.viewer, body: { name: 'B' }, headers: { 'if-match': `"persona-${id}-1"` } }
  const { id: proposal } = (await call('PATCH', `/persona/${id}?update_mask=name&propose=true`, sent)).json()
  t.match(await readBacklog(db), { open: /^[1-9]/, oldest_s: /^\d/ })
  await sql`
    create function ends() returns trigger language plpgsql as
    $$ begin perform pg_terminate_backend(pg_backend_pid()); perform pg_sleep(1); return new; end $$`.execute(db)
  await sql`create trigger ends before update on proposal for each row execute function ends()`.execute(db)
  const headers = { 'if-match': `"proposal-${proposal}-1"` }
  const approve = () => call('POST', `/proposals/${proposal}/approve`, { token: people.owner, headers })
  t.match((await approve()).json(), { error_code: 'SERVICE_UNAVAILABLE', outcome: 'not_applied' })
  t.match(await contents(id), { version: 1, name: 'Agent' })
  await sql`drop trigger ends on proposal`.execute(db)
  t.match(await approve(), { statusCode: 204 })
  t.match(await contents(id), { version: 2, name: 'B' })
})
