import { chmodSync, mkdtempSync } from 'node:fs'
import { Agent, request } from 'node:http'
import { connect, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import pg from 'pg'
import { migrate, residentMib, startService } from '../bench/process.js'
import { agentBody, definitionOf, fillWorld } from '../bench/world.js'
import { mintToken } from '../src/auth/token.js'
import { startEmbedded } from '../src/db/embedded/embedded.js'
import { generateKey } from '../src/secrets/key-ring.js'

/* `npm run limits`: shows the effect of each attack on other callers, one row per attack. Rate limits are off. */

const ATTACK_MS = 6_000
const CHECKOUT = fileURLToPath(new URL('../..', import.meta.url))

interface Answer {
  status: number
  ms: number
  retryAfter: string | undefined
}

const dataDir = mkdtempSync(join(tmpdir(), 'limits-'))
chmodSync(dataDir, 0o711) // if root starts PostgreSQL, it runs as another user, who needs access to this folder
const embedded = await startEmbedded({ dataDir })
const SECRET_KEYS = generateKey('bench')
const env = { PATH: process.env.PATH, DATABASE_URL: embedded.url, SECRET_KEYS }
migrate(CHECKOUT, env)
const database = new pg.Client({ connectionString: embedded.url })
await database.connect()
const { token: victim } = await fillWorld(database, SECRET_KEYS)
const attackers: string[] = []
for (let i = 0; i < 20; i++) {
  const { token, hash } = mintToken('person')
  await database.query('insert into token (hash, user_id) select $1, user_id from token limit 1', [hash])
  attackers.push(token)
}
const [attacker = ''] = attackers
const service = await startService(CHECKOUT, env)

/** Sends one request. The status is 0 if the connection failed. */
function ask(method: string, path: string, token: string, body: string | Buffer, agent?: Agent): Promise<Answer> {
  const start = performance.now()
  return new Promise(resolve => {
    const done = (status: number, retryAfter?: string) => resolve({ status, ms: performance.now() - start, retryAfter })
    const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' }
    const sent = request({ host: '127.0.0.1', port: service.port, method, path, headers, ...(agent && { agent }) })
    sent.on('error', () => done(0))
    sent.on('response', response => {
      response.resume().on('end', () => done(response.statusCode ?? 0, response.headers['retry-after']))
      response.on('error', () => done(0))
    })
    sent.end(body)
  })
}

let edition = 0
function updateAgent(token: string, id: number, agent?: Agent): Promise<Answer> {
  return ask('PATCH', `/persona/${id}`, token, JSON.stringify(agentBody(id, `Edition ${++edition}`)), agent)
}

function validate(token: string, definition: string, agent?: Agent): Promise<Answer> {
  return ask('POST', '/admin/tool/custom/validate', token, `{"definition":${definition}}`, agent)
}

/** Sends the requests of `next`, `width` at a time, until the time `until`. */
async function flood(width: number, until: number, next: (i: number) => Promise<Answer>): Promise<Answer[]> {
  const answers: Answer[] = []
  let count = 0
  const lane = async () => {
    while (performance.now() < until) {
      const answer = await next(count++)
      answers.push(answer)
      if (answer.status === 429 || answer.status === 503) await sleep(20)
    }
  }
  await Promise.all(Array.from({ length: width }, lane))
  return answers
}

function statuses(answers: readonly Answer[]): string {
  const counts = new Map<number, number>()
  for (const { status } of answers) counts.set(status, (counts.get(status) ?? 0) + 1)
  return [...counts]
    .sort(([a], [b]) => a - b)
    .map(([status, count]) => `${count} × ${status || 'cut'}`)
    .join(', ')
}

function at(answers: readonly Answer[], part: number): number {
  const times = answers.map(({ ms }) => ms).sort((a, b) => a - b)
  return times[Math.min(times.length - 1, Math.floor(times.length * part))] ?? Number.NaN
}

/** Runs an attack while another caller updates its own agents. Prints both callers' answers, and the service's memory and readiness. */
async function row(name: string, promise: string, attack: (until: number) => Promise<Answer[]>): Promise<void> {
  const until = performance.now() + ATTACK_MS
  let isOver = false
  let residentMax = 0
  const others: Answer[] = []
  const agent = new Agent({ keepAlive: true })
  const probing = (async () => {
    for (let id = 600; !isOver; id = id === 900 ? 600 : id + 1) {
      others.push(await updateAgent(victim, id, agent))
      residentMax = Math.max(residentMax, residentMib(service.pid))
      await sleep(15)
    }
  })()
  const attacked = await attack(until)
  isOver = true
  await probing
  agent.destroy()
  const odd = attacked.filter(({ status, retryAfter }) => status >= 500 && !(status === 503 && retryAfter))
  const ready = (await fetch(`http://127.0.0.1:${service.port}/readyz`)).status
  const figures = [
    `p99 ${at(others, 0.99).toFixed(0)} ms, longest ${at(others, 1).toFixed(0)} ms, ${statuses(others)}`,
    `${statuses(attacked)}${odd.length > 0 ? `, ${odd.length} odd` : ''}`,
    `${residentMax.toFixed(0)} MiB`,
    String(ready),
  ]
  process.stdout.write(`| ${[name, promise, ...figures].join(' | ')} |\n`)
  await sleep(1_000)
}

function withSchemas(schema: object, schemas: Record<string, object> = {}): string {
  const post = { operationId: 'x', summary: 'X', requestBody: { content: { 'application/json': { schema } } } }
  return JSON.stringify({ ...definitionOf(1), openapi: '3.1.0', paths: { '/x': { post } }, components: { schemas } })
}

/** Gives tools 3 and 4 definitions of 4 MB, and attaches both tools to agent 3. */
async function makeLargeTools(): Promise<void> {
  const definition = { ...definitionOf(1), 'x-note': 'x'.repeat(4_000_000) }
  const requests = [3, 4].map(id => ask('PUT', `/admin/tool/custom/${id}`, attacker, JSON.stringify({ definition })))
  const attached = async () => await ask('PATCH', '/persona/3?update_mask=tool_ids', attacker, '{"tool_ids":[3,4]}')
  for (const { status } of [...(await Promise.all(requests)), await attached()])
    if (status !== 200) throw new Error(`large tools were answered ${status}`)
}

/** Returns definitions that are slow to check, as JSON texts. */
function hostile(): string[] {
  const many = (count: number, make: (i: number) => object) =>
    Object.fromEntries(Array.from({ length: count }, (_, i) => [`s${i}`, make(i)]))
  const ref = (i: number) => ({ $ref: `#/components/schemas/s${i}` })
  const wide = many(300, () => ({ properties: many(300, ref) }))
  const circle = many(10_000, i => ({ items: ref((i + 1) % 10_000) }))
  const doubled = many(24, i => ({ allOf: [ref(Math.min(23, i + 1)), ref(Math.min(23, i + 1))] }))
  const pattern = { pattern: '(a+)+$', enum: ['a'.repeat(40)], default: `${'a'.repeat(40)}!` }
  return [...[wide, circle, doubled].map(schemas => withSchemas(ref(0), schemas)), withSchemas(pattern)]
}

function open(text: string): Socket {
  const socket = connect({ host: '127.0.0.1', port: service.port })
  socket.on('error', () => undefined) // the service may refuse or end the connection, which is measured
  socket.write(text)
  return socket
}

function head(token: string, bytes: number | 'chunked'): string {
  const length = bytes === 'chunked' ? 'Transfer-Encoding: chunked' : `Content-Length: ${bytes}`
  return `PATCH /persona/5 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${token}\r\nContent-Type: application/json\r\n${length}\r\n\r\n`
}

async function main(): Promise<void> {
  process.stdout.write(
    '| attack | must hold | an update of another caller | what the attack was answered | resident | ready |\n',
  )
  process.stdout.write('| --- | --- | --- | --- | --- | --- |\n')
  const large = JSON.stringify(definitionOf(4_000, 'Orders', 'At length. '.repeat(50)))
  const tool = JSON.stringify({ name: 'Orders', description: 'Changes orders', definition: definitionOf(10) })
  await row('nothing', '', until => flood(0, until, () => updateAgent(attacker, 1)))
  await row('50 requests at once of one token, all kinds', 'p99 250 ms, none refused', until =>
    flood(50, until, i => {
      if (i % 4 === 0) return ask('PUT', `/admin/tool/custom/${1 + (i % 200)}`, attacker, tool)
      if (i % 4 === 1) return validate(attacker, JSON.stringify(definitionOf(300)))
      return i % 4 === 2 ? ask('GET', `/persona/${1 + (i % 500)}`, attacker, '') : updateAgent(attacker, 1 + (i % 500))
    }),
  )
  await row(`definitions of ${(large.length / 1e6).toFixed(1)} MB, ten at a time, of one token`, 'p99 100 ms', until =>
    flood(10, until, () => validate(attacker, large)),
  )
  for (const [i, definition] of hostile().entries()) {
    const name = `hostile definition ${i + 1} of ${hostile().length} (${(definition.length / 1e3).toFixed(0)} kB), two at a time`
    await row(name, 'longest 150 ms', until => flood(2, until, () => validate(attacker, definition)))
  }
  await row('400 bodies of 4 MB announced by one token, none sent', 'below 512 MiB, ready', async until => {
    const sockets = Array.from({ length: 400 }, () => open(head(attacker, 4 * 2 ** 20)))
    await sleep(until - performance.now())
    for (const socket of sockets) socket.destroy()
    return []
  })
  await row('a row locked for 10 s, 40 updates of it', 'others not held', async () => {
    await database.query('begin; select from persona where id = 7 for update')
    const waiting = Array.from({ length: 40 }, (_, i) => updateAgent(attackers[i % 20] ?? '', 7))
    await sleep(10_000)
    await database.query('rollback')
    return await Promise.all(waiting)
  })
  await row('eight tokens with 50 updates at once, each second', 'p99 500 ms', async until => {
    const all: Promise<Answer>[] = []
    for (; performance.now() < until; await sleep(1_000)) {
      for (let i = 0; i < 400; i++) all.push(updateAgent(attackers[i % 8] ?? '', 1 + (i % 500)))
    }
    return await Promise.all(all)
  })
  await makeLargeTools()
  const read = (path: string) => `GET ${path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${attacker}\r\n\r\n`
  for (const [connections, path] of [
    [140, '/persona/3'],
    [300, '/tool/3'],
  ] as const) {
    const name = `${connections} answers of ${path} (8 MB, 4 MB) to one token, none read`
    await row(name, 'below 512 MiB', async until => {
      const sockets: Socket[] = []
      for (; performance.now() < until; await sleep(50)) {
        if (sockets.length < connections) for (let i = 0; i < 5; i++) sockets.push(open(read(path)).pause())
      }
      for (const socket of sockets) socket.destroy()
      return []
    })
  }
  await row('drips, chunks of one byte, connection storms, unread answers', 'no crash, below 512 MiB', async until => {
    const dripping = attackers.map(token => open(head(token, 100_000)))
    const chunked = attackers.map(token => open(head(token, 'chunked')))
    const unread = Array.from({ length: 40 }, () =>
      open('GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(50)).pause(),
    )
    const storms: Socket[] = []
    for (; performance.now() < until; await sleep(100)) {
      for (const socket of dripping) if (socket.writable) socket.write(' ')
      for (const socket of chunked) if (socket.writable) socket.write('1\r\n \r\n'.repeat(1_000))
      for (let i = 0; i < 50; i++) storms.push(open('GET /healthz HTTP/1.1\r\n'))
    }
    for (const socket of [...dripping, ...chunked, ...unread, ...storms]) socket.destroy()
    return []
  })
}

await main()
process.kill(service.pid)
await database.end()
await embedded.stop()
process.exit(0)
