import { connect } from 'node:net'
import fc from 'fast-check'
import t from 'tap'
import { brokenHttp, type HostileRequest, hostileRequests } from '../security/requests.js'
import { FULL, fairService, peakResidentBytes, RESIDENT_BYTES_MAX, requireAllServed, watchReadiness } from './beside.js'
import { percentile, type Served } from './callers.js'
import { QuietCallers } from './quiet.js'
import { type FairnessWorld, fairnessWorld, type Owner, owner } from './world.js'

/*
 * 20,000 random requests in full, of 50 tokens at once; `FUZZ_SEED` repeats a series.
 */
const REQUESTS = FULL ? 20_000 : 200
const TOKENS = 50
const SEED = Number(process.env.FUZZ_SEED ?? Date.now() % 2 ** 31)
const ANSWER_LIMIT_MS = 60_000

/** What is sent over a connection, and how its client goes on. */
interface Sending {
  /** Made when they are sent: thousands of large ones would not fit into memory. */
  bytes(): Buffer
  /** How many connections send it at once. */
  connections: number
  /** How much of the bytes is sent, 1 for all. */
  share: number
  readsAnswer: boolean
  /** After this time the client hangs up. */
  patienceMs: number
}

t.test(`${REQUESTS} hostile requests of ${TOKENS} tokens beside ten quiet callers, seed ${SEED}`, async t => {
  const world = await fairnessWorld(t)
  const service = await fairService(t, world)
  const hostile: Owner[] = []
  for (let i = 0; i < TOKENS; i++) hostile.push(await owner(world.client, `alice+hostile${i}@example.com`, []))
  await world.client.query(
    `update user_account set permissions = '{basic,manage:actions}' where email ~ 'hostile[0-9]*[02468]@'`,
  )
  const lists = await listedIds(world)
  const series = hostile.map((one, i) =>
    fc.sample(sendings(one, world.largeTools, lists), { numRuns: REQUESTS / TOKENS, seed: SEED + i }),
  )
  const quiet = new QuietCallers(world, service, { owners: world.victims })
  const readiness = watchReadiness(service)
  const control = await quiet.serve(2_000)
  const statuses = new Map<string, number>()
  let left = hostile.length
  const attacking = series.map(async sendings => {
    for (const sending of sendings) {
      const { connections } = sending
      for (const status of await Promise.all(Array.from({ length: connections }, () => sent(service.port, sending)))) {
        statuses.set(status, (statuses.get(status) ?? 0) + 1)
      }
    }
    left -= 1
  })
  const slots: Served[] = [control]
  while (left > 0) slots.push(await quiet.serve(2_000))
  await Promise.all(attacking)

  requireAllServed(t, slots)
  const latenciesMs = slots.flatMap(slot => slot.latenciesMs)
  const { rows } = await world.client.query<{ stored: number }>(
    'select sum(version - 1)::integer as stored from persona where id = any($1)',
    [world.victims.map(({ agentId }) => agentId)],
  )
  t.equal(rows[0]?.stored, latenciesMs.length, 'each acknowledged update is stored once')
  t.strictSame(await readiness.end(), [], 'ready throughout')
  t.equal(statuses.get('500') ?? 0, 0)
  t.notMatch(service.log, /INTERNAL_ERROR|"level":60/)
  const peak = peakResidentBytes(service.pid)
  t.ok(peak < RESIDENT_BYTES_MAX, `${Math.round(peak / 2 ** 20)} MiB resident at most`)
  const seen = JSON.stringify(Object.fromEntries([...statuses].sort()))
  const ms = ({ latenciesMs }: Pick<Served, 'latenciesMs'>, share: number) => Math.round(percentile(latenciesMs, share))
  t.comment(
    `${latenciesMs.length} quiet updates, p50 ${ms({ latenciesMs }, 0.5)} ms, p99 ${ms({ latenciesMs }, 0.99)} ms`,
    `(control ${ms(control, 0.5)} and ${ms(control, 0.99)} ms); the hostile were answered ${seen}`,
  )
  await quiet.close()
})

/** Ids of every list of an agent, as many as it may have. */
type Lists = Record<'tool_ids' | 'label_ids' | 'document_set_ids' | 'users' | 'groups', unknown[]>

async function listedIds({ client }: FairnessWorld): Promise<Lists> {
  const { rows } = await client.query<Lists>(
    `with s as (insert into document_set (name, description, is_up_to_date, is_public)
      select 'set ' || n, '', true, true from generate_series(1, 1000) n returning id),
    l as (insert into label (name) select 'label ' || n from generate_series(1, 1000) n returning id),
    g as (insert into user_group (name) select 'group ' || n from generate_series(1, 1000) n returning id),
    d as (insert into tool_definition (hash, content, size_bytes) values ('\\x00', '{}', 2) returning hash),
    t as (insert into tool (name, definition_hash) select 'small ' || n, hash from d, generate_series(1, 1000) n returning id),
    u as (insert into user_account (email, kind, permissions)
      select 'alice+reader' || n || '@example.com', 'person', '{basic}' from generate_series(1, 1000) n returning id)
    select array(select id from s) as document_set_ids, array(select id from l) as label_ids,
      array(select id from g) as groups, array(select id from t) as tool_ids, array(select id from u) as users`,
  )
  return rows[0] as Lists // a select without a table answers one row
}

/** What one hostile caller sends. */
function sendings({ token, agentId }: Owner, largeTools: readonly number[], lists: Lists): fc.Arbitrary<Sending> {
  const authorization = `Bearer ${token}`
  const json = { authorization, 'content-type': 'application/json' }
  const path = `/persona/${agentId}`
  const ask = (url: string, method = 'GET'): HostileRequest => ({
    method,
    url,
    headers: { authorization },
    payload: undefined,
  })
  const patch = (mask: string, text: string, headers: Record<string, string> = {}): HostileRequest => ({
    method: 'PATCH',
    url: `${path}?update_mask=${mask}`,
    headers: { ...json, ...headers },
    payload: Buffer.from(text),
  })
  const own = (fields: object, query = '', headers: Record<string, string> = {}) =>
    patch(`${Object.keys(fields).join(',')}${query}`, JSON.stringify(fields), headers)
  const validation = (text: string): HostileRequest => ({
    method: 'POST',
    url: '/admin/tool/custom/validate?complete=true',
    headers: json,
    payload: Buffer.from(text),
  })
  const sized = (max: number) => fc.nat({ max })
  const partOf = (ids: readonly unknown[]) => sized(ids.length).map(count => ids.slice(0, count))
  const everyList = fc.record(
    {
      tool_ids: partOf(lists.tool_ids),
      label_ids: partOf(lists.label_ids),
      document_set_ids: partOf(lists.document_set_ids),
      users: partOf(lists.users),
      groups: partOf(lists.groups),
    },
    { requiredKeys: [] },
  )
  const lazily = (arbitrary: fc.Arbitrary<() => HostileRequest>, weight: number) => ({ weight, arbitrary })
  const requests: fc.Arbitrary<() => HostileRequest> = fc.oneof(
    lazily(
      hostileRequests([authorization, 'Bearer pat_0', undefined]).map(request => () => request),
      40,
    ),
    lazily(
      fc.string({ maxLength: 500 }).map(description => () => own({ description })),
      15,
    ),
    lazily(
      fc.subarray([...largeTools], { minLength: 1 }).map(tools => () => own({ tool_ids: tools }, '&dry_run=true')),
      10,
    ),
    lazily(
      fc.tuple(fc.constantFrom(...LARGE_PARTS), sized(400_000)).map(
        ([part, count]) =>
          () =>
            validation(`{"definition":{"openapi":"3.1.0","x":[${part.repeat(count)}0]}}`),
      ),
      2,
    ),
    // Just below and above what is checked in another thread.
    lazily(
      fc
        .integer({ min: 400, max: 800 })
        .map(count => () => validation(JSON.stringify({ definition: smallOperations(count) }))),
      3,
    ),
    // Bodies that say nothing, and take long to refuse.
    lazily(
      fc.tuple(fc.constantFrom(...EMPTY_BODIES), sized(4 * 2 ** 20 - 1_000)).map(
        ([make, bytes]) =>
          () =>
            patch('description,num_chunks,starter_messages,users', make(bytes)),
      ),
      4,
    ),
    // Every list of an agent: dry runs, written, and merged into what came after an earlier version.
    lazily(
      everyList.map(fields => () => own(fields, '&dry_run=true')),
      4,
    ),
    lazily(
      everyList.map(fields => () => own(fields, '', { prefer: 'return=minimal' })),
      2,
    ),
    lazily(
      everyList.map(fields => () => {
        return own(fields, '', { 'if-match': `"persona-${agentId}-1"`, prefer: 'merge=fields, return=minimal' })
      }),
      2,
    ),
    lazily(
      sized(255_000).map(length => () => {
        return own({ system_prompt: '\u0001'.repeat(length), task_prompt: '\u{20123}'.repeat(length / 2) })
      }),
      2,
    ),
    lazily(
      fc.tuple(sized(20), fc.string({ maxLength: 20 })).map(([key, description]) => () => {
        return own({ description }, '', { 'idempotency-key': `"${key}"` })
      }),
      4,
    ),
    lazily(
      fc.constantFrom(...READS).map(url => () => ask(url.replace('OWN', path))),
      8,
    ),
    lazily(
      fc.constant(() => ask(path, 'HEAD')),
      2,
    ),
  )
  const once = { connections: 1, share: 1, readsAnswer: true, patienceMs: ANSWER_LIMIT_MS }
  const many = fc.integer({ min: 2, max: 20 })
  const briefly = fc.integer({ min: 100, max: 3_000 })
  const someShare = fc.double({ min: 0, max: 0.99, noNaN: true })
  return fc.oneof(
    { weight: 40, arbitrary: requests.map(make => ({ ...once, bytes: () => written(make()) })) },
    {
      weight: 4,
      arbitrary: fc
        .tuple(requests, someShare)
        .map(([make, share]) => ({ ...once, bytes: () => written(make()), share, patienceMs: 0 })),
    },
    // Bodies that do not end, and answers that nobody reads.
    {
      weight: 1,
      arbitrary: fc.tuple(requests, someShare, many, briefly).map(([make, share, connections, patienceMs]) => {
        return { ...once, bytes: () => written(make()), share, connections, patienceMs }
      }),
    },
    {
      weight: 1,
      arbitrary: fc.tuple(requests, many, briefly).map(([make, connections, patienceMs]) => {
        return { ...once, bytes: () => written(make()), connections, readsAnswer: false, patienceMs }
      }),
    },
    {
      weight: 1,
      arbitrary: fc
        .tuple(fc.array(requests, { minLength: 2, maxLength: 5 }), fc.integer({ min: 1, max: 100 }), fc.boolean())
        .map(([makes, times, readsAnswer]) => ({
          ...once,
          bytes: () => pipelined(makes, times),
          readsAnswer,
          patienceMs: 3_000,
        })),
    },
    {
      weight: 1,
      arbitrary: fc
        .tuple(requests, fc.integer({ min: 1, max: 5 }))
        .map(([make, size]) => ({ ...once, bytes: () => inChunks(make(), size), patienceMs: 5_000 })),
    },
    { weight: 2, arbitrary: brokenHttp.map(bytes => ({ ...once, bytes: () => bytes, patienceMs: 0 })) },
  )
}

const LARGE_PARTS = ['{},', '[],', '"x",', '1,', '{"a":{}},', '{"$ref":"#/x"},']

const READS = [
  'OWN',
  'OWN?view=update',
  'OWN?version=1',
  'OWN?at=2030-01-01T00:00:00Z',
  '/persona?limit=100',
  '/persona?name=agent',
  '/tool?limit=100',
  '/me',
  '/openapi.json',
  '/docs/swagger-ui-bundle.js',
]

/** Bodies of about so many bytes, of which nothing is stored. */
const EMPTY_BODIES: readonly ((bytes: number) => string)[] = [
  bytes => `{${listed(19, i => `"${'d'.repeat(bytes / 20)}${i}":1`)}}`,
  bytes => `{${listed(Math.min(9_900, bytes / 20), i => `"descriptioo${i}":1`)}}`,
  bytes => `{"num_chunks":${'9'.repeat(bytes)}}`,
  bytes => `{"description":"${'\\u0000'.repeat(bytes / 6)}"}`,
  bytes => `{"description":"${'\\ud800'.repeat(bytes / 6)}"}`,
  bytes => `{"description":"${'x'.repeat(bytes)}"}`,
  bytes => `{${' '.repeat(bytes)}}`,
  bytes => `{${listed(Math.min(9_900, bytes / 20), i => `"description":"${i}"`)}}`,
  bytes => `{"starter_messages":[${listed(Math.min(3_000, bytes / 8), () => '{"x":1}')}]}`,
  bytes => `{"users":[${listed(Math.min(4_000, bytes / 4), () => '"x"')}]}`,
  bytes => '['.repeat(bytes),
]

function listed(count: number, make: (index: number) => string): string {
  return Array.from({ length: count }, (_, index) => make(index)).join()
}

function smallOperations(count: number): object {
  const paths = Array.from({ length: count }, (_, i) => [`/p${i}`, { get: { operationId: `o${i}`, summary: 's' } }])
  const servers = [{ url: 'https://h.example.com' }]
  return { openapi: '3.1.0', info: { title: 'Small' }, servers, paths: Object.fromEntries(paths) }
}

/** A request as bytes, whatever its texts are: a client library would refuse some. */
function written({ method, url, headers, payload }: HostileRequest, connection = 'close'): Buffer {
  const length = payload === undefined ? [] : [`content-length: ${payload.length}`]
  return Buffer.concat([headOf(method, url, { connection, ...headers }, length), payload ?? Buffer.alloc(0)])
}

function headOf(method: string, url: string, headers: Record<string, string>, more: readonly string[]): Buffer {
  const lines = Object.entries({ host: 'localhost', ...headers }).map(([name, value]) => `${name}: ${value}`)
  return Buffer.from([`${method} ${url} HTTP/1.1`, ...lines, ...more, '', ''].join('\r\n'), 'latin1')
}

/** Requests that follow each other without waiting for answers, as many as fit into a few MiB. */
function pipelined(makes: readonly (() => HostileRequest)[], times: number): Buffer {
  const requests = makes.map(make => written(make(), 'keep-alive'))
  const bytes = requests.reduce((sum, { length }) => sum + length, 0)
  const rounds = Math.max(1, Math.min(times, Math.floor((4 * 2 ** 20) / bytes)))
  return Buffer.concat(Array.from({ length: rounds }, () => requests).flat())
}

/** A request whose body comes in chunks of a few bytes, as many as fit into a few MiB. */
function inChunks({ method, url, headers, payload = Buffer.from('{}') }: HostileRequest, size: number): Buffer {
  const body = payload.subarray(0, 200_000)
  const chunks: (string | Buffer)[] = []
  for (let at = 0; at < body.length; at += size) {
    const chunk = body.subarray(at, at + size)
    chunks.push(`${chunk.length.toString(16)}\r\n`, chunk, '\r\n')
  }
  const head = headOf(method, url, { connection: 'close', ...headers }, ['transfer-encoding: chunked'])
  return Buffer.concat([head, ...chunks.map(chunk => Buffer.from(chunk)), Buffer.from('0\r\n\r\n')])
}

/** Sends over a connection of its own; answers the status, or what became of the connection. */
function sent(port: number, { bytes, share, readsAnswer, patienceMs }: Sending): Promise<string> {
  return new Promise(resolve => {
    const socket = connect(port, '127.0.0.1')
    let head = ''
    if (readsAnswer) {
      socket.on('data', chunk => {
        if (head.length < 20) head += chunk.toString('latin1', 0, 20)
      })
    } else socket.pause()
    socket.on('end', () => socket.end())
    socket.on('error', () => undefined) // a cut connection is a fine answer
    const text = bytes()
    socket.write(text.subarray(0, Math.floor(share * text.length)), () => {
      const hangUp = setTimeout(() => socket.destroy(), patienceMs)
      socket.on('close', () => clearTimeout(hangUp))
    })
    const limit = setTimeout(() => socket.destroy(), ANSWER_LIMIT_MS)
    socket.on('close', () => {
      clearTimeout(limit)
      resolve(/^HTTP\/1\.1 (\d{3})/.exec(head)?.[1] ?? 'none')
    })
  })
}
