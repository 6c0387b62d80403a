import t from 'tap'
import { REQUIRED_FIELDS, worldApp } from '../app.js'
import { auditRows, difference, type Stored, storedAgent, versionOf, warningsOf } from './stored-state.js'

const AGENT = 11
const PATH = `/persona/${AGENT}`
const CAROL = 'a0000000-0000-4000-8000-000000000010'

/** What setting a field does to the stored agent, and what `null` does to it inside a mask: `refused` is 422. */
interface FieldCase {
  value: unknown
  becomes: Stored
  null: 'refused' | Stored
}

/** The agent's 26 fields, from values that all differ from the stored ones (agent 11, everything set). */
const FIELDS: Record<string, FieldCase> = {
  name: { value: '  Renamed ', becomes: { name: 'Renamed' }, null: 'refused' },
  description: { value: '', becomes: { description: '' }, null: 'refused' },
  document_set_ids: { value: [3, 1, 3], becomes: { document_set_ids: [1, 3] }, null: 'refused' },
  num_chunks: { value: 2.5, becomes: { num_chunks: 2.5 }, null: 'refused' },
  is_public: { value: true, becomes: { is_public: true }, null: 'refused' },
  recency_bias: { value: 'no_decay', becomes: { recency_bias: 'no_decay' }, null: 'refused' },
  llm_filter_extraction: { value: false, becomes: { llm_filter_extraction: false }, null: 'refused' },
  llm_relevance_filter: { value: true, becomes: { llm_relevance_filter: true }, null: 'refused' },
  tool_ids: { value: [13, 10], becomes: { tool_ids: [10, 13] }, null: 'refused' },
  system_prompt: { value: 'new system', becomes: { system_prompt: 'new system' }, null: 'refused' },
  task_prompt: { value: 'new task', becomes: { task_prompt: 'new task' }, null: 'refused' },
  datetime_aware: { value: false, becomes: { datetime_aware: false }, null: 'refused' },
  llm_model_provider_override: {
    value: 'Anthropic',
    becomes: { llm_model_provider_override: 'Anthropic' },
    null: { llm_model_provider_override: null },
  },
  llm_model_version_override: {
    value: 'claude',
    becomes: { llm_model_version_override: 'claude' },
    null: { llm_model_version_override: null },
  },
  starter_messages: {
    value: [{ name: 'a', message: 'b' }],
    becomes: { starter_messages: [{ name: 'a', message: 'b' }] },
    null: { starter_messages: null },
  },
  users: { value: [CAROL], becomes: { users: [`${CAROL} viewer`] }, null: 'refused' },
  groups: { value: [2, 1], becomes: { groups: ['1 editor', '2 viewer'] }, null: 'refused' },
  remove_image: { value: true, becomes: { uploaded_image_id: null }, null: {} },
  uploaded_image_id: {
    value: 'img-2',
    becomes: { uploaded_image_id: 'img-2' },
    null: { uploaded_image_id: null },
  },
  icon_name: { value: 'Moon', becomes: { icon_name: 'Moon' }, null: { icon_name: null } },
  search_start_date: {
    value: '2025-06-01T02:00:00.1234567+02:00',
    becomes: { search_start_date: '2025-06-01T00:00:00.123456+00:00' },
    null: { search_start_date: null },
  },
  label_ids: { value: [3, 2], becomes: { label_ids: [2, 3] }, null: { label_ids: [] } },
  is_default_persona: { value: true, becomes: { is_default_persona: true }, null: 'refused' },
  display_priority: { value: -7, becomes: { display_priority: -7 }, null: { display_priority: null } },
  user_file_ids: {
    value: ['f0000000-0000-4000-8000-000000000003'],
    becomes: { user_file_ids: ['f0000000-0000-4000-8000-000000000003'] },
    null: { user_file_ids: [] },
  },
  replace_base_system_prompt: { value: false, becomes: { replace_base_system_prompt: false }, null: 'refused' },
}

/** A default agent must be public: the one case that needs another field to be set first. */
const NEEDS: Record<string, Stored> = { is_default_persona: { is_public: true } }

t.test('200 a mask of one field writes that field and nothing else, and null there means null', async t => {
  t.equal(Object.keys(FIELDS).length, 26)
  const { call, token, database } = await worldApp(t)
  const admin = await token('admin@example.com')
  const send = (query: string, body: unknown) => call('PATCH', `${PATH}${query}`, { token: admin, body })
  for (const [field, { value, becomes, null: nothing }] of Object.entries(FIELDS)) {
    for (const [name, needed] of Object.entries(NEEDS[field] ?? {})) {
      t.equal((await send(`?update_mask=${name}`, { [name]: needed })).statusCode, 200)
    }
    const before = await storedAgent(database.db, AGENT)
    const answer = await send(`?update_mask=${field}`, { [field]: value })
    t.equal(answer.statusCode, 200, `${field}: ${answer.body}`)
    const after = await storedAgent(database.db, AGENT)
    t.same(difference(before, after), becomes, field)
    const row = (await auditRows(database.db, 'persona', AGENT)).at(-1)
    t.same(row?.fields, Object.keys(becomes), `${field} alone is in the audit row`)
    t.equal(row?.version_after, versionOf(answer))

    const again = await send(`?update_mask=${field}`, { [field]: value })
    t.equal(again.headers.etag, answer.headers.etag, `${field} sent again changes nothing`)

    const absent = await send(`?update_mask=${field}`, {})
    t.equal(absent.statusCode, 422)
    t.same(absent.json(), { detail: [{ loc: ['body', field], msg: 'Field required', type: 'missing' }] })

    const cleared = await send(`?update_mask=${field}`, { [field]: null })
    if (nothing === 'refused') {
      t.equal(cleared.statusCode, 422, `${field}: null`)
      t.same(cleared.json().detail[0].loc, ['body', field])
    } else {
      t.equal(cleared.statusCode, 200, `${field}: null ${cleared.body}`)
      t.same(difference(after, await storedAgent(database.db, AGENT)), nothing, `${field}: null`)
    }
  }
})

t.test('200 without a mask an optional field is written alone, and what is absent stays', async t => {
  const { call, token, database } = await worldApp(t)
  const admin = await token('admin@example.com')
  const send = (body: unknown) => call('PATCH', PATH, { token: admin, body })
  for (const [field, { value, becomes }] of Object.entries(FIELDS)) {
    const before = await storedAgent(database.db, AGENT)
    const required = Object.fromEntries(Object.keys(REQUIRED_FIELDS).map(name => [name, before[name]]))
    const answer = await send({ ...required, ...NEEDS[field], [field]: value })
    t.equal(answer.statusCode, 200, `${field}: ${answer.body}`)
    t.same(difference(before, await storedAgent(database.db, AGENT)), becomes, field)
  }
})

t.test('200 the nullable fields whose null leaves them alone clear only inside a mask', async t => {
  const { call, token, database } = await worldApp(t)
  const admin = await token('admin@example.com')
  const before = await storedAgent(database.db, AGENT)
  const required = Object.fromEntries(Object.keys(REQUIRED_FIELDS).map(name => [name, before[name]]))
  const nulls = {
    label_ids: null,
    user_file_ids: null,
    uploaded_image_id: null,
    display_priority: null,
    remove_image: null,
  }
  const whole = await call('PATCH', PATH, { token: admin, body: { ...required, ...nulls } })
  t.equal(whole.statusCode, 200, whole.body)
  t.same(difference(before, await storedAgent(database.db, AGENT)), {})
  const mask = Object.keys(nulls).join(',')
  const masked = await call('PATCH', `${PATH}?update_mask=${mask}`, { token: admin, body: nulls })
  t.equal(masked.statusCode, 200, masked.body)
  t.same(difference(before, await storedAgent(database.db, AGENT)), {
    label_ids: [],
    user_file_ids: [],
    uploaded_image_id: null,
    display_priority: null,
  })
})

t.test('the rules of the mask itself', async t => {
  const { call, token, database } = await worldApp(t)
  const admin = await token('admin@example.com')
  const send = (query: string, body: unknown, headers = {}) =>
    call('PATCH', `${PATH}${query}`, { token: admin, body, headers })
  const before = await storedAgent(database.db, AGENT)
  const auditedBefore = await auditRows(database.db, 'persona', AGENT)

  t.test('422 unknown names, each on its own, and nothing of the body that the rest does not name', async t => {
    const answer = await send('?update_mask=nam,description,tols', { description: 5, name: 7 })
    t.equal(answer.statusCode, 422)
    t.same(
      answer.json().detail.map(({ loc, type }: { loc: unknown; type: string }) => [loc, type]),
      [
        [['query', 'update_mask'], 'enum'],
        [['query', 'update_mask'], 'enum'],
        [['body', 'description'], 'string_type'],
      ],
    )
    t.match(answer.json().detail[0].msg, /'nam'/)
  })
  for (const name of ['id', 'is_visible', 'owner', '*', 'name;description', 'Name', '__proto__', 'constructor']) {
    t.test(`422 ${name} is no field`, async t => {
      const answer = await send(`?update_mask=${encodeURIComponent(name)}`, { name: 'x' })
      t.equal(answer.statusCode, 422)
      t.same(
        answer.json().detail.map(({ loc }: { loc: unknown }) => loc),
        [['query', 'update_mask']],
      )
    })
  }
  for (const query of [
    '?update_mask=name&update_mask=name',
    '?update_mask=name&dry_run=true&dry_run=true',
    '?update_mask=name&dryrun=true',
    '?update_mask=name&tool_id=1',
  ]) {
    t.test(`422 ${query}`, async t => {
      const answer = await send(query, { name: 'never stored' })
      t.equal(answer.statusCode, 422)
      t.equal(answer.json().detail.length, 1, answer.body)
      t.equal(answer.json().detail[0].type, 'extra_forbidden')
    })
  }
  for (const value of ['1', 'True', 'yes', '']) {
    t.test(`422 dry_run=${value} never writes`, async t => {
      const answer = await send(`?update_mask=name&dry_run=${value}`, { name: 'never stored' })
      t.equal(answer.statusCode, 422)
      t.same(answer.json().detail[0].loc, ['query', 'dry_run'])
    })
  }
  t.test('200 the empty mask changes nothing and answers the state, whatever the body holds', async t => {
    const answer = await send('?update_mask=', { name: 'ignored', num_chunks: 'not looked at' })
    t.equal(answer.statusCode, 200)
    t.equal(answer.json().name, before.name)
    t.same(warningsOf(answer).sort(), [
      'field name is outside the update_mask and was ignored',
      'field num_chunks is outside the update_mask and was ignored',
    ])
    t.notOk('dry-run' in answer.headers)
  })
  t.test('200 blanks around names and a name twice are read; names in any order', async t => {
    const answer = await send('?update_mask=%20task_prompt%20,name,name&dry_run=true', { name: 'n', task_prompt: 'p' })
    t.equal(answer.statusCode, 200, answer.body)
    t.match(answer.json(), { name: 'n', task_prompt: 'p' })
  })
  t.test('200 strict handling does not look at what is outside the mask', async t => {
    const body = { name: 'n', starter_messages: [{ name: 'a', message: 'b', extra: 1 }] }
    const answer = await send('?update_mask=name&dry_run=true', body, { prefer: 'handling=strict' })
    t.equal(answer.statusCode, 200, answer.body)
    t.same(warningsOf(answer), ['field starter_messages is outside the update_mask and was ignored'])
  })
  t.test('422 a body that is no object, also with the empty mask', async t => {
    for (const body of ['[]', '"x"', '1', 'null', '{']) {
      t.equal((await send('?update_mask=', body)).statusCode, 422, body)
    }
  })
  t.test('nothing of all this was stored', async t => {
    t.same(difference(before, await storedAgent(database.db, AGENT)), {})
    t.same(await auditRows(database.db, 'persona', AGENT), auditedBefore)
  })
})
