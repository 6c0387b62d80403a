import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { generateKey } from '../../src/secrets/key-ring.js'
import { REQUIRED_FIELDS } from '../app.js'
import { DEFINITION } from '../matrix-organisation.js'
import { Cluster, signal } from './cluster.js'
import { MessageProxy } from './message-proxy.js'
import { ServiceProcess } from './service.js'
import { makeWorld } from './world.js'

const cluster = await Cluster.create()
t.teardown(() => cluster.remove())
const token = await makeWorld(cluster.url())
const line = await MessageProxy.open({ host: '127.0.0.1', port: cluster.port })
t.teardown(() => line.close())
/** Called with each message; false cuts both sides in its place. */
const proxy = { onForward: (_: Buffer) => true, onBackward: (_: Buffer) => true }
passAll()
const keys = generateKey()
const service = await start(`postgresql://postgres@127.0.0.1:${line.port}/world?connect_timeout=2`)
const direct = await start(`${cluster.url()}?application_name=direct&connect_timeout=2`)
t.teardown(() => Promise.all([service.stop('SIGKILL'), direct.stop('SIGKILL')]))

// One agent and one tool: the two updates settle by the same code and answer by their own.
const AGENT = { method: 'PATCH', path: '/persona/1?update_mask=description', kind: 'persona' }
const TOOL = { method: 'PUT', path: '/admin/tool/custom/1', kind: 'tool' }

for (const target of [AGENT, TOOL]) {
  t.test(`200 when the answer of the commit is lost, with one audit row: ${target.kind}`, async t => {
    const tag = await currentTag(target)
    loseAnswerTo(`lost ${target.kind}`)
    const answer = await update(service, target, `lost ${target.kind}`, tag)
    t.equal(answer.status, 200, JSON.stringify(answer.body))
    t.equal(answer.body.description, `lost ${target.kind}`)
    t.equal(answer.etag, await currentTag(target))
    t.not(answer.etag, tag)
    t.equal(await auditRows(`lost ${target.kind}`), 1)
    passAll()
  })

  t.test(`503 unknown when the statement may have arrived, and again is safe: ${target.kind}`, async t => {
    const tag = await currentTag(target)
    const description = `cut ${target.kind}`
    proxy.onForward = data => !data.includes(description)
    const answer = await update(service, target, description, tag)
    t.equal(answer.status, 503)
    t.match(answer.body, { error_code: 'SERVICE_UNAVAILABLE', reason: 'database_unreachable', outcome: 'unknown' })
    t.equal(await auditRows(description), 0)
    passAll()
    t.equal((await update(service, target, description, tag)).status, 200)
    t.equal(await auditRows(description), 1)
  })

  t.test(
    `200 with its own version when somebody made a later one before the answer was settled: ${target.kind}`,
    async t => {
      const description = `overtaken ${target.kind}`
      loseAnswerTo(description, () => {
        proxy.onForward = () => false
      })
      const answering = update(service, target, description, undefined)
      await until(async () => (await auditRows(description)) === 1)
      const own = await currentTag(target)
      t.equal((await update(direct, target, `later ${target.kind}`, undefined)).status, 200)
      passAll()
      const answer = await answering
      t.equal(answer.status, 200)
      t.equal(answer.body.description, description, 'not what its client has never seen')
      t.equal(answer.etag, own)
      t.equal(await auditRows(description), 1)
    },
  )
}

t.test('200 for the update of a key whose commit lost its answer, and again the answer of it', async t => {
  for (const target of [AGENT, TOOL]) {
    const description = `kept for its key ${target.kind}`
    const headers = { 'idempotency-key': `"${target.kind}"` }
    loseCommitAfter([description])
    const answer = await send(service, target, { description }, undefined, headers)
    t.match(answer, { status: 200, body: { description } })
    passAll()
    const answered = await send(service, target, { description }, undefined, headers)
    t.match(answered, { status: 200, body: { description } })
    t.equal(await auditRows(description), 1)
  }
})

t.test('503 unknown, not not_applied, for a repetition whose key could not be looked up', async t => {
  const description = 'kept, and not found'
  const headers = { 'idempotency-key': '"not found"' }
  t.equal((await send(service, AGENT, { description }, undefined, headers)).status, 200)
  for (const statements of [0, 1]) {
    let passed = 0
    proxy.onForward = ([type]) => type !== BIND || passed++ < statements // the first one establishes the caller
    const again = await send(service, AGENT, { description }, undefined, headers)
    t.match(again, { status: 503, body: { reason: 'database_unreachable', outcome: 'unknown' } }, `${statements}`)
    passAll()
  }
  t.match(await send(service, AGENT, { description }, undefined, headers), { status: 200, body: { description } })
  t.equal(await auditRows(description), 1)
  const other = { 'idempotency-key': '"never stored"' }
  proxy.onForward = data => !data.includes('never stored at all')
  const first = await send(service, AGENT, { description: 'never stored at all' }, undefined, other)
  t.match(first, { status: 503, body: { outcome: 'not_applied' } }, 'the key was looked up, and stands for nothing')
  passAll()
})

t.test('503 unknown in bounded time when the server process hangs; the same If-Match is safe afterwards', async t => {
  t.equal((await update(service, AGENT, 'before', undefined)).status, 200) // opens a connection
  const tag = await currentTag(AGENT)
  const pids = await servicePids()
  proxy.onForward = data => {
    if (data.includes('hung')) for (const pid of pids) signal(pid, 'SIGSTOP')
    return true
  }
  const answer = await update(service, AGENT, 'hung', tag)
  passAll()
  t.equal(answer.status, 503)
  t.match(answer.body, { reason: 'database_unreachable', outcome: 'unknown' })
  for (const pid of pids) signal(pid, 'SIGCONT')
  const again = await update(service, AGENT, 'hung', tag)
  t.equal(again.status, 200)
  t.equal(await auditRows('hung'), 1)
})

t.test('a line that is cut behind any message of an update: what the answer says is true', async t => {
  for (const target of [AGENT, TOOL]) {
    const told = new Map<string, number>()
    for (let isCut = true, boundary = 0; isCut; boundary++) {
      const description = `boundary ${boundary} ${target.kind}`
      const wasCut = cutAt(boundary)
      const { status, body } = await update(service, target, description, undefined)
      passAll()
      isCut = wasCut()
      const outcome = status === 200 ? 'applied' : String(body.outcome)
      told.set(outcome, (told.get(outcome) ?? 0) + 1)
      const stored = await auditRows(description)
      t.ok(isTrue(outcome, stored), `${description}: ${status} ${outcome}`)
    }
    t.ok((told.get('applied') ?? 0) > 10 && (told.get('unknown') ?? 0) > 1, JSON.stringify([...told]))
  }
})

// Creations and deletions settle by the same code. Their statements are in a transaction: its commit is what gets lost.
for (const kind of ['persona', 'tool'] as const) {
  t.test(`201 and 204 when the answer of the commit is lost, with one effect: ${kind}`, async t => {
    loseCommitAfter([`made ${kind}`])
    const made = await create(service, kind, `made ${kind}`)
    t.equal(made.status, 201, JSON.stringify(made.body))
    t.match(made, { etag: `"${kind}-${made.body.id}-1"`, body: { description: `made ${kind}` } })
    t.equal(await auditRows(`made ${kind}`), 1)
    passAll()
    loseCommitAfter([kind === 'persona' ? 'persona_write' : 'delete from "tool"', 'insert into'])
    t.equal((await remove(service, kind, made.body.id)).status, 204)
    passAll()
    t.equal(await deletions(kind, made.body.id), 1)
    t.equal((await remove(service, kind, made.body.id)).status, 404)
  })

  t.test(
    `503 unknown when the server process hangs; with its key it is made once, also over two processes: ${kind}`,
    async t => {
      const key = { 'idempotency-key': `"hung ${kind}"` }
      const pids = await servicePids()
      proxy.onForward = data => {
        if (isCommit(data)) for (const pid of pids) signal(pid, 'SIGSTOP')
        return true
      }
      const answer = await create(service, kind, `hung ${kind}`, key)
      passAll()
      t.match(answer, { status: 503, body: { outcome: 'unknown' } })
      t.match(
        answer.body.detail,
        'Whether the creation was applied is not known. Repeat it with the same Idempotency-Key',
      )
      for (const pid of pids) signal(pid, 'SIGCONT')
      const answers = await Promise.all(
        [service, direct, service, direct].map(by => repeated(by, kind, `hung ${kind}`, key)),
      )
      t.equal(new Set(answers.map(({ status, body }) => `${status} ${body.id}`)).size, 1, JSON.stringify(answers))
      t.equal(await auditRows(`hung ${kind}`), 1)
    },
  )

  t.test(
    `a line that is cut behind any message of a creation and of a deletion: the answer is true: ${kind}`,
    async t => {
      const told = new Map<string, number>()
      const tell = (act: string, { status, body }: Awaited<ReturnType<typeof send>>, stored: number) => {
        const outcome = status < 300 ? 'applied' : String(body.outcome)
        t.ok(isTrue(outcome, stored), `${act}: ${status} ${outcome}`)
        told.set(`${act} ${outcome}`, (told.get(`${act} ${outcome}`) ?? 0) + 1)
      }
      for (let isCut = true, boundary = 0; isCut; boundary += 3) {
        const description = `life ${boundary} ${kind}`
        const key = boundary % 2 === 0 ? {} : { 'idempotency-key': `"${description}"` }
        const wasCut = cutAt(boundary)
        const answer = await create(service, kind, description, key)
        passAll()
        tell('creation', answer, await auditRows(description))
        const { id } = (await create(direct, kind, `to delete ${description}`)).body
        const wasCutToo = cutAt(boundary + 1)
        const deleted = await remove(service, kind, id)
        passAll()
        tell('deletion', deleted, await deletions(kind, id))
        isCut = wasCut() || wasCutToo()
      }
      for (const act of ['creation', 'deletion'])
        t.ok((told.get(`${act} applied`) ?? 0) > 10, JSON.stringify([...told]))
    },
  )
}

for (const target of [AGENT, TOOL]) {
  const { kind } = target
  /** Two versions, of which the older one has this description; answers how to restore that, and how often it was stored. */
  async function twoVersions(description: string) {
    const { etag } = await update(direct, target, description, undefined)
    t.equal((await update(direct, target, `after ${description}`, undefined)).status, 200)
    const version = Number(/-(\d+)"$/.exec(etag ?? '')?.[1])
    const restore = (by: ServiceProcess, headers: Record<string, string> = {}) =>
      send(
        by,
        { kind, method: 'POST', path: `${PLACES[target.kind as Kind]}/1/restore` },
        { version },
        undefined,
        headers,
      )
    return { restore, restored: async () => (await auditRows(description)) - 1 }
  }

  t.test(
    `a restoration: 200 when the answer of the commit is lost; after a hang once with its key: ${kind}`,
    async t => {
      const lost = await twoVersions(`lost back ${kind}`)
      loseCommitAfter([`lost back ${kind}`])
      t.match(await lost.restore(service), { status: 200, body: { description: `lost back ${kind}` } })
      passAll()
      t.equal(await lost.restored(), 1)

      const hung = await twoVersions(`hung back ${kind}`)
      const pids = await servicePids()
      let isMet = false
      proxy.onForward = data => {
        isMet ||= data.includes(`hung back ${kind}`)
        if (isMet && isCommit(data)) for (const pid of pids) signal(pid, 'SIGSTOP')
        return true
      }
      const key = { 'idempotency-key': `"hung back ${kind}"` }
      const answer = await hung.restore(service, key)
      passAll()
      t.match(answer, { status: 503, body: { outcome: 'unknown' } })
      const told = 'Whether the restoration was applied is not known. Repeat it with the same Idempotency-Key'
      t.match(answer.body.detail, told)
      for (const pid of pids) signal(pid, 'SIGCONT')
      for (const by of [service, direct, service]) {
        await until(async () => ![409, 503].includes((await hung.restore(by, key)).status))
        t.match(await hung.restore(by, key), { status: 200, body: { description: `hung back ${kind}` } })
      }
      t.equal(await hung.restored(), 1)
    },
  )

  t.test(`a line that is cut behind any message of a restoration: the answer is true: ${kind}`, async t => {
    const told = new Map<string, number>()
    for (let isCut = true, boundary = 0; isCut; boundary++) {
      const { restore, restored } = await twoVersions(`back ${boundary} ${kind}`)
      const wasCut = cutAt(boundary)
      const { status, body } = await restore(
        service,
        boundary % 2 === 0 ? {} : { 'idempotency-key': `"${boundary} ${kind}"` },
      )
      passAll()
      isCut = wasCut()
      const outcome = status === 200 ? 'applied' : String(body.outcome)
      told.set(outcome, (told.get(outcome) ?? 0) + 1)
      t.ok(isTrue(outcome, await restored()), `boundary ${boundary}: ${status} ${outcome}`)
    }
    t.ok((told.get('applied') ?? 0) > 1, JSON.stringify([...told]))
  })
}

t.test('422 not_found when a reference is deleted at the same moment', async t => {
  const [label] = await cluster.query<{ id: number }>(`insert into label (name) values ('short-lived') returning id`)
  const deleting = await cluster.connect()
  t.teardown(() => deleting.end())
  await deleting.query('begin')
  await deleting.query('delete from label where id = $1', [label?.id])
  const target = { ...AGENT, path: '/persona/1?update_mask=label_ids' }
  const answering = send(service, target, { label_ids: [label?.id] }, undefined)
  await until(async () => (await waiting()) > 0)
  await deleting.query('commit')
  const answer = await answering
  t.equal(answer.status, 422)
  t.match(answer.body, { detail: [{ loc: ['body', 'label_ids', 0], type: 'not_found' }] })
})

/** `unknown` is never false, and has to be rare: the tests count the others. */
function isTrue(outcome: string, stored: number): boolean {
  return outcome === 'unknown' ? stored <= 1 : stored === (outcome === 'applied' ? 1 : 0)
}

async function start(url: string): Promise<ServiceProcess> {
  const timeouts = { STATEMENT_TIMEOUT_MS: '1500', LOCK_TIMEOUT_MS: '1500' }
  return await ServiceProcess.start({ DATABASE_URL: url, SECRET_KEYS: keys, DATABASE_POOL_SIZE: '2', ...timeouts })
}

type Target = typeof AGENT

const BIND = 'B'.charCodeAt(0)
const QUERY = 'Q'.charCodeAt(0)

function update(by: ServiceProcess, target: Target, description: string, tag: string | undefined) {
  return send(by, target, { description }, tag)
}

async function send(
  by: ServiceProcess,
  { method, path }: Target,
  body: unknown,
  tag: string | undefined,
  headers: Record<string, string> = {},
) {
  const response = await fetch(`http://127.0.0.1:${by.port}${path}`, {
    method,
    headers: {
      authorization: `Bearer ${token}`,
      'content-type': 'application/json',
      ...(tag !== undefined && { 'if-match': tag }),
      ...headers,
    },
    body: JSON.stringify(body),
  })
  const etag = response.headers.get('etag') ?? undefined
  const text = await response.text()
  return { status: response.status, etag, body: JSON.parse(text || '{}') as Record<string, unknown> }
}

type Kind = 'persona' | 'tool'

const PLACES = { persona: '/persona', tool: '/admin/tool/custom' }
const BODIES = {
  persona: { ...REQUIRED_FIELDS, document_set_ids: [], tool_ids: [] },
  tool: { name: 'made', definition: DEFINITION, passthrough_auth: false },
}

function create(by: ServiceProcess, kind: Kind, description: string, headers: Record<string, string> = {}) {
  const target = { kind, method: 'POST', path: PLACES[kind] }
  return send(by, target, { ...BODIES[kind], description }, undefined, headers)
}

function remove(by: ServiceProcess, kind: Kind, id: unknown, headers: Record<string, string> = {}) {
  return send(by, { kind, method: 'DELETE', path: `${PLACES[kind]}/${id}` }, undefined, undefined, headers)
}

/** Creates until it is no more under way elsewhere. */
async function repeated(by: ServiceProcess, kind: Kind, description: string, headers: Record<string, string>) {
  for (;;) {
    const answer = await create(by, kind, description, headers)
    if (answer.status !== 409 && answer.status !== 503) return answer
    await sleep(20)
  }
}

async function deletions(kind: Kind, id: unknown): Promise<number> {
  const field = kind === 'persona' ? 'deleted' : 'removed'
  const where = 'where resource_kind = $1 and resource_id = $2 and $3 = any(fields)'
  return (await cluster.query(`select from audit ${where}`, [kind, id, field])).length
}

function isCommit(data: Buffer): boolean {
  return data[0] === QUERY && data.subarray(5).toString() === 'commit\0'
}

/** Cuts the connections when the database answers the commit of a transaction with a statement that carries one of these texts. */
function loseCommitAfter(texts: readonly string[], then: () => void = () => {}): void {
  let isMet = false
  proxy.onForward = data => {
    isMet ||= texts.some(text => data.includes(text))
    if (isMet && isCommit(data)) {
      proxy.onBackward = () => {
        passAll()
        then()
        return false
      }
    }
    return true
  }
}

/** Cuts the line once, after this number of messages; answers whether it came to that. */
function cutAt(boundary: number): () => boolean {
  let passed = 0
  let isCut = false
  line.decide = ({ bytes }) => {
    if (isCut || passed++ < boundary) return { do: 'pass' }
    isCut = true
    return { do: 'cut', after: bytes.length }
  }
  return () => isCut
}

async function currentTag(target: Target): Promise<string> {
  const read = target === TOOL ? TOOL : { ...AGENT, path: '/persona/1?update_mask=' }
  return (await send(direct, read, {}, undefined)).etag ?? ''
}

/** Cuts the connections when the database answers a statement that carries this text. */
function loseAnswerTo(text: string, then: () => void = () => {}): void {
  proxy.onForward = data => {
    if (data.includes(text)) {
      proxy.onBackward = () => {
        proxy.onBackward = () => true
        then()
        return false
      }
    }
    return true
  }
}

function passAll(): void {
  proxy.onForward = () => true
  proxy.onBackward = () => true
  line.decide = ({ from, bytes }) => {
    const passes = from === 'service' ? proxy.onForward(bytes) : proxy.onBackward(bytes)
    return passes ? { do: 'pass' } : { do: 'cut', after: 0 }
  }
}

async function auditRows(description: string): Promise<number> {
  const rows = await cluster.query(`select from audit where difference -> 'description' ->> 'to' = $1`, [description])
  return rows.length
}

async function servicePids(): Promise<number[]> {
  const rows = await cluster.query<{ pid: number }>(
    `select pid from pg_stat_activity where application_name = 'agent-tool-management'`,
  )
  return rows.map(({ pid }) => pid)
}

async function waiting(): Promise<number> {
  const rows = await cluster.query(`select from pg_stat_activity where wait_event_type = 'Lock'`)
  return rows.length
}

async function until(condition: () => Promise<boolean>): Promise<void> {
  const deadline = performance.now() + 60_000
  while (!(await condition())) {
    if (performance.now() > deadline) throw new Error('it did not come to pass')
    await sleep(20)
  }
}
