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

const none = () => undefined
const described = (count: number) => ({ description: `description ${count}` })
const agentNamed = (count: number) => {
  return { ...REQUIRED_FIELDS, name: `agent ${count}`, document_set_ids: [], tool_ids: [] }
}
const newTool = () => ({ name: 'new', definition: DEFINITION, passthrough_auth: false })
const firstVersion = () => ({ version: 1 })

/** An operation on each agent or tool of the matrix; what is after the id in the address may be a query. */
function onEach(title: string, body: Operation['body'] = none, after = ''): Operation {
  const [method = '', path = ''] = title.split(' ')
  const [before = '', end] = path.split(/\{\w+\}/)
  const ids = /persona/.test(path) ? AGENT_IDS : TOOL_IDS
  return { title, method, addresses: addresses(ids, id => `${before}${id}${end}${after}`), body }
}

function onAddresses(title: string, body: Operation['body'], ...paths: string[]): Operation {
  return { title, method: title.split(' ')[0] ?? '', addresses: new Map(paths.map(path => [path, path])), body }
}

const DRY = '?dry_run=true'
const VALIDATE = '/admin/tool/custom/validate'
const OPERATIONS: Operation[] = [
  onEach('PATCH /persona/{persona_id}', described, '?update_mask=description'),
  { ...onAddresses('POST /persona', agentNamed), addresses: new Map([['a new agent', '/persona']]) },
  onEach('DELETE /persona/{persona_id}', none, DRY),
  onEach('POST /persona/{persona_id}/restore', firstVersion, DRY),
  onEach('PUT /admin/tool/custom/{tool_id}', described),
  onEach('POST /admin/tool/custom/{tool_id}/restore', firstVersion, DRY),
  { ...onAddresses('POST /admin/tool/custom', newTool), addresses: new Map([['a new tool', '/admin/tool/custom']]) },
  onEach('DELETE /admin/tool/custom/{tool_id}', none, DRY),
  {
    title: `POST ${VALIDATE}`,
    method: 'POST',
    addresses: new Map([['no tool named', VALIDATE], ...addresses(TOOL_IDS, id => `${VALIDATE}?tool_id=${id}`)]),
    body: () => ({ definition: DEFINITION }),
  },
  onEach('GET /persona/{persona_id}'),
  onEach('GET /tool/{tool_id}'),
  onEach('GET /persona/{persona_id}/history', none, '?limit=1'),
  onEach('GET /tool/{tool_id}/history', none, '?limit=1'),
  onAddresses('GET /persona, GET /tool, GET /me', none, '/persona', '/tool', '/me'),
]

/** Those that today's clients of the published product have in addition, below `/api`; as dry runs. */
const TODAYS: Operation[] = [
  onEach('PATCH /api/persona/{persona_id}/share', () => ({ label_ids: [2] }), DRY),
  onEach('PATCH /api/admin/persona/{persona_id}/featured', () => ({ is_featured: true }), DRY),
  onEach('PATCH /api/admin/persona/{persona_id}/listed', () => ({ is_listed: false }), DRY),
  ...[...AGENT_IDS].map(([resource, id]) => ({
    title: 'PATCH /api/admin/agents/display-priorities',
    method: 'PATCH',
    addresses: new Map([[resource, `/api/admin/agents/display-priorities${DRY}`]]),
    body: () => ({ display_priority_map: { [id]: 3 } }),
  })),
  ...[...TOOL_IDS].map(([resource, id]) => ({
    title: 'PATCH /api/admin/tool/status',
    method: 'PATCH',
    addresses: new Map([[resource, `/api/admin/tool/status${DRY}`]]),
    body: () => ({ tool_ids: [Number(id)], enabled: false }),
  })),
  onEach('DELETE /api/admin/tool/custom/{tool_id}', none, DRY), // off the caller's agents, which the root refuses
  onAddresses(
    'GET of lists',
    none,
    ...['/api/persona', '/api/admin/persona', '/api/tool', '/api/tool/openapi', '/api/persona/labels'],
  ),
]

function addresses(ids: Map<string, number | string>, path: (id: number | string) => string): Map<string, string> {
  return new Map([...ids].map(([name, id]) => [name, path(id)]))
}

// All are asked at once, with tokens that this process has not seen, from one address.
const LONG = { LOCK_TIMEOUT_MS: '60000', STATEMENT_TIMEOUT_MS: '60000' } // on a busy machine each waits for its turn
const world = await worldApp(t, { CONCURRENT_REQUESTS_MAX: '5000', ...LONG })
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

async function auditRows(): Promise<number> {
  const [row] = await world.database.db
    .selectFrom('audit')
    .select(eb => eb.cast<number>(eb.fn.countAll(), 'integer').as('count'))
    .execute()
  return row?.count ?? 0
}
