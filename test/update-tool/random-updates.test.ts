import fc from 'fast-check'
import t from 'tap'
import { decryptSecret } from '../../src/secrets/cipher.js'
import { type WorldApp, worldApp } from '../app.js'
import { auditRows, repetitions, storedTool } from '../updates/stored-state.js'

const TOOL = 16
const PATH = `/admin/tool/custom/${TOOL}`

/** What a tool is to its model: DECISIONS section 4, read anew. Header values are plain; `#` as a value is the mask. */
interface ModelTool {
  name: unknown
  description: unknown
  definition: string
  headers: [name: string, value: string][]
  passthrough: boolean
  oauth: number | null
}

interface ToolBody {
  name?: string | null
  description?: string | null
  definition?: object | null
  custom_headers?: { key: string; value: string }[] | null
  passthrough_auth?: boolean | null
  oauth_config_id?: number | null
}

function modelUpdate(tool: ModelTool, body: ToolBody): { status: number; tool: ModelTool } {
  const headers = body.custom_headers?.map(({ key, value }): [string, string] => {
    const kept = tool.headers.find(([name]) => name.toLowerCase() === key.toLowerCase())
    return [key, value === '#' ? (kept?.[1] ?? 'refused') : value]
  })
  const next: ModelTool = {
    name: body.name ?? tool.name,
    description: body.description ?? tool.description,
    definition: body.definition ? JSON.stringify(body.definition) : tool.definition,
    headers: headers ?? tool.headers,
    passthrough: body.passthrough_auth ?? tool.passthrough,
    oauth: body.oauth_config_id === undefined ? tool.oauth : body.oauth_config_id,
  }
  const names = next.headers.map(([name]) => name.toLowerCase())
  const refused =
    new Set(names).size < names.length ||
    next.headers.some(([, value]) => value === 'refused') ||
    (next.passthrough && names.includes('authorization')) ||
    (next.oauth !== null && ![1, 2].includes(next.oauth))
  return refused ? { status: 422, tool } : { status: 200, tool: next }
}

const title = fc.string({ maxLength: 6 }).filter(text => !text.includes('\0'))
const definition = fc
  .tuple(title, fc.uniqueArray(fc.constantFrom('b', 'a', '2', '1'), { minLength: 1 }))
  .map(([text, names]) => ({
    paths: Object.fromEntries(names.map(name => [`/${name}`, { get: { summary: text || 's', operationId: name } }])),
    openapi: '3.1.0',
    'x-order': Object.fromEntries(names.map(name => [name, text])),
    info: { title: text },
    servers: [{ url: 'https://example.com' }],
  }))
const header = fc.record({
  key: fc.constantFrom('X-A', 'x-a', 'X-B', 'X-C', 'X-D', 'Authorization'),
  value: fc.constantFrom('1', '2', '', 'é \t z', '#', '#'),
})
const body: fc.Arbitrary<ToolBody> = fc.record(
  {
    name: fc.option(fc.constantFrom('one', 'two', ' blank ')),
    description: fc.option(fc.constantFrom('', 'a', 'b')),
    definition: fc.option(definition),
    custom_headers: fc.option(fc.array(header, { maxLength: 3 })),
    passthrough_auth: fc.option(fc.boolean()),
    oauth_config_id: fc.option(fc.constantFrom(1, 2, 1, 2, 99)),
  },
  { requiredKeys: [] },
)

t.test('200 or 422 as the model says, and the model’s tool, for random pairs of updates', async t => {
  const world = await worldApp(t)
  const { call, token, database } = world
  const admin = await token('admin@example.com')
  const statuses: Record<number, number> = {}
  const update = async (tool: ModelTool, asked: ToolBody) => {
    const expected = modelUpdate(tool, asked)
    const shown: { key: string; value: string }[] = (await call('PUT', PATH, { token: admin, body: {} })).json()
      .custom_headers
    const maskOf = (name: string) => shown.find(({ key }) => key.toLowerCase() === name.toLowerCase())?.value
    const custom_headers = asked.custom_headers?.map(({ key, value }) => ({
      key,
      value: value === '#' ? (maskOf(key) ?? '****#000000000000') : value,
    }))
    const sent = { ...asked, ...(custom_headers && { custom_headers }) }
    const answer = await call('PUT', PATH, { token: admin, body: sent })
    statuses[answer.statusCode] = (statuses[answer.statusCode] ?? 0) + 1
    if (answer.statusCode !== expected.status) {
      throw new Error(`${answer.statusCode} instead of ${expected.status}: ${answer.body}`)
    }
    return expected.tool
  }
  const runs = repetitions({ few: 40, full: 1_000 })
  await fc.assert(
    fc.asyncProperty(body, body, async (first, second) => {
      const before = await plainTool(world)
      const rows = (await auditRows(database.db, 'tool', TOOL)).length
      const between = await update(before, first)
      const after = await update(between, second)
      const stored = await plainTool(world)
      if (!same(stored, after)) throw new Error(`stored ${JSON.stringify(stored)}\nmodel  ${JSON.stringify(after)}`)
      const changes = Number(!same(before, between)) + Number(!same(between, after))
      const added = (await auditRows(database.db, 'tool', TOOL)).length - rows
      if (added !== changes) throw new Error(`${added} audit rows for ${changes} changes`)
    }),
    { numRuns: runs },
  )
  t.ok(statuses[200] && statuses[422], JSON.stringify(statuses))
  t.comment(`${runs} pairs: ${JSON.stringify(statuses)}`)
})

async function plainTool({ database: { db }, vault }: WorldApp): Promise<ModelTool> {
  const stored = await storedTool(db, TOOL)
  const headers = await db
    .selectFrom('tool_header')
    .selectAll()
    .where('tool_id', '=', TOOL)
    .orderBy('position')
    .execute()
  return {
    name: stored.name,
    description: stored.description,
    definition: String(stored.definition),
    headers: headers.map(({ name, key_id, nonce, ciphertext }) => [
      name,
      decryptSecret(vault.ring, { keyId: key_id, nonce, ciphertext }, { toolId: TOOL, headerName: name }),
    ]),
    passthrough: stored.passthrough_auth as boolean, // the column is one
    oauth: stored.oauth_config_id as number | null, // likewise
  }
}

function same(a: ModelTool, b: ModelTool): boolean {
  return JSON.stringify(a) === JSON.stringify(b)
}
