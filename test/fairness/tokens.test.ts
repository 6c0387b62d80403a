import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { mintToken } from '../../src/auth/token.js'
import { FULL, fairService, repeatedly, requireFairness, requireFewPass } from './beside.js'
import type { Callers, QuietUpdates } from './callers.js'
import { QuietCallers } from './quiet.js'
import { fairnessWorld, type Owner, owner } from './world.js'

const TOKENS = 10
/** A busy machine lets more of them pass, for what the database does takes longer then. */
const ATTEMPTS = 3

/** How many requests one token sends at once. */
const AT_ONCE = FULL ? 400 : 200
/** Quiet callers that send for so long send one update. */
const ONE_UPDATE_MS = 100

/** What each of ten tokens sends again and again, who is beside them, and how many answers may pass a quiet request. */
interface Burst {
  atOnce: number
  query: string
  body: string
  status: number
  quiet: Owner
  updates: QuietUpdates
  passingMax: number
}

const world = await fairnessWorld(t)
const service = await fairService(t, world)

t.test('ten tokens at once', async t => {
  const fields = (count: number) => Array.from({ length: count }, (_, index) => `"descriptioo${index}":1`).join(',')
  const [quiet = world.attacker] = world.victims
  const often = { quiet, updates: {}, passingMax: 450 }
  const bursts: Record<string, Burst> = {
    'dear bodies, beside prompts that are read in several turns': {
      atOnce: 4,
      query: 'update_mask=description',
      body: `{${fields(9_900)}}`,
      status: 422,
      quiet,
      updates: { promptLength: 250_000, pauseMs: 700 },
      passingMax: 6,
    },
    'refused for their mask': { ...often, atOnce: 30, query: 'update_mask=nope', body: '{"a":1}', status: 422 },
    'refused for each of 700 fields': {
      ...often,
      atOnce: 30,
      query: 'update_mask=nope',
      body: `{${fields(700)}}`,
      status: 422,
    },
  }
  for (const [name, { atOnce, query, body, status: expected, quiet, updates, passingMax }] of Object.entries(bursts)) {
    const bytes = Buffer.from(body)
    let answers = 0
    const statuses = new Set<number>()
    const attack = async (over: AbortSignal, callers: Callers) => {
      const send = async ({ token, agentId }: Owner) => {
        const { status } = await callers.send('PATCH', `/persona/${agentId}?${query}`, token, bytes)
        answers++
        statuses.add(status)
      }
      // New tokens, with a minute of their own.
      const made = Array.from({ length: TOKENS }, () => owner(world.client, `alice+${randomUUID()}@example.com`, []))
      const owners = await Promise.all(made)
      await Promise.all(owners.map(owner => repeatedly(over, atOnce, 0, () => send(owner))))
    }

    t.test(`${name}: few of them are answered while a quiet request is in work`, async t => {
      const fields = (n: number) =>
        updates.promptLength === undefined
          ? { description: `${n}` }
          : { system_prompt: `${n}`.padEnd(updates.promptLength, 'x') }
      const answered = () => answers
      await requireFewPass(t, service, quiet, { attack, answered, begunAfter: TOKENS * atOnce, passingMax, fields })
      t.ok(statuses.has(expected)) // and 429, where they have used their minute
    })

    // Where processors are scarce, a burst takes those of everybody: what it costs in time shows on a quiet machine only.
    if (!FULL) continue
    t.test(`${name}: quiet callers take no longer`, t =>
      requireFairness(t, world, service, attack, {
        owners: world.victims.slice(0, updates.promptLength === undefined ? 10 : 2),
        updates,
      }),
    )
  }
})

t.test(
  'false tokens over 400 connections: few are answered while a newcomer from their address is in work',
  async t => {
    const made = Array.from({ length: 20_000 }, () => mintToken('person').token)
    let sent = 0
    let answers = 0
    const statuses = new Set<number>()
    const attack = (over: AbortSignal, callers: Callers) =>
      repeatedly(over, 400, 0, async () => {
        const { status } = await callers.send('PATCH', '/persona/1', made[sent++ % made.length] ?? '', '{}')
        statuses.add(status)
        answers++
      })
    const fields = (n: number) => ({ description: `${n}` })
    const passing = { attack, answered: () => answers, begunAfter: 2_000, passingMax: 200, fields }
    await requireFewPass(t, service, world.victims[1] ?? world.attacker, passing)
    await requireFewPass(t, service, () => owner(world.client, `alice+${randomUUID()}@example.com`, []), passing)
    t.ok(statuses.has(401)) // and 429: one address failed too often
    for (const status of [401, 429, 503]) statuses.delete(status)
    t.strictSame([...statuses], [])
  },
)

/** A request that a token sends many times at once, with a minute of its own. */
interface Repeated {
  method: string
  path: (agentId: number) => string
  body: string
  status: number
  /** What makes its agent. */
  toolIds: number[]
  fields: string
  /** That many at once cost the service less than their sender: none waits long. */
  isLight?: true
}

const REPEATED: Record<string, Repeated> = {
  'answers of 95 kB': {
    method: 'GET',
    path: id => `/persona/${id}`,
    body: '',
    status: 200,
    toolIds: world.smallTools,
    fields: "description = ''",
  },
  'states of 158 kB': {
    method: 'PATCH',
    path: id => `/persona/${id}?update_mask=`,
    body: '{}',
    status: 204,
    toolIds: [],
    fields: 'description = repeat(chr(1), 10000), system_prompt = repeat(chr(1), 16300)',
  },
  'who calls': {
    method: 'GET',
    path: () => '/me',
    isLight: true,
    body: '',
    status: 200,
    toolIds: [],
    fields: "description = ''",
  },
}

async function callerOf({ toolIds, fields }: Repeated): Promise<Owner> {
  const made = await owner(world.client, `alice+${randomUUID()}@example.com`, toolIds)
  await world.client.query(`update persona set ${fields} where id = $1`, [made.agentId])
  return made
}

/** Sends all of them at once, each on a connection of its own, and answers their statuses; `onFirst` is told of the first answer. */
async function burst(
  { method, path, body }: Repeated,
  { token, agentId }: Owner,
  onFirst = () => {},
): Promise<Set<string>> {
  const head = [
    `${method} ${path(agentId)} HTTP/1.1`,
    'Host: localhost',
    `Authorization: Bearer ${token}`,
    'Prefer: return=minimal',
    'Connection: close',
    ...(body === '' ? [] : ['Content-Type: application/json', `Content-Length: ${body.length}`]),
  ]
  const sockets = Array.from({ length: AT_ONCE }, () => connect(service.port, '127.0.0.1'))
  await Promise.all(sockets.map(socket => once(socket, 'connect')))
  const statuses = new Set<string>()
  const answered = sockets.map(async socket => {
    socket.once('data', (bytes: Buffer) => {
      if (statuses.size === 0) onFirst()
      statuses.add(bytes.toString('latin1', 9, 12))
    })
    socket.resume()
    await once(socket, 'close')
  })
  for (const socket of sockets) socket.write(`${head.join('\r\n')}\r\n\r\n${body}`)
  await Promise.all(answered)
  return statuses
}

for (const [name, repeated] of Object.entries(REPEATED).filter(([, { isLight }]) => !isLight)) {
  t.test(`a burst of one token, ${name}: another token's update does not wait for it, its own does`, async t => {
    const sender = (who: Owner) => new QuietCallers(world, service, { owners: [who] })
    const another = sender(world.victims[0] ?? world.attacker)
    /** How long an update takes that comes when the burst has begun: of the same token, and of another. In ms. */
    const beside = async () => {
      const caller = await callerOf(repeated)
      const own = sender(caller)
      await Promise.all([own, another].map(one => one.serve(ONE_UPDATE_MS)))
      let answered = Promise.resolve(new Set<string>())
      await new Promise<void>(resolve => {
        answered = burst(repeated, caller, resolve)
      })
      const served = await Promise.all([own, another].map(one => one.serve(ONE_UPDATE_MS)))
      for (const { statuses } of served) t.strictSame(statuses, { 200: 1 })
      t.ok((await answered).has(`${repeated.status}`)) // and 429, of those that its own update had wait for the row
      await own.close()
      return served.map(({ latenciesMs }) => Math.round(latenciesMs[0] ?? 0))
    }
    const comparisons: number[][] = []
    const isFair = ([own = 0, another = 0]: number[]) => another < own / 2
    while (comparisons.length < ATTEMPTS && !comparisons.some(isFair)) comparisons.push(await beside())
    t.ok(comparisons.some(isFair), `own and another: ${comparisons.join('; ')} ms`)
    await another.close()
  })
}

// As above, what a burst costs in time shows on a quiet machine only.
if (FULL) {
  t.test('many small updates of eight tokens at once, again and again: quiet callers take no longer', async t => {
    const made = Array.from({ length: 8 }, () => owner(world.client, `alice+${randomUUID()}@example.com`, []))
    const owners = await Promise.all(made)
    const statuses = new Set<number>()
    const update = async (callers: Callers, owner: Owner) =>
      statuses.add((await callers.update(owner, { description: randomUUID() })).status)
    await requireFairness(t, world, service, async (over, callers) => {
      while (!over.aborted) {
        await sleep(1_000)
        await Promise.all(owners.flatMap(owner => Array.from({ length: AT_ONCE / 8 }, () => update(callers, owner))))
      }
    })
    statuses.delete(429) // of who has used their minute
    t.strictSame([...statuses], [200])
  })
}

for (const [name, repeated] of FULL ? Object.entries(REPEATED) : []) {
  t.test(`a burst in each second, each of another token, ${name}: quiet callers take no longer`, t =>
    requireFairness(t, world, service, async over => {
      while (!over.aborted) await Promise.all([burst(repeated, await callerOf(repeated)), sleep(1_000)])
    }),
  )
}
