import { randomUUID } from 'node:crypto'
import t from 'tap'
import { REQUIRED_FIELDS, type WorldApp, worldApp } from '../app.js'

/** Fewer than may wait in a queue, and many more than the pool has connections. */
const AT_ONCE = 60
/** Where batches and queues share the connections out, there are some left: nobody waits in the pool's own line, where all are alike. */
const IN_LINE_MAX = 5

const AGENT = '/persona/1'
const TOOL = '/admin/tool/custom/10'
const ITEMS = {
  openapi: '3.1.0',
  info: { title: 'Items', version: '1' },
  servers: [{ url: 'https://items.example.com' }],
  paths: {
    '/items': { get: { operationId: 'listItems', summary: 'Lists', responses: { 200: { description: 'ok' } } } },
  },
}

/** A request that one token sends many times at once. */
interface Repeated {
  method: string
  url: string
  body?: object
  headers?: Record<string, string> | (() => Record<string, string>)
  status: number
}

const MINIMAL = { prefer: 'return=minimal' }
const KEYED = { ...MINIMAL, 'idempotency-key': randomUUID() }
const described = { ...REQUIRED_FIELDS, description: 'described' }

const BURSTS: Record<string, Repeated> = {
  // First, for what is found out about the stored definition is remembered.
  'a definition, compared with the stored one': {
    method: 'PUT',
    url: `${TOOL}?dry_run=true`,
    body: { definition: ITEMS },
    headers: MINIMAL,
    status: 204,
  },
  'a validation beside a tool': {
    method: 'POST',
    url: '/admin/tool/custom/validate?tool_id=10',
    body: { definition: ITEMS },
    status: 200,
  },
  'an update that is repeated with its Idempotency-Key': {
    method: 'PATCH',
    url: AGENT,
    body: described,
    headers: KEYED,
    status: 204,
  },
  'updates with a new Idempotency-Key and an old If-Match': {
    method: 'PATCH',
    url: AGENT,
    body: { ...REQUIRED_FIELDS, description: 'another' },
    headers: () => ({ ...MINIMAL, 'idempotency-key': randomUUID(), 'if-match': '"persona-1-1"' }),
    status: 412,
  },
  'merges of a definition with an old If-Match': {
    method: 'PUT',
    url: `${TOOL}?dry_run=true`,
    body: { definition: ITEMS },
    headers: { prefer: 'return=minimal, merge=fields', 'if-match': '"tool-10-1"' },
    status: 204,
  },
}

t.test('what one token sends at once waits in batches and queues, never in the line of the pool', async t => {
  const world = await worldApp(t)
  const token = await world.token('admin@example.com')
  const send = ({ method, url, body, headers = {} }: Repeated) =>
    world.call(method, url, { token, body, headers: typeof headers === 'function' ? headers() : headers })
  // An answer with the definition would have it remembered.
  await send({ method: 'PUT', url: TOOL, body: { description: 'described' }, headers: MINIMAL, status: 204 })
  await send({ method: 'PATCH', url: AGENT, body: described, headers: KEYED, status: 204 })
  for (const [name, burst] of Object.entries(BURSTS)) {
    await t.test(name, async t => {
      const inLine = mostInLine(world)
      const answers = await Promise.all(Array.from({ length: AT_ONCE }, () => send(burst)))
      const statuses = new Set(answers.map(({ statusCode }) => statusCode))
      t.ok(statuses.has(burst.status), [...statuses].join(' ')) // and 503, of those that a busy machine has wait for the row in vain
      const most = inLine.end()
      t.ok(most <= IN_LINE_MAX, `${most} waited for a connection`)
    })
  }
})

/** How many wait for a connection of the pool, looked at in each turn of the event loop until `end`, which answers the most. */
function mostInLine({ database }: WorldApp): { end(): number } {
  let most = 0
  let look: NodeJS.Immediate
  const repeat = () => {
    most = Math.max(most, database.pool.waitingCount)
    look = setImmediate(repeat)
  }
  repeat()
  return {
    end: () => {
      clearImmediate(look)
      return most
    },
  }
}
