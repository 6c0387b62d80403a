import { sql } from 'kysely'
import t from 'tap'
import { worldApp } from '../app.js'

const VALIDATE = '/admin/tool/custom/validate'
const GET_ITEM = {
  operationId: 'get_item',
  summary: 'Get an item',
  parameters: [
    { name: 'id', in: 'path', required: true, schema: { type: 'string' } },
    { name: 'lang', in: 'query', schema: { type: 'string' } },
  ],
}
const ADD_ITEM = {
  operationId: 'add_item',
  summary: 'Add an item',
  requestBody: {
    content: {
      'application/json': { schema: { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] } },
    },
  },
}
const document = (getItem: object, addItem: object | null = ADD_ITEM, more: object = {}) => ({
  openapi: '3.1.0',
  info: { title: 'Items' },
  servers: [
    {
      url: 'https://{host}',
      variables: { host: { default: 'a.example.com', enum: ['a.example.com', 'b.example.com'] } },
    },
  ],
  paths: { '/items/{id}': { get: getItem }, ...(addItem && { '/items': { post: addItem } }), ...more },
})

t.test('what the parameter adds to the answer, and for whom', async t => {
  const { call, token, database } = await worldApp(t)
  const admin = await token('admin@example.com')
  const validate = (as: string, query: string, definition: unknown = document(GET_ITEM)) =>
    call('POST', VALIDATE + query, { token: as, body: { definition } })

  await t.test('200 without it the body is exactly the methods', async t => {
    const answer = await validate(admin, '')
    t.same(Object.keys(answer.json()), ['methods'])
    t.equal(answer.json().methods.length, 2)
  })
  await t.test('the status is that of an update of the tool', async t => {
    const people = ['admin', 'gcurator', 'curator', 'alice', 'svc_basic']
    for (const person of people) {
      const as = await token(`${person}@example.com`)
      for (const id of [10, 11, 12, 13, 14, 15, 16, 17, 20, 1, 424242, 0, 2147483648]) {
        const update = await call('PUT', `/admin/tool/custom/${id}?dry_run=true`, { token: as, body: {} })
        const impact = await validate(as, `?tool_id=${id}`)
        t.equal(impact.statusCode, update.statusCode, `${person} ${id}`)
        if (update.statusCode !== 200) {
          t.same({ ...impact.json(), request_id: '' }, { ...update.json(), request_id: '' }, `${person} ${id}`)
        }
      }
    }
  })
  await t.test('the refusal comes before what is wrong with the definition', async t => {
    const curator = await token('curator@example.com')
    t.equal((await validate(curator, '?tool_id=10', {})).statusCode, 403)
    t.equal((await validate(admin, '?tool_id=424242', {})).statusCode, 404)
    t.equal((await validate(admin, '?tool_id=10', {})).statusCode, 422)
  })
  await t.test('422 another tool_id than an integer, or two', async t => {
    for (const query of ['?tool_id=', '?tool_id=x', '?tool_id=1.5', '?tool_id=10&tool_id=10']) {
      const answer = await validate(admin, query)
      t.equal(answer.statusCode, 422, query)
      t.same(answer.json().detail[0].loc, ['query', 'tool_id'])
    }
  })
  await t.test('403 for a token bound to other resources', async t => {
    const bound = await token('admin@example.com', { toolIds: [10] })
    t.equal((await validate(bound, '?tool_id=10')).statusCode, 200)
    t.equal((await validate(bound, '?tool_id=11')).statusCode, 403)
    t.equal((await validate(bound, '?tool_id=424242')).statusCode, 403, 'nor does it learn what exists')
    t.equal((await validate(bound, '')).statusCode, 200)
    const agentsOnly = await token('admin@example.com', { personaIds: [1] })
    t.equal((await validate(agentsOnly, '?tool_id=10')).statusCode, 403)
  })

  await t.test('ids of agents that the caller sees, the number of the others', async t => {
    // Tool 11 is the curator's own: attached to one agent they see by group, to a public one, and to two they do not see.
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
        { class: 'safe', operation: 'get_item' },
        { class: 'safe', operation: 'add_item' },
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

/** Changes of the stored definition and how the strictest of each is classed; `compare.test.ts` has every kind. */
const CHANGES: [what: string, after: unknown, worst: 'breaking' | 'safe' | 'unknown' | 'none', operation?: string][] = [
  ['nothing', document(GET_ITEM), 'none'],
  ['an operation removed', document(GET_ITEM, null), 'breaking', 'add_item'],
  ['an optional parameter no longer sent', document({ ...GET_ITEM, parameters: [GET_ITEM.parameters[0]] }), 'breaking'],
  [
    'an operation added',
    document(GET_ITEM, ADD_ITEM, { '/ping': { get: { operationId: 'ping', summary: 'P' } } }),
    'safe',
    'ping',
  ],
  ['security of the document', { ...document(GET_ITEM), security: [{ key: [] }] }, 'unknown', ''],
  [
    'the default of a server variable changed',
    { ...document(GET_ITEM), servers: [{ url: 'https://{host}', variables: { host: { default: 'b.example.com' } } }] },
    'unknown',
    '',
  ],
]

t.test('what a change of the stored definition means', async t => {
  const { call, token } = await worldApp(t)
  const admin = await token('admin@example.com')
  const stored = await call('PUT', '/admin/tool/custom/10', { token: admin, body: { definition: document(GET_ITEM) } })
  t.equal(stored.statusCode, 200, stored.body)
  for (const [what, definition, worst, operation] of CHANGES) {
    const answer = await call('POST', `${VALIDATE}?tool_id=10`, { token: admin, body: { definition } })
    t.equal(answer.statusCode, 200, `${what}: ${answer.body}`)
    const { changes } = answer.json().impact as { changes: { class: string; operation: string; msg: string }[] }
    const classes = changes.map(change => change.class)
    const found = ['breaking', 'unknown', 'safe'].find(each => classes.includes(each)) ?? 'none'
    t.equal(found, worst, `${what}: ${JSON.stringify(changes)}`)
    if (operation !== undefined)
      t.ok(
        changes.every(change => change.operation === operation),
        JSON.stringify(changes),
      )
    t.ok(changes.every(({ msg }) => msg.length > 0 && !/[\r\n]/.test(msg)))
  }
})
