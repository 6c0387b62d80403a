import t from 'tap'
import { type WorldApp, worldApp } from '../app.js'
import { AGENT_FIELD_ROWS, type FieldFixture, REQUIRED_AGENT_FIELDS } from '../fixtures/agent-fields.js'
import { auditRows, difference, type Stored, versionOf, warningsOf } from '../updates/stored-state.js'
import { FULL_AGENT_ID, makeBobEditor, storedAgent } from './stored-agent.js'

const PATH = `/persona/${FULL_AGENT_ID}`

t.test('200 a mask of one field writes that field and nothing else, and null there means null', async t => {
  const world = await worldApp(t)
  await makeBobEditor(world)
  const { call, token, database } = world
  const admin = await token('admin@example.com')
  const send = (query: string, body: unknown) => call('PATCH', `${PATH}${query}`, { token: admin, body })
  for (const [field, { accepted, null: nothing, maskedNull = nothing }] of AGENT_FIELD_ROWS) {
    const before = await contentOf(world)
    const { sent, becomes } = firstChange(before, accepted)
    const answer = await send(`?update_mask=${field}`, { [field]: sent })
    t.equal(answer.statusCode, 200, `${field}: ${answer.body}`)
    const after = await contentOf(world)
    t.same(difference(before, after), becomes, field)
    const row = (await auditRows(database.db, 'persona', FULL_AGENT_ID)).at(-1)
    t.same(row?.fields, Object.keys(becomes), `${field} alone is in the audit row`)
    t.equal(row?.version_after, versionOf(answer))

    const again = await send(`?update_mask=${field}`, { [field]: sent })
    t.equal(again.headers.etag, answer.headers.etag, `${field} sent again changes nothing`)

    const absent = await send(`?update_mask=${field}`, {})
    t.equal(absent.statusCode, 422)
    t.same(absent.json(), { detail: [{ loc: ['body', field], msg: 'Field required', type: 'missing' }] })

    const cleared = await send(`?update_mask=${field}`, { [field]: null })
    if (typeof maskedNull === 'string') {
      t.equal(cleared.statusCode, 422, `${field}: null`)
      t.same(cleared.json().detail[0].loc, ['body', field])
    } else {
      t.equal(cleared.statusCode, 200, `${field}: null ${cleared.body}`)
      t.same(difference(after, await contentOf(world)), maskedNull, `${field}: null`)
    }
  }
})

t.test('200 without a mask an optional field is written alone, and what is absent stays', async t => {
  const world = await worldApp(t)
  await makeBobEditor(world)
  const admin = await world.token('admin@example.com')
  for (const [field, { accepted }] of AGENT_FIELD_ROWS) {
    const before = await contentOf(world)
    const { sent, becomes } = firstChange(before, accepted)
    const required = Object.fromEntries(REQUIRED_AGENT_FIELDS.map(name => [name, before[name]]))
    const answer = await world.call('PATCH', PATH, { token: admin, body: { ...required, [field]: sent } })
    t.equal(answer.statusCode, 200, `${field}: ${answer.body}`)
    t.same(difference(before, await contentOf(world)), becomes, field)
  }
})

t.test('200 the nullable fields whose null leaves them alone clear only inside a mask', async t => {
  const world = await worldApp(t)
  const { call, token } = world
  const admin = await token('admin@example.com')
  const before = await contentOf(world)
  const required = Object.fromEntries(REQUIRED_AGENT_FIELDS.map(name => [name, before[name]]))
  const kept = AGENT_FIELD_ROWS.filter(([, row]) => row.null === 'kept')
  t.ok(kept.length >= 5)
  const nulls = Object.fromEntries(kept.map(([name]) => [name, null]))
  const whole = await call('PATCH', PATH, { token: admin, body: { ...required, ...nulls } })
  t.equal(whole.statusCode, 200, whole.body)
  t.same(difference(before, await contentOf(world)), {})
  const mask = Object.keys(nulls).join(',')
  const masked = await call('PATCH', `${PATH}?update_mask=${mask}`, { token: admin, body: nulls })
  t.equal(masked.statusCode, 200, masked.body)
  t.same(difference(before, await contentOf(world)), Object.assign({}, ...kept.map(([, { maskedNull }]) => maskedNull)))
})

t.test('the rules of the mask itself', async t => {
  const world = await worldApp(t)
  const { call, token, database } = world
  const admin = await token('admin@example.com')
  const send = (query: string, body: unknown, headers = {}) =>
    call('PATCH', `${PATH}${query}`, { token: admin, body, headers })
  const before = await contentOf(world)
  const auditedBefore = await auditRows(database.db, 'persona', FULL_AGENT_ID)

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
    t.match(answer.json().detail[0].msg, /'nam' is not a field: did you mean 'name'\?$/)
  })
  t.test('422 a field that the mask names is missing: the header says which of the body was meant', async t => {
    const answer = await send('?update_mask=description,tool_ids', {
      descripton: 'x',
      toolids: [],
      ['x'.repeat(70)]: 1,
    })
    t.equal(answer.statusCode, 422)
    t.same(answer.json().detail, [
      { loc: ['body', 'description'], msg: 'Field required', type: 'missing' },
      { loc: ['body', 'tool_ids'], msg: 'Field required', type: 'missing' },
    ])
    t.same(warningsOf(answer), [
      "unknown field descripton: did you mean 'description'?",
      "unknown field toolids: did you mean 'tool_ids'?",
    ])
    const whole = await send('', { nmae: 'x' })
    t.same(warningsOf(whole), [
      'to change single fields, name them in update_mask, such as ?update_mask=name',
      "unknown field nmae: did you mean 'name'?",
    ])
    t.same(warningsOf(await send('?update_mask=name', { other: 1 })), [], 'nothing is near')
  })
  for (const name of ['id', 'is_visible', 'owner', '*', 'name;description', 'Name', '__proto__', 'constructor']) {
    t.test(`422 ${name} is not a field`, async t => {
      const answer = await send(`?update_mask=${encodeURIComponent(name)}`, { name: 'x' })
      t.equal(answer.statusCode, 422)
      t.same(
        answer.json().detail.map(({ loc }: { loc: unknown }) => loc),
        [['query', 'update_mask']],
      )
    })
  }
  const repeated = 'parameter_repeated: Input should be given once, and was given more than once'
  const extra = 'extra_forbidden: Extra inputs are not permitted'
  for (const [query, fault] of [
    ['?update_mask=name&update_mask=name', repeated],
    ['?update_mask=name&dry_run=true&dry_run=true', repeated],
    ['?update_mask=name&dryrun=true', `${extra}: did you mean 'dry_run'?`],
    ['?update_mask=name&tool_id=1', extra],
    ['?update_mask=name&tool_id=1&tool_id=2', extra],
  ] as const) {
    t.test(`422 ${query}`, async t => {
      const answer = await send(query, { name: 'never stored' })
      t.equal(answer.statusCode, 422)
      t.same(
        answer.json().detail.map(({ type, msg }: { type: string; msg: string }) => `${type}: ${msg}`),
        [fault],
      )
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
    t.same(difference(before, await contentOf(world)), {})
    t.same(await auditRows(database.db, 'persona', FULL_AGENT_ID), auditedBefore)
  })
})

/** The first accepted value of a field that this agent has not, and what it changes. */
function firstChange(before: Stored, accepted: FieldFixture['accepted']): { sent: unknown; becomes: Stored } {
  for (const [sent, stored] of accepted) {
    const becomes = difference(before, { ...before, ...stored })
    if (Object.keys(becomes).length > 0) return { sent, becomes }
  }
  throw new Error('no accepted value changes the agent')
}

/** Everything of the agent that has everything, but for its version. */
async function contentOf(world: WorldApp): Promise<Stored> {
  const { version: _, ...content } = await storedAgent(world, FULL_AGENT_ID)
  return content
}
