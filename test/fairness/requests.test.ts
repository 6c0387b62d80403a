import { randomUUID } from 'node:crypto'
import { connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { eventually } from '../http/running.js'
import { DEFINITION } from '../matrix-organisation.js'
import {
  type Attack,
  besideAttack,
  FULL,
  fairService,
  peakResidentBytes,
  RESIDENT_BYTES_MAX,
  repeatedly,
  requireAllServed,
  requireFairness,
} from './beside.js'
import { Callers } from './callers.js'
import { QuietCallers } from './quiet.js'
import { fairnessWorld, type Owner, owner } from './world.js'

/** Who attacks, each with a minute of their own: new ones for each slot. */
const TOKENS = 10
/** How long quiet callers are served beside each attack, where no times are compared. */
const SERVED_MS = 1_000
/** As many agents are visible to everybody. */
const PUBLIC_AGENTS = 300
/** Of an agent with prompts of so many characters in all. */
const LARGE_CHARACTERS = 200_000

const world = await fairnessWorld(t)
const { client } = world
await client.query(
  `insert into persona (name, description, recency_bias, llm_filter_extraction, llm_relevance_filter, is_public)
  select 'public ' || n, repeat('d', 300), 'auto', false, false, true from generate_series(1, $1) n`,
  [PUBLIC_AGENTS],
)
const service = await fairService(t, world)

/** The statuses of the answers to an attack, with the first body of each. */
const answers = new Map<number, string>()

function newcomers(count = TOKENS): Promise<Owner[]> {
  return Promise.all(Array.from({ length: count }, () => owner(client, `alice+${randomUUID()}@example.com`, [])))
}

async function curators(count?: number): Promise<Owner[]> {
  const owners = await newcomers(count)
  await client.query(
    `update user_account set permissions = permissions || '{manage:actions}'
    from persona where persona.owner_id = user_account.id and persona.id = any($1)`,
    [owners.map(({ agentId }) => agentId)],
  )
  return owners
}

/** Tools with a definition of about so many bytes. */
async function curated(count: number, bytes: number): Promise<number[]> {
  const definition = JSON.stringify({ ...DEFINITION, 'x-text': 'x'.repeat(bytes) })
  const { rows } = await client.query<{ id: number }>(
    `with d as (insert into tool_definition (hash, content, size_bytes)
      values (sha256(convert_to($2::text, 'utf8')), $2::json, octet_length($2::text)) on conflict (hash) do update set size_bytes = excluded.size_bytes
      returning hash)
    insert into tool (name, definition_hash) select 'curated ' || gen_random_uuid(), hash from d, generate_series(1, $1) returning id`,
    [count, definition],
  )
  return rows.map(({ id }) => id)
}

type Send = (callers: Callers, owner: Owner, n: number) => Promise<{ status: number; body: string }>

/** Each of these callers has so many requests under way, again and again. */
function each(atOnce: number, owners: () => Promise<Owner[]>, send: Send): Attack {
  return async (over, callers) => {
    const made = await owners()
    const run = (one: Owner) => {
      let n = 0
      return repeatedly(over, atOnce, 0, async () => {
        const { status, body } = await send(callers, one, n++)
        if (!answers.has(status)) answers.set(status, body.slice(0, 500))
      })
    }
    await Promise.all(made.map(run))
  }
}

/** One agent with large prompts, and who may edit it. */
async function editors(count: number): Promise<Owner[]> {
  const [first, ...others] = await newcomers(count)
  if (first === undefined) throw new Error('nobody was made')
  await client.query(
    `with s as (insert into persona_user (persona_id, user_id, level)
      select $1, owner_id, 'editor' from persona where id = any($2))
    update persona set system_prompt = repeat('x', $3 / 2), task_prompt = repeat('y', $3 / 2) where id = $1`,
    [first.agentId, others.map(({ agentId }) => agentId), LARGE_CHARACTERS],
  )
  return [first, ...others].map(({ token }) => ({ token, agentId: first.agentId }))
}

const validation = JSON.stringify({ definition: { ...DEFINITION, 'x-text': 'x'.repeat(6_000) } })
const mask = Array.from({ length: 400 }, (_, n) => `nope${n}`).join(',')

function requestText(method: string, path: string, token: string, headers: string[] = [], length?: number): string {
  const body = length === undefined ? [] : ['Content-Type: application/json', `Content-Length: ${length}`]
  return [
    `${method} ${path} HTTP/1.1`,
    'Host: localhost',
    `Authorization: Bearer ${token}`,
    ...headers,
    ...body,
    '',
    '',
  ].join('\r\n')
}

function opened(text: string): Socket {
  const socket = connect(service.port, '127.0.0.1').on('error', () => undefined)
  socket.write(text)
  return socket
}

/** Sends on a new connection, and hangs up after so many ms. */
async function cutOff(text: string, ms: number): Promise<void> {
  const socket = opened(text)
  await sleep(ms)
  socket.destroy()
}

/** By name: the statuses of its answers, where they are read, and the attack. */
const ATTACKS: Record<string, [number[], Attack]> = {
  'lists of agents and of tools': [
    [200],
    each(8, newcomers, (callers, { token }, n) =>
      callers.send('GET', n % 2 === 0 ? '/persona?limit=100' : '/tool?limit=100', token, ''),
    ),
  ],
  'ids that nothing has': [
    [404],
    each(30, newcomers, (callers, { token }, n) =>
      callers.send('PATCH', `/persona/${900_000_000 + n}?update_mask=name`, token, '{"name":"x"}'),
    ),
  ],
  'masks of unknown fields': [
    [422],
    each(30, newcomers, (callers, { token, agentId }) =>
      callers.send('PATCH', `/persona/${agentId}?update_mask=${mask}`, token, '{"name":"x"}'),
    ),
  ],
  'validations with all that they can tell': [
    [200],
    each(8, curators, (callers, { token }) =>
      callers.send('POST', '/admin/tool/custom/validate?complete=true&report=full', token, validation),
    ),
  ],
  'an agent of 200 kB, updated by six editors': [
    [200],
    each(
      4,
      () => editors(6),
      (callers, one) => callers.update(one, { description: randomUUID() }),
    ),
  ],
  'updates with a key that are cut off and repeated': [
    [],
    async over => {
      const owners = await newcomers()
      const repeat = async ({ token, agentId }: Owner) => {
        const body = JSON.stringify({ description: randomUUID() })
        const key = [`Idempotency-Key: "${randomUUID()}"`]
        const path = `/persona/${agentId}?update_mask=description`
        const text = requestText('PATCH', path, token, key, body.length) + body
        for (const ms of [2, 5, 20]) await cutOff(text, ms)
      }
      await Promise.all(owners.map(one => repeatedly(over, 6, 0, () => repeat(one))))
    },
  ],
  'lists that two hundred connections ask for, fourteen each, and leave unread': [
    [],
    async over => {
      const owners = await newcomers()
      let n = 0
      await repeatedly(over, 200, 0, async () => {
        const { token } = owners[n++ % owners.length] as Owner
        await cutOff(requestText('GET', '/persona?limit=100', token).repeat(14), 100)
      })
    },
  ],
  'bodies of up to 4 MB, whole and not, that are left': [
    [],
    async over => {
      const owners = await curators()
      const bodies = [200_000, 1_000_000, 4_000_000].map(length =>
        JSON.stringify({ definition: { ...DEFINITION, 'x-list': Array(length / 5).fill(1234) } }),
      )
      let n = 0
      await repeatedly(over, 20, 0, async () => {
        const { token } = owners[n++ % owners.length] as Owner
        const body = bodies[n % bodies.length] ?? ''
        const head = requestText('POST', '/admin/tool/custom/validate?complete=true', token, [], body.length)
        await cutOff(head + (n % 2 === 0 ? body : body.slice(0, -100)), 100)
      })
    },
  ],
  'updates of agents and of the tools that they have, in opposite orders': [
    [200],
    async (over, callers) => {
      const owners = await curators(6)
      const tools = await curated(6, 5_000)
      const same = async () => owners
      const attach = each(3, same, (_, one, n) =>
        callers.update(one, { tool_ids: n % 2 === 0 ? tools : [...tools].reverse() }),
      )
      const change = each(3, same, (_, one, n) => {
        const tool = tools[owners.indexOf(one)] ?? 0
        return callers.send('PUT', `/admin/tool/custom/${tool}`, one.token, JSON.stringify({ description: `${n}` }))
      })
      await Promise.all([attach(over, callers), change(over, callers)])
    },
  ],
}
const ALL = Object.values(ATTACKS)
ATTACKS['all of these together'] = [
  [200, 404, 422],
  async (over, callers) => {
    await Promise.all(ALL.map(([, attack]) => attack(over, callers)))
  },
]

for (const [name, [statuses, attack]] of Object.entries(ATTACKS)) {
  t.test(`${name}: quiet callers are served${FULL ? ', and take no longer' : ''}`, async t => {
    answers.clear()
    // What a flood costs in time shows on a machine that does nothing else.
    if (FULL) await requireFairness(t, world, service, attack)
    else await requireServed(t, attack, statuses)
    const [expected, others] = [new Set<number>(), new Map<number, string>()]
    for (const [status, body] of answers) {
      if (statuses.includes(status)) expected.add(status)
      else if (status !== 429) others.set(status, body) // who has used their minute
    }
    t.strictSame([[...expected].sort(), [...others]], [statuses, []])
  })
}

/** Serves quiet callers beside an attack, which goes on until each of these statuses was among its answers. */
async function requireServed(t: Test, attack: Attack, statuses: number[]): Promise<void> {
  const quiet = new QuietCallers(world, service, { owners: world.victims })
  const hostile = new Callers(service.port)
  const serve = async () => {
    const slot = await quiet.serve(SERVED_MS)
    await eventually(() => statuses.every(status => answers.has(status)))
    return slot
  }
  requireAllServed(t, [await besideAttack(attack, hostile, serve)])
  const peak = peakResidentBytes(service.pid)
  t.ok(peak < RESIDENT_BYTES_MAX, `${Math.round(peak / 2 ** 20)} MiB resident at most`)
  await quiet.close()
  hostile.close()
}
