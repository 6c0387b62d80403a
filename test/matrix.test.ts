import { readFileSync } from 'node:fs'
import type { LightMyRequestResponse } from 'fastify'
import t from 'tap'
import { applyOrganisation } from '../src/admin/apply.js'
import { REQUIRED_FIELDS, worldApp } from './app.js'
import { matchesGolden } from './golden.js'
import { AGENT_IDS, DEFINITION, matrixCallers, matrixOrganisation, TOOL_IDS } from './matrix-organisation.js'

const DOCUMENT = new URL('../../openapi/openapi.json', import.meta.url)

interface Operation {
  title: string
  method: string
  /** Address by what the address is to the callers. */
  addresses: Map<string, string>
  /** A body that changes the row each time it is sent; a read has none. */
  body: (count: number) => object | undefined
}

const OPERATIONS: Operation[] = [
  {
    title: 'PATCH /persona/{persona_id}',
    method: 'PATCH',
    addresses: addresses(AGENT_IDS, id => `/persona/${id}?update_mask=description`),
    body: count => ({ description: `description ${count}` }),
  },
  {
    title: 'POST /persona',
    method: 'POST',
    addresses: new Map([['a new agent', '/persona']]),
    body: count => ({ ...REQUIRED_FIELDS, name: `agent ${count}`, document_set_ids: [], tool_ids: [] }),
  },
  {
    title: 'DELETE /persona/{persona_id}',
    method: 'DELETE',
    addresses: addresses(AGENT_IDS, id => `/persona/${id}?dry_run=true`),
    body: () => undefined,
  },
  {
    title: 'POST /persona/{persona_id}/restore',
    method: 'POST',
    addresses: addresses(AGENT_IDS, id => `/persona/${id}/restore?dry_run=true`),
    body: () => ({ version: 1 }),
  },
  {
    title: 'PUT /admin/tool/custom/{tool_id}',
    method: 'PUT',
    addresses: addresses(TOOL_IDS, id => `/admin/tool/custom/${id}`),
    body: count => ({ description: `description ${count}` }),
  },
  {
    title: 'POST /admin/tool/custom/{tool_id}/restore',
    method: 'POST',
    addresses: addresses(TOOL_IDS, id => `/admin/tool/custom/${id}/restore?dry_run=true`),
    body: () => ({ version: 1 }),
  },
  {
    title: 'POST /admin/tool/custom',
    method: 'POST',
    addresses: new Map([['a new tool', '/admin/tool/custom']]),
    body: () => ({ name: 'new', definition: DEFINITION, passthrough_auth: false }),
  },
  {
    title: 'DELETE /admin/tool/custom/{tool_id}',
    method: 'DELETE',
    addresses: addresses(TOOL_IDS, id => `/admin/tool/custom/${id}?dry_run=true`),
    body: () => undefined,
  },
  {
    title: 'POST /admin/tool/custom/validate',
    method: 'POST',
    addresses: new Map([
      ['no tool named', '/admin/tool/custom/validate'],
      ...addresses(TOOL_IDS, id => `/admin/tool/custom/validate?tool_id=${id}`),
    ]),
    body: () => ({ definition: DEFINITION }),
  },
  {
    title: 'GET /persona/{persona_id}',
    method: 'GET',
    addresses: addresses(AGENT_IDS, id => `/persona/${id}`),
    body: () => undefined,
  },
  {
    title: 'GET /tool/{tool_id}',
    method: 'GET',
    addresses: addresses(TOOL_IDS, id => `/tool/${id}`),
    body: () => undefined,
  },
  {
    title: 'GET /persona/{persona_id}/history',
    method: 'GET',
    addresses: addresses(AGENT_IDS, id => `/persona/${id}/history?limit=1`),
    body: () => undefined,
  },
  {
    title: 'GET /tool/{tool_id}/history',
    method: 'GET',
    addresses: addresses(TOOL_IDS, id => `/tool/${id}/history?limit=1`),
    body: () => undefined,
  },
  {
    title: 'GET /persona, GET /tool, GET /me',
    method: 'GET',
    addresses: new Map(['/persona', '/tool', '/me'].map(path => [path, path])),
    body: () => undefined,
  },
]

/** Those that today's clients of the published product have in addition, below `/api`; as dry runs. */
const TODAYS: Operation[] = [
  {
    title: 'PATCH /api/persona/{persona_id}/share',
    method: 'PATCH',
    addresses: addresses(AGENT_IDS, id => `/api/persona/${id}/share?dry_run=true`),
    body: () => ({ label_ids: [2] }),
  },
  {
    title: 'PATCH /api/admin/persona/{persona_id}/featured',
    method: 'PATCH',
    addresses: addresses(AGENT_IDS, id => `/api/admin/persona/${id}/featured?dry_run=true`),
    body: () => ({ is_featured: true }),
  },
  {
    title: 'PATCH /api/admin/persona/{persona_id}/listed',
    method: 'PATCH',
    addresses: addresses(AGENT_IDS, id => `/api/admin/persona/${id}/listed?dry_run=true`),
    body: () => ({ is_listed: false }),
  },
  ...[...AGENT_IDS].map(([resource, id]) => ({
    title: 'PATCH /api/admin/agents/display-priorities',
    method: 'PATCH',
    addresses: new Map([[resource, '/api/admin/agents/display-priorities?dry_run=true']]),
    body: () => ({ display_priority_map: { [id]: 3 } }),
  })),
  ...[...TOOL_IDS].map(([resource, id]) => ({
    title: 'PATCH /api/admin/tool/status',
    method: 'PATCH',
    addresses: new Map([[resource, '/api/admin/tool/status?dry_run=true']]),
    body: () => ({ tool_ids: [Number(id)], enabled: false }),
  })),
  {
    title: 'DELETE /api/admin/tool/custom/{tool_id}', // takes the tool off the caller's agents, which the root refuses
    method: 'DELETE',
    addresses: addresses(TOOL_IDS, id => `/api/admin/tool/custom/${id}?dry_run=true`),
    body: () => undefined,
  },
  {
    title: 'GET of lists',
    method: 'GET',
    addresses: new Map(
      ['/api/persona', '/api/admin/persona', '/api/tool', '/api/tool/openapi', '/api/persona/labels'].map(path => [
        path,
        path,
      ]),
    ),
    body: () => undefined,
  },
]

function addresses(ids: Map<string, number | string>, path: (id: number | string) => string): Map<string, string> {
  return new Map([...ids].map(([name, id]) => [name, path(id)]))
}

// All are asked at once, with tokens that this process has not seen, from one address.
const world = await worldApp(t, { CONCURRENT_REQUESTS_MAX: '5000' })
await applyOrganisation(world.database, matrixOrganisation(), { ring: world.ring, env: {} })
const callers = await matrixCallers(world)
let count = 0
let atRoot: Answered[] = []

t.test('every operation of the document has its rows', async t => {
  const { paths } = JSON.parse(readFileSync(DOCUMENT, 'utf8')) as { paths: Record<string, object> }
  const documented = Object.entries(paths).flatMap(([path, item]) =>
    Object.keys(item).map(method => `${method.toUpperCase()} ${path}`),
  )
  const rows = OPERATIONS.flatMap(({ title }) => title.split(', '))
  t.strictSame(rows.sort(), documented.filter(title => !title.startsWith('HEAD ')).sort())
})

t.test('every kind of caller gets of every operation and resource what the decisions say', async t => {
  const before = await auditRows()
  const answers: Answered[] = []
  for (const cell of nextCells()) answers.push([cell, await ask(cell)])
  atRoot = answers
  t.strictSame(
    answers.filter(([, { statusCode }]) => statusCode >= 500).map(([{ caller, url }]) => `${caller} ${url}`),
    [],
  )
  matchesGolden(t, 'test/golden/caller-matrix.txt', inText(answers))
  t.equal(
    (await auditRows()) - before,
    writtenBy(answers),
    'each 200 or 201 of a change wrote once, nothing else wrote',
  )
})

t.test('asked all at the same time, and so together of the database, each gets its own answer', async t => {
  const before = await auditRows()
  const answers: Answered[] = []
  const cells = nextCells()
  for (const operation of OPERATIONS) {
    const own = cells.filter(cell => cell.operation === operation)
    answers.push(...(await Promise.all(own.map(async (cell): Promise<Answered> => [cell, await ask(cell)]))))
  }
  matchesGolden(t, 'test/golden/caller-matrix.txt', inText(answers))
  t.equal(
    (await auditRows()) - before,
    writtenBy(answers),
    'each 200 or 201 of a change wrote once, nothing else wrote',
  )
  const others = answers.filter(([{ body }, answer]) => {
    return answer.statusCode === 200 && body && 'description' in body && answer.json().description !== body.description
  })
  t.strictSame(
    others.map(([{ caller, url }]) => `${caller} ${url}`),
    [],
    'each its own change',
  )
})

t.test(
  'below /api the same operations answer every caller as at the root, and those of their own as recorded',
  async t => {
    const isBelow = ({ title }: Operation) => !/history|restore|GET \/persona, |DELETE \/admin/.test(title)
    const answers: Answered[] = []
    for (const cell of nextCells().filter(({ operation }) => isBelow(operation)))
      answers.push([cell, await ask({ ...cell, url: `/api${cell.url}` })])
    t.equal(inText(answers), inText(atRoot.filter(([{ operation }]) => isBelow(operation))))
    const own: Answered[] = []
    for (const cell of nextCells(TODAYS)) own.push([cell, await ask(cell)])
    matchesGolden(t, 'test/golden/caller-matrix-today.txt', inText(own, TODAYS))
  },
)

type Answered = [Cell, LightMyRequestResponse]

interface Cell {
  operation: Operation
  caller: string
  authorization: string | undefined
  resource: string
  url: string
  body: object | undefined
}

/** Every request, each with a change that none before made. */
function nextCells(operations = OPERATIONS): Cell[] {
  return operations.flatMap(operation =>
    [...callers].flatMap(([caller, authorization]) =>
      [...operation.addresses].map(([resource, url]) => {
        count += 1
        return { operation, caller, authorization, resource, url, body: operation.body(count) }
      }),
    ),
  )
}

function ask({ operation, authorization, url, body }: Cell): Promise<LightMyRequestResponse> {
  const headers = authorization === undefined ? {} : { authorization }
  return world.call(operation.method, url, { headers, ...(body !== undefined && { body }) })
}

function inText(answers: Answered[], operations = OPERATIONS): string {
  const text: string[] = []
  for (const title of new Set(operations.map(({ title }) => title))) {
    text.push(title)
    const own = answers.filter(([{ operation }]) => operation.title === title)
    for (const caller of new Set(own.map(([cell]) => cell.caller))) {
      const cells = own.filter(([cell]) => cell.caller === caller)
      text.push(`  ${caller}`, ...grouped(cells.map(([{ resource }, answer]) => [inWords(answer), resource])))
    }
  }
  return `${text.join('\n')}\n`
}

function writtenBy(answers: Answered[]): number {
  return answers.filter(
    ([{ operation }, { statusCode }]) =>
      statusCode === 201 || (statusCode === 200 && ['PATCH', 'PUT'].includes(operation.method)),
  ).length
}

t.test('404: what the caller cannot see answers like what does not exist, to the last header', async t => {
  const headersOf = (caller: string, more: object = {}) => {
    return { authorization: callers.get(caller) ?? '', 'x-request-id': 'same', ...more }
  }
  const patch = async (caller: string, id: number | string | undefined, query: string, body: object, more = {}) => {
    return whole(await world.call('PATCH', `/persona/${id}${query}`, { headers: headersOf(caller, more), body }))
  }
  const invisible = ['private', 'shared', 'shared, hidden', 'private built-in', 'shared, deleted'] as const
  const requests: [string, object, object][] = [
    ['?update_mask=description', { description: 'x' }, {}],
    ['?update_mask=description', { description: 'x' }, { 'if-match': '"persona-100-1"' }],
    ['?update_mask=&dry_run=true', {}, {}],
    ['?update_mask=tool_ids', { tool_ids: [999_999] }, { prefer: 'handling=strict' }],
    ['', { name: 1 }, {}],
  ]
  for (const caller of ['stranger', 'manage:actions by user', 'service account', "admin's token of scope basic"]) {
    for (const [query, body, more] of requests) {
      const absent = await patch(caller, 999_999, query, body, more)
      for (const relation of invisible) {
        const found = await patch(caller, AGENT_IDS.get(relation), query, body, more)
        t.strictSame(found, absent, `${caller}, ${relation}, ${query} ${JSON.stringify(body)}`)
      }
    }
  }
})

t.test('422: references to what the caller cannot see answer like references to what does not exist', async t => {
  const patch = async (body: object) => {
    const headers = { authorization: callers.get('editor by user') ?? '', 'x-request-id': 'same' }
    const url = `/persona/${AGENT_IDS.get('shared')}?update_mask=${Object.keys(body).join(',')}`
    return whole(await world.call('PATCH', url, { headers, body }))
  }
  const absent = await patch({ document_set_ids: [999_999], user_file_ids: ['nowhere'] })
  t.equal(absent.status, 422)
  t.strictSame(await patch({ document_set_ids: [2], user_file_ids: ['f0000000-0000-4000-8000-000000000001'] }), absent)
})

function inWords(answer: LightMyRequestResponse): string {
  if (answer.statusCode < 300) return String(answer.statusCode)
  const { error_code, detail } = answer.json()
  return `${answer.statusCode} ${error_code ?? detail.map(({ type }: { type: string }) => type).join(' ')}`
}

/** One line for each answer, with the resources that got it in the order in which they were asked. */
function grouped(cells: [answer: string, resource: string][]): string[] {
  const answers = new Map<string, string[]>()
  for (const [answer, resource] of cells) answers.set(answer, [...(answers.get(answer) ?? []), resource])
  return [...answers].map(([answer, resources]) => {
    return `    ${answer}: ${answers.size === 1 ? 'everything' : resources.join('; ')}`
  })
}

/** Everything of an answer but the clock. */
function whole({ statusCode, headers, body }: LightMyRequestResponse) {
  const { date: _, ratelimit: __, ...others } = headers // what is left of quotas differs
  return { status: statusCode, headers: others, body }
}

async function auditRows(): Promise<number> {
  const [row] = await world.database.db
    .selectFrom('audit')
    .select(eb => eb.cast<number>(eb.fn.countAll(), 'integer').as('count'))
    .execute()
  return row?.count ?? 0
}
