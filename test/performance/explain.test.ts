import pg from 'pg'
import t, { type Test } from 'tap'
import { openBenchDatabase } from '../../bench/database.js'
import { definitionOf } from '../../bench/definitions.js'
import { fillWorld, LARGE, type WorldSize } from '../../bench/world.js'
import { buildApp } from '../../src/app.js'
import { readConfig } from '../../src/config.js'
import { migrate } from '../../src/db/migrate.js'
import { openUrl } from '../../src/db/open.js'
import { makeLogger } from '../../src/http/logging.js'
import { Lifecycle } from '../../src/lifecycle.js'
import { parseKeyRing } from '../../src/secrets/key-ring.js'
import { VERSION } from '../../src/version.js'
import { REQUIRED_FIELDS } from '../app.js'
import { testDatabase } from '../postgres.js'
import { TEST_SECRET_KEYS, worldDatabase } from '../world.js'

/*
 * Every statement that requests send, found by sending requests of all kinds, is planned on a made organisation. As a rule
 * that is a small one on which sequential reads are forbidden to the planner as far as there is another way: what it still
 * reads so, no index can find. With PERFORMANCE_TEST_SIZE=full it is the one of a million agents, and the planner is free.
 */
const FULL = process.env.PERFORMANCE_TEST_SIZE === 'full'
const SMALL_SIZE: WorldSize = { agents: 2_000, tools: 500, users: 500, groups: 50 }

/** Tables of a handful of rows, however large the organisation: a sequential read is the right one. */
const ALWAYS_SMALL = new Set(['deployment_key', 'schema_requirement'])
/** On the real size, a table of fewer rows than this is small. */
const SMALL_ROWS = 5_000

t.test('no request path reads a table from end to end', { timeout: 600_000 }, async t => {
  const statements = await statementsOfRequests(t)
  t.ok(statements.length > 15, `${statements.length} statements were sent`)
  const client = await madeOrganisation(t)
  const unindexed = await sequentialReads(client, "select from persona where description = 'x'")
  t.same(unindexed, ['persona'], 'a look-up without an index would be found')
  for (const statement of statements.filter(statement => !READINESS.test(statement))) {
    const found = await sequentialReads(client, statement)
    t.same(found, [], statement.trim().slice(0, 100).replaceAll(/\s+/g, ' '))
  }
})

/** The distinct reading and writing statements of one request of each kind. */
async function statementsOfRequests(t: Test): Promise<string[]> {
  const world = await worldDatabase(t)
  const texts = new Set<string>()
  const config = readConfig({ RATE_LIMIT_PER_MINUTE: '0', FAILED_AUTH_LIMIT_PER_MINUTE: '0' })
  const database = openUrl(world.url, config, {
    onStatement: exchange => {
      for (const text of exchange.texts) texts.add(text)
    },
  })
  const log = makeLogger('silent')
  const ring = parseKeyRing(TEST_SECRET_KEYS)
  const service = new Lifecycle({ config, version: VERSION, database, ring, migrates: false, log })
  const app = await buildApp({ config, version: VERSION, database, service, logger: false })
  t.teardown(async () => {
    await app.close()
    await database.close()
  })
  await service.start()
  texts.clear() // what the start reads, it reads once
  const alice = await world.token('alice@example.com')
  const admin = await world.token('admin@example.com')
  const curator = await world.token('curator@example.com')
  const bound = await world.token('admin@example.com', { personaIds: [1], toolIds: [10] })
  const send = async (
    status: number,
    method: 'PATCH' | 'PUT' | 'POST',
    url: string,
    token: string,
    body: object,
    tag = '',
  ) => {
    const headers = { authorization: `Bearer ${token}`, ...(tag === '' ? {} : { 'if-match': tag }) }
    const answer = await app.inject({ method, url, headers, payload: body })
    t.equal(answer.statusCode, status, `${method} ${url} ${answer.body.slice(0, 200)}`)
    return String(answer.headers.etag)
  }
  const everything = {
    ...REQUIRED_FIELDS,
    document_set_ids: [2],
    tool_ids: [13, 14],
    users: ['a0000000-0000-4000-8000-000000000010'],
    groups: [3],
    label_ids: [1, 3],
    user_file_ids: ['f0000000-0000-4000-8000-000000000001'],
  }
  const first = await send(200, 'PATCH', '/persona/1', alice, REQUIRED_FIELDS)
  await send(200, 'PATCH', '/persona/1?dry_run=true', alice, { ...REQUIRED_FIELDS, description: 'dry' })
  await send(200, 'PATCH', '/persona/1', admin, everything)
  await send(200, 'PATCH', '/persona/1', admin, everything)
  await send(412, 'PATCH', '/persona/1', alice, { ...REQUIRED_FIELDS, description: 'stale' }, first)
  await send(422, 'PATCH', '/persona/1', alice, {
    ...REQUIRED_FIELDS,
    tool_ids: [999],
    label_ids: [999],
    users: [NOBODY],
  })
  const items = { definition: definitionOf(2), custom_headers: [{ key: 'X-Key', value: 'one' }], oauth_config_id: 1 }
  const tag = await send(200, 'PUT', '/admin/tool/custom/10', admin, items)
  await send(200, 'PUT', '/admin/tool/custom/10', admin, {})
  await send(200, 'PUT', '/admin/tool/custom/10', admin, { name: 'renamed' })
  await send(412, 'PUT', '/admin/tool/custom/10', admin, { name: 'stale' }, tag)
  await send(422, 'PUT', '/admin/tool/custom/10', admin, { oauth_config_id: 999 })
  await send(200, 'PUT', '/admin/tool/custom/16', curator, { name: 'by a group manager' })
  await send(200, 'POST', '/admin/tool/custom/validate', admin, items)
  await send(200, 'POST', '/admin/tool/custom/validate?tool_id=10', admin, { definition: items.definition })
  for (const path of [
    '/persona',
    '/persona?name=x',
    '/tool',
    '/tool?name=x',
    '/persona/1?view=update',
    '/tool/10',
    '/me',
  ]) {
    for (const token of [alice, admin, bound]) {
      const answer = await app.inject({ url: path, headers: { authorization: `Bearer ${token}` } })
      t.equal(answer.statusCode, 200, path)
    }
  }
  await app.inject('/readyz')
  return [...texts].filter(text => /^\s*(select|with|insert|update|delete)\b/i.test(text))
}

/** Which keys are in use: reads an index whole, for the readiness probe and at most once in ten seconds. */
const READINESS = /^select "key_id" from "tool_header"/

const NOBODY = '00000000-0000-4000-8000-0000000000ff'

async function madeOrganisation(t: Test): Promise<pg.Client> {
  const client = FULL ? await benchOrganisation(t) : await smallOrganisation(t)
  await client.query('set plan_cache_mode = force_generic_plan')
  await client.query(`set enable_seqscan = ${FULL ? 'on' : 'off'}`)
  return client
}

/** The one of the benchmark, which is made once and kept. It is only planned on. */
async function benchOrganisation(t: Test): Promise<pg.Client> {
  const bench = await openBenchDatabase(LARGE, 'bench', line => t.comment(line))
  t.teardown(() => bench.close())
  return bench.client
}

async function smallOrganisation(t: Test): Promise<pg.Client> {
  const { url } = await testDatabase(t)
  const database = openUrl(url, readConfig({}))
  await migrate(database.db)
  await database.close()
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  t.teardown(() => client.end())
  await fillWorld(client, SMALL_SIZE, 'test', () => undefined)
  return client
}

/** The tables that the plan of a statement reads from end to end. */
async function sequentialReads(client: pg.Client, statement: string): Promise<string[]> {
  const count = Math.max(0, ...[...statement.matchAll(/\$(\d+)/g)].map(([, position]) => Number(position)))
  await client.query(`prepare asked as ${statement}`)
  const values = count === 0 ? '' : `(${Array.from({ length: count }, () => 'null').join(', ')})`
  const { rows } = await client.query<{ 'QUERY PLAN': PlanRow[] }>(`explain (format json) execute asked${values}`)
  await client.query('deallocate asked')
  const tables = (rows[0]?.['QUERY PLAN'] ?? []).flatMap(row => readFromEndToEnd(row.Plan))
  const large = FULL ? await tablesOfSize(client) : undefined
  return tables.filter(table => !ALWAYS_SMALL.has(table) && (large === undefined || large.has(table)))
}

interface PlanRow {
  Plan: PlanNode
}

interface PlanNode {
  'Node Type': string
  'Relation Name'?: string
  'Index Cond'?: string
  Plans?: PlanNode[]
}

function readFromEndToEnd(node: PlanNode): string[] {
  const type = node['Node Type']
  // An index without a condition is read whole too, for a merge or hash join; among small tables that is no fault.
  const isWholeIndex = /^Index (Only )?Scan$/.test(type) && node['Index Cond'] === undefined
  const isWhole = type === 'Seq Scan' || (FULL && isWholeIndex)
  const own = isWhole ? [node['Relation Name'] ?? ''] : []
  return [...own, ...(node.Plans ?? []).flatMap(readFromEndToEnd)]
}

async function tablesOfSize(client: pg.Client): Promise<Set<string>> {
  const { rows } = await client.query<{ relname: string }>(
    `select relname from pg_class where relkind = 'r' and reltuples >= $1`,
    [SMALL_ROWS],
  )
  return new Set(rows.map(row => row.relname))
}
