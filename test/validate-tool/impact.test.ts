import { sql } from 'kysely'
import t from 'tap'
import { parse } from 'yaml'
import { worldApp } from '../app.js'

const VALIDATE = '/admin/tool/custom/validate'
const { get: GET_ITEM, add: ADD_ITEM } = parse(`
  get:
    operationId: get_item
    summary: Get an item
    parameters:
      - { name: id, in: path, required: true, schema: { type: string } }
      - { name: lang, in: query, schema: { type: string } }
  add:
    operationId: add_item
    summary: Add an item
    requestBody:
      content:
        application/json: { schema: { type: object, properties: { name: { type: string } }, required: [name] } }`)
const document = (getItem: object, addItem: object | null = ADD_ITEM) => ({
  openapi: '3.1.0',
  info: { title: 'Items' },
  servers: [{ url: 'https://a.example.com' }],
  paths: { '/items/{id}': { get: getItem }, ...(addItem && { '/items': { post: addItem } }) },
})

t.test('what the parameter adds to the answer, and for whom', async t => {
  const { call, token, database, admin } = await worldApp(t)
  const validate = (as: string, query: string, definition: unknown = document(GET_ITEM)) =>
    call('POST', VALIDATE + query, { token: as, body: { definition } })

  await t.test('the refusal comes before what is wrong with the definition', async t => {
    const curator = await token('curator@example.com')
    t.equal((await validate(curator, '?tool_id=10', {})).statusCode, 403)
    t.equal((await validate(await token('admin@example.com', { toolIds: [10] }), '?tool_id=11', {})).statusCode, 403)
    t.equal((await validate(admin, '?tool_id=424242', {})).statusCode, 404)
    t.equal((await validate(admin, '?tool_id=10', {})).statusCode, 422)
  })
  await t.test('422 an empty tool_id, or two', async t => {
    for (const query of ['?tool_id=', '?tool_id=10&tool_id=10'])
      t.match((await validate(admin, query)).json(), { detail: [{ loc: ['query', 'tool_id'] }] }, query)
  })

  await t.test('ids of agents that the caller sees, the number of the others', async t => {
    // Curator owns tool 11 and sees agents 13 and 14 through groups, and the public agent 2. Agent 3 is hidden, and agent 7 is deleted.
    for (const persona of [13, 2, 3, 14, 7]) {
      await sql`insert into persona_tool (persona_id, tool_id) values (${persona}, 11)`.execute(database.db)
    }
    const agentsFor = async (person: string) =>
      (await validate(await token(`${person}@example.com`), '?tool_id=11')).json().impact.agents
    t.same(await agentsFor('admin'), { ids: [2, 3, 13, 14], others: 0 }, 'a deleted agent counts for nobody')
    t.same(await agentsFor('curator'), { ids: [2, 13, 14], others: 1 })
    t.same(await agentsFor('gcurator'), { ids: [2, 13], others: 2 }, 'a manager of all tools sees no more agents')
    const narrowed = await token('admin@example.com', { scopes: ['manage:actions'] })
    const { ids, others } = (await validate(narrowed, '?tool_id=11')).json().impact.agents
    t.same([ids, others], [[2, 14], 2], "an administrator's narrower token sees by share only")
  })
  await t.test('every operation is new to a tool that has no definition yet', async t => {
    await sql`update tool set definition_hash = null where id = 17`.execute(database.db)
    const { impact } = (await validate(admin, '?tool_id=17')).json()
    t.match(impact, {
      changes: [
        { kind: 'operation_added', operation: 'get_item' },
        { kind: 'operation_added', operation: 'add_item' },
      ],
      agents: { ids: [], others: 0 },
    })
  })
  await t.test('ids end at a thousand, the rest is counted', async t => {
    await sql`
      with made as (
        insert into persona (name, description, recency_bias, llm_filter_extraction, llm_relevance_filter)
        select 'many ' || n, '', 'auto', false, false from generate_series(1, 1010) n returning id
      ) insert into persona_tool (persona_id, tool_id) select id, 12 from made`.execute(database.db)
    const { ids, others } = (await validate(admin, '?tool_id=12')).json().impact.agents
    t.equal(ids.length, 1000)
    t.equal(others, 10)
  })
})

t.test('what a change of the stored definition means', async t => {
  const { call, admin } = await worldApp(t)
  const store = (body: object) => call('PUT', '/admin/tool/custom/10', { token: admin, body })
  const impactOf = async (definition: unknown) => {
    const answer = await call('POST', `${VALIDATE}?tool_id=10`, { token: admin, body: { definition } })
    t.equal(answer.statusCode, 200, answer.body)
    return answer.json() as { impact: { changes: object[] } }
  }
  await store({ definition: document(GET_ITEM) })
  t.strictSame((await impactOf(document(GET_ITEM))).impact.changes, [])
  t.strictSame((await impactOf(document(GET_ITEM, null))).impact.changes, [
    { kind: 'operation_removed', operation: 'add_item', msg: 'the operation was removed' },
  ])

  const key = { name: 'X-Key', in: 'header', required: true, schema: { type: 'string' } }
  const withKey = document({ ...GET_ITEM, parameters: [...GET_ITEM.parameters, key] })
  const lacking = await impactOf(withKey)
  t.match(lacking.impact.changes, [{ kind: 'argument_added', argument: 'X-Key', to: 'required' }])
  await store({ custom_headers: [{ key: 'x-key', value: 'secret' }] })
  const supplied = await impactOf(withKey)
  t.strictSame(supplied.impact.changes, [], "the tool's own header supplies it")
})
