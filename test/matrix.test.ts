import { readFileSync } from 'node:fs'
import type { LightMyRequestResponse } from 'fastify'
import t from 'tap'
import { REQUIRED_FIELDS, worldApp } from './app.js'
import { matchesGolden } from './golden.js'
import { AGENT_IDS, DEFINITION, matrixCallers, matrixOrganisation, TOOL_IDS } from './matrix-organisation.js'

const DOCUMENT = new URL('../../openapi/openapi.json', import.meta.url)

interface Operation {
  /** A text that begins with the method. */
  title: string
  /** Addresses by the name of the resource. */
  addresses: Map<string, string>
  /** Returns a body with a new change for each `count`; undefined for a request without a body. */
  body: (count: number) => object | undefined
}

const none = () => undefined
const described = (count: number) => ({ description: `description ${count}` })
const agentNamed = (count: number) => {
  return { ...REQUIRED_FIELDS, name: `agent ${count}`, document_set_ids: [], tool_ids: [] }
}
const newTool = () => ({ name: 'new', definition: DEFINITION, passthrough_auth: false })
const firstVersion = () => ({ version: 1 })

/** An operation on each agent or tool of the matrix. `after` is added to the address, for example a query. */
function onEach(title: string, body: Operation['body'] = none, after = ''): Operation {
  const [, path = ''] = title.split(' ')
  const [before = '', end] = path.split(/\{\w+\}/)
  const ids = /persona/.test(path) ? AGENT_IDS : TOOL_IDS
  return { title, addresses: addresses(ids, id => `${before}${id}${end}${after}`), body }
}

function onPaths(title: string, ...paths: string[]): Operation {
  return { title, addresses: new Map(paths.map(path => [path, path])), body: none }
}

/** An operation on one proposal per agent and tool. Proposals to reject or withdraw are already closed, so all callers get the same answer. */
function onProposals(title: string, body: Operation['body'] = none): Operation {
  const [, path = ''] = title.split(' ')
  const closed = /reject|withdraw/.test(path) ? 1_000 : 0
  const ids = [...AGENT_IDS, ...TOOL_IDS].filter(([, id]) => Number(id) >= 100 && Number(id) < 300)
  return {
    title,
    addresses: addresses(new Map(ids), id => path.replace('{proposal_id}', String(Number(id) + closed))),
    body,
  }
}

const DRY = '?dry_run=true'
const VALIDATE = '/admin/tool/custom/validate'
const OPERATIONS: Operation[] = [
  onEach('PATCH /persona/{persona_id}', described, '?update_mask=description'),
  { title: 'POST /persona', addresses: new Map([['a new agent', '/persona']]), body: agentNamed },
  onEach('DELETE /persona/{persona_id}', none, DRY),
  onEach('POST /persona/{persona_id}/restore', firstVersion, DRY),
  onEach('PUT /admin/tool/custom/{tool_id}', described),
  onEach('POST /admin/tool/custom/{tool_id}/restore', firstVersion, DRY),
  { title: 'POST /admin/tool/custom', addresses: new Map([['a new tool', '/admin/tool/custom']]), body: newTool },
  onEach('DELETE /admin/tool/custom/{tool_id}', none, DRY),
  {
    title: `POST ${VALIDATE}`,
    addresses: new Map([['no tool named', VALIDATE], ...addresses(TOOL_IDS, id => `${VALIDATE}?tool_id=${id}`)]),
    body: () => ({ definition: DEFINITION }),
  },
  onEach('GET /persona/{persona_id}'),
  onEach('GET /tool/{tool_id}'),
  onEach('GET /persona/{persona_id}/history', none, '?limit=1'),
  onEach('GET /tool/{tool_id}/history', none, '?limit=1'),
  onEach('GET /runtime/persona/{persona_id}'),
  onEach('GET /tool/{tool_id}/headers'),
  onProposals('GET /proposals/{proposal_id}'),
  onProposals('POST /proposals/{proposal_id}/approve'),
  onProposals('POST /proposals/{proposal_id}/reject', () => ({ reason: 'no' })),
  onProposals('POST /proposals/{proposal_id}/withdraw'),
  onPaths('GET /proposals', '/proposals'),
  onPaths('GET /persona, GET /tool, GET /me, GET /changes', '/persona', '/tool', '/me', '/changes'),
]

/** The additional operations of the newer API below `/api`, as dry runs. */
const TODAYS: Operation[] = [
  onEach('PATCH /api/persona/{persona_id}/share', () => ({ label_ids: [2] }), DRY),
  onEach('PATCH /api/admin/persona/{persona_id}/featured', () => ({ is_featured: true }), DRY),
  onEach('PATCH /api/admin/persona/{persona_id}/listed', () => ({ is_listed: false }), DRY),
  ...[...AGENT_IDS].map(([resource, id]) => ({
    title: 'PATCH /api/admin/agents/display-priorities',
    addresses: new Map([[resource, `/api/admin/agents/display-priorities${DRY}`]]),
    body: () => ({ display_priority_map: { [id]: 3 } }),
  })),
  ...[...TOOL_IDS].map(([resource, id]) => ({
    title: 'PATCH /api/admin/tool/status',
    addresses: new Map([[resource, `/api/admin/tool/status${DRY}`]]),
    body: () => ({ tool_ids: [Number(id)], enabled: false }),
  })),
  onEach('DELETE /api/admin/tool/custom/{tool_id}', none, DRY), // unlike the operation at the root, detaches the tool from the caller's agents
  onPaths(
    'GET of lists',
    ...['persona', 'admin/persona', 'tool', 'tool/openapi', 'persona/labels'].map(path => `/api/${path}`),
  ),
]

function addresses(ids: Map<string, number | string>, path: (id: number | string) => string): Map<string, string> {
  return new Map([...ids].map(([name, id]) => [name, path(id)]))
}

/** The number of requests that the test sends at once. A token can use half of the pool, so the pool is twice as large. */
const AT_ONCE = 10

const world = await worldApp(t, { DATABASE_POOL_SIZE: String(2 * AT_ONCE) })
await world.apply(matrixOrganisation())
await world.query`
  insert into proposal (id, resource_kind, resource_id, base_version, author_id, message, fields, size_bytes, state)
  overriding system value
  select r.id + closed, r.kind, r.id, 1, u.id, '', '{"description": "proposed"}', 9, case closed when 0 then 'open' else 'rejected' end
  from (select id, 'persona' as kind from persona union all select id, 'tool' from tool) r, user_account u,
    (values (0), (1000)) c (closed)
  where u.email = 'owner@example.com' and r.id between 100 and 299`
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
  atRoot = await askEach(nextCells())
  const failed = atRoot.filter(([, { statusCode }]) => statusCode >= 500).map(([{ caller, url }]) => `${caller} ${url}`)
  t.strictSame(failed, [])
  matchesGolden(t, 'test/golden/caller-matrix.txt', inText(atRoot))
  t.equal((await auditRows()) - before, writtenBy(atRoot), 'each 200 or 201 of a change wrote once, nothing else wrote')
})

t.test('below /api the same operations answer every caller as at the root; those of its own', async t => {
  const operations = OPERATIONS.filter(
    ({ title }) => !/history|restore|runtime|headers|proposal|GET \/persona, |DELETE \/admin/.test(title),
  )
  const answers = await askEach(nextCells(operations).map(cell => ({ ...cell, url: `/api${cell.url}` })))
  t.equal(inText(answers), inText(atRoot.filter(([{ operation }]) => operations.includes(operation))))
  for (const [{ caller, url, body }, answer] of answers)
    if (answer.statusCode === 200 && body && 'description' in body)
      t.equal(answer.json().description, body.description, `${caller} ${url}: its own change`)
  matchesGolden(t, 'test/golden/caller-matrix-today.txt', inText(await askEach(nextCells(TODAYS)), TODAYS))
})

t.test('proposing takes the sight of an agent, or the right to update a tool', async t => {
  const ofAgents = onEach('PATCH /persona/{persona_id}', described, '?update_mask=description&propose=true')
  const operations = [ofAgents, onEach('PUT /admin/tool/custom/{tool_id}', described, '?propose=true')]
  const answers: Answered[] = []
  for (const cell of nextCells(operations)) {
    const [, path = '', id = '0'] = /(persona|custom)\/(\d+)/.exec(cell.url) ?? []
    const kind = path === 'persona' ? 'persona' : 'tool'
    const [row] = await world.query<{ version: number }>`
      select coalesce(t.version, p.version) as version from (select ${id}::bigint as id, ${kind} as kind) asked
      left join tool t on t.id = asked.id and kind = 'tool' left join persona p on p.id = asked.id and kind = 'persona'`
    answers.push(await ask(cell, { 'if-match': `"${kind}-${id}-${row?.version ?? 1}"` }))
    await world.query`delete from proposal`
  }
  matchesGolden(t, 'test/golden/caller-matrix-proposals.txt', inText(answers, operations))
})

type Answered = [Cell, LightMyRequestResponse]

interface Cell {
  operation: Operation
  caller: string
  authorization: string | undefined
  resource: string
  url: string
  body: object | undefined
}

/** Returns a request for each operation, caller and address. Each body makes a new change. */
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

async function ask(cell: Cell, more: Record<string, string> = {}): Promise<Answered> {
  const { operation, authorization, url, body } = cell
  const headers = { ...more, ...(authorization !== undefined && { authorization }) }
  return [cell, await world.call(methodOf(operation), url, { headers, ...(body !== undefined && { body }) })]
}

/** Sends several requests at once, because sending one after another takes long on a busy machine. */
async function askEach(cells: Cell[]): Promise<Answered[]> {
  const answers: Answered[] = []
  for (let at = 0; at < cells.length; at += AT_ONCE)
    answers.push(...(await Promise.all(cells.slice(at, at + AT_ONCE).map(cell => ask(cell)))))
  return answers
}

function methodOf({ title }: Operation): string {
  return title.split(' ')[0] ?? ''
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
  const isWritten = ([{ operation }, { statusCode }]: Answered) =>
    statusCode === 201 || (statusCode === 200 && ['PATCH', 'PUT'].includes(methodOf(operation)))
  return answers.filter(isWritten).length
}

function inWords(answer: LightMyRequestResponse): string {
  if (answer.statusCode < 300) return String(answer.statusCode)
  const { error_code, detail } = answer.json()
  return `${answer.statusCode} ${error_code ?? detail.map(({ type }: { type: string }) => type).join(' ')}`
}

/** Returns one line for each different answer with its resources, or with `everything` if all answers are the same. */
function grouped(cells: [answer: string, resource: string][]): string[] {
  const answers = new Map<string, string[]>()
  for (const [answer, resource] of cells) answers.set(answer, [...(answers.get(answer) ?? []), resource])
  return [...answers].map(([answer, resources]) => {
    return `    ${answer}: ${answers.size === 1 ? 'everything' : resources.join('; ')}`
  })
}

async function auditRows(): Promise<number> {
  return (await world.query`select from audit`).length
}
