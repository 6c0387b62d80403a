import { sql } from 'kysely'
import t from 'tap'
import { worldApp } from '../app.js'

const AGENT = 11
const PATH = `/persona/${AGENT}`
const LINKS = 900

t.test('200: lists of many hundred links are answered and kept', async t => {
  const { call, token, database } = await worldApp(t)
  const admin = await token('admin@example.com')
  const before = (await call('GET', `${PATH}?view=update`, { token: admin })).json()
  await sql`
    with l as (insert into label (name) select 'label ' || n from generate_series(1, ${sql.lit(LINKS)}) n returning id),
    s as (insert into document_set (name, description, is_up_to_date, is_public)
      select 'set ' || n, '', true, true from generate_series(1, ${sql.lit(LINKS)}) n returning id),
    u as (insert into user_account (email, kind, permissions)
      select 'alice+' || n || '@example.com', 'person', '{basic}' from generate_series(1, ${sql.lit(LINKS)}) n returning id),
    g as (insert into user_group (name) select 'group ' || n from generate_series(1, ${sql.lit(LINKS)}) n returning id),
    t as (insert into tool (name, description) select 'tool ' || n, '' from generate_series(1, ${sql.lit(LINKS)}) n returning id),
    labels as (insert into persona_label (persona_id, label_id) select ${AGENT}, id from l),
    sets as (insert into persona_document_set (persona_id, document_set_id) select ${AGENT}, id from s),
    users as (insert into persona_user (persona_id, user_id, level) select ${AGENT}, id, 'viewer' from u),
    groups as (insert into persona_group (persona_id, user_group_id, level) select ${AGENT}, id, 'viewer' from g)
    insert into persona_tool (persona_id, tool_id) select ${AGENT}, id from t`.execute(database.db)

  const read = await call('GET', PATH, { token: admin })
  const shown = read.json()
  const view = (await call('GET', `${PATH}?view=update`, { token: admin })).json()
  t.equal(read.statusCode, 200, read.body.slice(0, 500))
  for (const field of ['label_ids', 'document_set_ids', 'users', 'groups', 'tool_ids']) {
    t.equal(view[field].length, before[field].length + LINKS, field)
  }
  for (const field of ['labels', 'document_sets', 'users', 'groups', 'tools']) t.ok(shown[field].length >= LINKS, field)

  const body = { description: 'of many links', label_ids: view.label_ids.slice(1) }
  const updated = await call('PATCH', `${PATH}?update_mask=description,label_ids`, { token: admin, body })
  t.equal(updated.statusCode, 200, updated.body.slice(0, 500))
  const labels = shown.labels.filter(({ id }: { id: number }) => body.label_ids.includes(id))
  t.strictSame(updated.json(), { ...shown, description: body.description, labels })
  t.equal((await call('GET', PATH, { token: admin })).body, updated.body)
})
