import type { LightMyRequestResponse } from 'fastify'
import t from 'tap'
import { worldApp } from '../app.js'
import { auditRows, storedAgent, versionOf, warningsOf } from '../updates/stored-state.js'

const WRITERS = 50

t.test('200 for one and 412 for 49, naming the winner, of 50 writers with one tag', async t => {
  const { call, token, database } = await worldApp(t, { LOCK_TIMEOUT_MS: '60000' })
  const tokens = [await token('alice@example.com'), await token('admin@example.com')]
  const read = await call('PATCH', '/persona/1?update_mask=&dry_run=true', { token: tokens[0] as string, body: {} })
  const tag = String(read.headers.etag)
  const rows = await auditRows(database.db, 'persona', 1)
  const answers = await Promise.all(
    Array.from({ length: WRITERS }, (_, i) =>
      call('PATCH', '/persona/1?update_mask=name', {
        token: tokens[i % 2] as string,
        body: { name: `writer ${i}` },
        headers: { 'if-match': tag },
      }),
    ),
  )
  const won = answers.filter(answer => answer.statusCode === 200)
  t.equal(won.length, 1)
  const [winner] = won as [LightMyRequestResponse]
  const number = answers.indexOf(winner)
  t.equal((await storedAgent(database.db, 1)).name, `writer ${number}`)
  const added = (await auditRows(database.db, 'persona', 1)).slice(rows.length)
  t.equal(added.length, 1)
  const by = number % 2 === 0 ? 'alice@example.com' : 'admin@example.com'
  t.match(added[0], { actor: by, fields: ['name'] })
  for (const answer of answers.filter(other => other !== winner)) {
    t.equal(answer.statusCode, 412)
    t.equal(answer.json().current_etag, winner.headers.etag)
    t.same(answer.json().changed, [{ field: 'name', by, at: added[0]?.at }])
  }
})

t.test('200 for 50 writers of two persons without a tag, and a notice whenever one replaced the other', async t => {
  const { call, token, database } = await worldApp(t, { LOCK_TIMEOUT_MS: '60000' })
  const people = ['alice@example.com', 'admin@example.com'] as const
  const tokens = await Promise.all(people.map(email => token(email)))
  const bodies = Array.from({ length: WRITERS }, (_, i) =>
    i % 3 === 0
      ? { name: `writer ${i}`, tool_ids: [10 + (i % 4)], description: `by ${i}` }
      : { name: `writer ${i}`, description: `by ${i}` },
  )
  const rowsBefore = (await auditRows(database.db, 'persona', 1)).length
  const answers = await Promise.all(
    bodies.map((body, i) =>
      call('PATCH', `/persona/1?update_mask=${Object.keys(body).join(',')}`, { token: tokens[i % 2] as string, body }),
    ),
  )
  t.same(
    answers.map(answer => answer.statusCode),
    Array.from({ length: WRITERS }, () => 200),
  )
  const rows = await auditRows(database.db, 'persona', 1)
  t.equal(rows.length, rowsBefore + WRITERS)
  const stored = await storedAgent(database.db, 1)
  const last = answers.findIndex(answer => versionOf(answer) === rows.at(-1)?.version_after)
  t.match(stored, { name: `writer ${last}`, description: `by ${last}` }, 'the state is that of one request')
  t.equal(new Set(answers.map(versionOf)).size, WRITERS)
  const lastWriter = new Map<string, string>()
  for (const row of rows) {
    const answer = answers.find(other => versionOf(other) === row.version_after)
    if (answer !== undefined) {
      const replaced = row.fields.filter(field => {
        const by = lastWriter.get(field)
        return by !== undefined && by !== row.actor
      })
      const told = warningsOf(answer).map(
        text => /^field (\S+) replaces a change by (\S+@example\.com) \d+ seconds ago$/.exec(text)?.slice(1) ?? text,
      )
      t.same(
        told.sort(),
        replaced.map(field => [field, lastWriter.get(field)]).sort(),
        `version ${row.version_after} by ${row.actor}`,
      )
      t.equal(row.actor, people[answers.indexOf(answer) % 2])
      for (const field of row.fields) lastWriter.set(field, row.actor)
    }
  }
})
