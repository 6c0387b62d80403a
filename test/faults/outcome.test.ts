import t from 'tap'
import { generateKey } from '../../src/secrets/key-ring.js'
import { REQUIRED_FIELDS } from '../app.js'
import { eventually } from '../eventually.js'
import { DEFINITION } from '../matrix-organisation.js'
import { Cluster, signal } from './cluster.js'
import { MessageProxy } from './message-proxy.js'
import { ask as askWith, ServiceProcess } from './service.js'
import { makeWorld } from './world.js'

/* The answer to a write states the true outcome even if the connection is cut or the database hangs. */

const cluster = await Cluster.create(t)
const token = await makeWorld(cluster.url())
const hanging = new Set<number>()
const line = await MessageProxy.open({ host: '127.0.0.1', port: cluster.port })
t.teardown(() => line.close())
const keys = generateKey()
const service = await start(`postgresql://postgres@127.0.0.1:${line.port}/world?connect_timeout=20`)
const direct = await start(`${cluster.url()}?application_name=direct&connect_timeout=20`)

type Kind = 'persona' | 'tool'
type Headers = Record<string, string>

const PLACES = { persona: '/persona', tool: '/admin/tool/custom' }
const NEW = {
  persona: { ...REQUIRED_FIELDS, document_set_ids: [], tool_ids: [] },
  tool: { name: 'made', definition: DEFINITION, passthrough_auth: false },
}

/** A write that is ready to be sent. `stored` counts how often the write has been stored. */
interface Write {
  send(by: ServiceProcess, headers?: Headers): ReturnType<typeof ask>
  stored(): Promise<number>
  sent?: string
}

/** Functions that prepare a write of an agent or tool. The description identifies the write in the audit trail. */
const WRITES: Record<string, (kind: Kind, description: string) => Promise<Write>> = {
  update: async (kind, description) => ({
    send: (by, headers) => update(by, kind, description, headers),
    stored: () => auditRows(description),
  }),
  creation: async (kind, description) => ({
    send: (by, headers) => ask(by, 'POST', PLACES[kind], { ...NEW[kind], description }, headers),
    stored: () => auditRows(description),
  }),
  deletion: async (kind, description) => {
    const { id } = (await ask(direct, 'POST', PLACES[kind], { ...NEW[kind], description })).body
    const field = kind === 'persona' ? 'deleted' : 'removed'
    const where = 'where resource_kind = $1 and resource_id = $2 and $3 = any(fields)'
    return {
      send: (by, headers) => ask(by, 'DELETE', `${PLACES[kind]}/${id}`, undefined, headers),
      stored: async () => (await cluster.query(`select from audit ${where}`, [kind, id, field])).length,
    }
  },
  restoration: async (kind, description) => {
    const { etag } = await update(direct, kind, description)
    await update(direct, kind, `after ${description}`)
    const version = Number(/-(\d+)"$/.exec(etag ?? '')?.[1])
    return {
      send: (by, headers) => ask(by, 'POST', `${PLACES[kind]}/1/restore`, { version }, headers),
      stored: async () => (await auditRows(description)) - 1,
      sent: description, // the commit to cut is the first one after this text
    }
  },
}

for (const [act, prepare] of Object.entries(WRITES)) {
  for (const kind of ['persona', 'tool'] as const) {
    t.test(`applied when the answer of the commit is lost, with one effect: ${act} of ${kind}`, async t => {
      for (const key of [undefined, `"lost ${act} ${kind}"`]) {
        const description = `lost ${act} ${kind} ${key}`
        const write = await prepare(kind, description)
        // An update without a key is one statement, which commits itself.
        if (act === 'update' && key === undefined) onMessage(description, loseNextAnswer)
        else onCommit(write, loseNextAnswer)
        const answer = await write.send(service, key === undefined ? {} : { 'idempotency-key': key })
        passAll()
        t.ok(answer.status < 300, JSON.stringify(answer))
        if (act !== 'deletion') t.equal(answer.body.description, description)
        t.equal(await write.stored(), 1)
      }
    })

    t.test(`503 unknown when its server process hangs, once with its key: ${act} of ${kind}`, async t => {
      const headers = { 'idempotency-key': `"hung ${act} ${kind}"` }
      const write = await prepare(kind, `hung ${act} ${kind}`)
      onCommit(write, hang)
      const answer = await write.send(service, headers)
      passAll()
      t.match(answer, { status: 503, body: { reason: 'database_unreachable', outcome: 'unknown' } })
      const advice = `It is not known whether the ${act} was applied. Repeat the request with the same Idempotency-Key`
      t.match(answer.body.detail, advice)
      goOn()
      const repeated = async (by: ServiceProcess) => {
        let again = answer
        await eventually(async () => {
          again = await write.send(by, headers)
          return ![409, 429, 503].includes(again.status)
        })
        return `${again.status} ${again.body.id}`
      }
      const answers = await Promise.all([service, direct, service, direct].map(repeated))
      t.equal(new Set(answers).size, 1, JSON.stringify(answers))
      t.match(answers[0], /^20/)
      t.equal(await write.stored(), 1)
    })

    t.test(`true when the line is cut behind any message: ${act} of ${kind}`, async t => {
      const told = new Map<string, number>()
      for (let isCut = true, boundary = 0; isCut; boundary += 2) {
        const description = `cut ${boundary} ${act} ${kind}`
        const write = await prepare(kind, description)
        const key = boundary % 4 === 0 ? undefined : { 'idempotency-key': `"${description}"` }
        let passed = 0
        isCut = false
        line.decide = ({ bytes }) => {
          if (isCut || passed++ < boundary) return { do: 'pass' }
          isCut = true
          return { do: 'cut', after: bytes.length }
        }
        const { status, body } = await write.send(service, key)
        passAll()
        const outcome = status < 300 ? 'applied' : String(body.outcome)
        const stored = await write.stored()
        // The outcome `unknown` is always allowed, but it must be rare.
        const isTrue = outcome === 'unknown' ? stored <= 1 : stored === (outcome === 'applied' ? 1 : 0)
        t.ok(isTrue, `${description}: ${status} ${outcome}, stored ${stored}`)
        told.set(outcome, (told.get(outcome) ?? 0) + 1)
      }
      t.ok((told.get('applied') ?? 0) > 5, JSON.stringify([...told]))
    })
  }
}

t.test('503 unknown when the statement may have arrived or hangs; the same If-Match is safe afterwards', async t => {
  for (const kind of ['persona', 'tool'] as const) {
    for (const hangs of [false, true]) {
      const description = `in doubt ${kind} ${hangs}`
      const { etag = '' } = await update(direct, kind, `before ${description}`)
      onMessage(description, pid => {
        if (hangs) hang(pid)
        return hangs
      })
      const answer = await update(service, kind, description, { 'if-match': etag })
      passAll()
      t.match(answer, { status: 503, body: { error_code: 'SERVICE_UNAVAILABLE', outcome: 'unknown' } })
      goOn()
      t.equal((await update(service, kind, description, { 'if-match': etag })).status, 200)
      t.equal(await auditRows(description), 1)
    }
  }
})

t.test('503 unknown, not not_applied, for a repetition whose key could not be looked up', async t => {
  const description = 'kept, and not found'
  const headers = { 'idempotency-key': '"not found"' }
  const again = () => update(service, 'persona', description, headers)
  t.equal((await again()).status, 200)
  for (const statements of [0, 1]) {
    let passed = 0
    line.decide = ({ type }) => (type !== 'B' || passed++ < statements ? { do: 'pass' } : { do: 'cut', after: 0 }) // the first statement authenticates
    const answer = await again()
    t.match(answer, { status: 503, body: { reason: 'database_unreachable', outcome: 'unknown' } }, `${statements}`)
    passAll()
  }
  t.match(await again(), { status: 200, body: { description } })
  t.equal(await auditRows(description), 1)
  onMessage('never stored at all', () => false)
  const first = await update(service, 'persona', 'never stored at all', { 'idempotency-key': '"never stored"' })
  t.match(first, { status: 503, body: { outcome: 'not_applied' } }, 'the key was looked up, and stands for nothing')
  passAll()
})

t.test('applied when the answer of the commit is lost: changes of one field below /api', async t => {
  const changes: [path: string, body: object][] = [
    ['/admin/persona/3/listed', { is_listed: false }],
    ['/admin/agents/display-priorities', { display_priority_map: { 3: 5, 4: 6 } }],
    ['/admin/tool/status', { tool_ids: [3, 4], enabled: false }],
  ]
  for (const [path, body] of changes) {
    const rows = async () => (await cluster.query('select from audit')).length
    const before = await rows()
    onCommit({ sent: '' }, loseNextAnswer)
    const answer = await ask(service, 'PATCH', `/api${path}`, body)
    passAll()
    t.equal(answer.status, 200, JSON.stringify(answer))
    t.ok((await rows()) > before, 'it is stored')
  }
})

t.test('503 unknown, with the way to find out, when the commit of a proposal or of its end is lost', async t => {
  const { etag = '' } = await update(direct, 'persona', 'before proposals')
  const unknown = (detail: RegExp) => ({ status: 503, body: { outcome: 'unknown', detail } })
  const lost = async (
    whenCommitted: (pid: number) => void,
    ...asked: [path: string, body?: object, headers?: Headers]
  ) => {
    onCommit({ sent: '' }, whenCommitted)
    const answer = await ask(service, asked[0].startsWith('/persona') ? 'PATCH' : 'POST', ...asked)
    passAll()
    goOn()
    return answer
  }
  const url = '/persona/1?update_mask=name&propose=true'
  const keyed = { 'if-match': etag, 'idempotency-key': '"a lost proposal"' }
  const again = /not known whether the proposal was stored\. Repeat the request with the same Idempotency-Key/
  t.match(await lost(loseNextAnswer, url, { name: 'by key' }, keyed), unknown(again))
  t.equal((await ask(direct, 'PATCH', url, { name: 'by key' }, keyed)).status, 202)
  const list = '/proposals?kind=persona&id=1&state=open'
  const look = `It is not known whether the proposal was stored. Look for the proposal with GET ${list} before`
  t.match((await lost(loseNextAnswer, url, { name: 'without' }, { 'if-match': etag })).body.detail, look)
  const listed = (await ask(direct, 'GET', list)).body as unknown as { id: number }[]
  t.equal(listed.length, 2)
  const third = (await ask(direct, 'PATCH', url, { name: 'third' }, { 'if-match': etag })).body.id
  const [first, second] = listed.map(({ id }) => id)
  const read = (id?: number) => ask(direct, 'GET', `/proposals/${id}`)
  const acts = [
    [first, 'approve', 'update was applied', 'approved', undefined, { 'if-match': (await read(first)).etag ?? '' }],
    [second, 'reject', 'proposal was rejected', 'rejected', { reason: 'x' }],
    [Number(third), 'withdraw', 'proposal was withdrawn', 'withdrawn'],
  ] as const
  for (const [id, act, outcome, state, ...sent] of acts) {
    const answer = await lost(act === 'approve' ? hang : loseNextAnswer, `/proposals/${id}/${act}`, ...sent)
    t.match(
      answer,
      unknown(new RegExp(`the ${outcome}. Send GET /proposals/${id}: the state of the proposal shows the outcome.$`)),
    )
    await eventually(async () => (await read(id)).body.state === state)
  }
})

async function start(url: string): Promise<ServiceProcess> {
  const timeouts = { STATEMENT_TIMEOUT_MS: '3000', LOCK_TIMEOUT_MS: '3000' }
  return await ServiceProcess.start(
    { DATABASE_URL: url, SECRET_KEYS: keys, DATABASE_POOL_SIZE: '2', APPROVAL: 'anyone', ...timeouts },
    t,
  )
}

function ask(by: ServiceProcess, method: string, path: string, body?: object, headers: Headers = {}) {
  return askWith(by, token, method, path, { headers, ...(body && { body }) })
}

function update(by: ServiceProcess, kind: Kind, description: string, headers?: Headers) {
  const [method, query] = kind === 'persona' ? ['PATCH', '?update_mask=description'] : ['PUT', '']
  return ask(by, method, `${PLACES[kind]}/1${query}`, { description }, headers)
}

/** Calls `act` with the id of the server process for each message from the service that contains `text`. Cuts both sides if `act` returns false. */
function onMessage(text: string, act: (pid: number) => unknown): void {
  line.decide = ({ from, bytes, pid }) => {
    const isMet = from === 'service' && bytes.includes(text)
    return isMet && act(pid) === false ? { do: 'cut', after: 0 } : { do: 'pass' }
  }
}

/** Calls `act` with the id of the server process that is about to receive the commit of a write. */
function onCommit({ sent = '' }: Pick<Write, 'sent'>, act: (pid: number) => unknown): void {
  let isMet = false
  line.decide = ({ from, bytes, pid }) => {
    isMet ||= from === 'service' && bytes.includes(sent)
    if (isMet && from === 'service' && bytes.includes('commit\0')) act(pid)
    return { do: 'pass' }
  }
}

/** Cuts both sides instead of delivering the server's next message. */
function loseNextAnswer(): void {
  line.decide = ({ from }) => {
    if (from === 'service') return { do: 'pass' }
    passAll()
    return { do: 'cut', after: 0 }
  }
}

/** Suspends a server process before it receives the current message. */
function hang(pid: number): void {
  hanging.add(pid)
  signal(pid, 'SIGSTOP')
}

function goOn(): void {
  for (const pid of hanging) signal(pid, 'SIGCONT')
  hanging.clear()
}

function passAll(): void {
  line.decide = () => ({ do: 'pass' })
}

async function auditRows(description: string): Promise<number> {
  return (await cluster.query(`select from audit where difference -> 'description' ->> 'to' = $1`, [description]))
    .length
}
