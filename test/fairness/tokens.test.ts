import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { FULL, fairService, repeatedly, requireFairness } from './beside.js'
import { Callers, percentile, type QuietUpdates } from './callers.js'
import { fairnessWorld, type Owner, owner } from './world.js'

const TOKENS = 10
/** A busy machine lets more of them pass, for what the database does takes longer then. */
const ATTEMPTS = 3

/** How many reads a token sends at once. */
const READS = 400

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
      const medians: number[] = []
      while (medians.length < ATTEMPTS && !medians.some(median => median <= passingMax)) {
        const callers = new Callers(service.port)
        const over = new AbortController()
        const begun = answers
        const attacking = attack(over.signal, callers)
        while (answers < begun + TOKENS * atOnce) await sleep(10)
        const passing: number[] = []
        for (let n = 0; n < 10; n++) {
          const before = answers
          const text = `${n}`.padEnd(updates.promptLength ?? 0, 'x')
          const fields = updates.promptLength === undefined ? { description: text } : { system_prompt: text }
          const { status } = await callers.update(quiet, fields)
          t.equal(status, 200)
          passing.push(answers - before)
          await sleep(100)
        }
        over.abort()
        await attacking
        callers.close()
        medians.push(percentile(passing, 0.5))
      }
      t.ok(Math.min(...medians) <= passingMax, `${medians.join(' ')} answers`)
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

/** Somebody with a minute of their own, whose agent answers 95 kB. */
function reader(): Promise<Owner> {
  return owner(world.client, `alice+${randomUUID()}@example.com`, world.smallTools)
}

/** Sends many reads at once; `onAnswer` is told of each answer, with its status. */
async function burst(callers: Callers, { token, agentId }: Owner, onAnswer: (status: number) => void): Promise<void> {
  const read = async () => onAnswer((await callers.send('GET', `/persona/${agentId}`, token, '')).status)
  await Promise.all(Array.from({ length: READS }, read))
}

t.test("a burst of one token's reads: few of them are answered before another token's update", async t => {
  const [quiet = world.attacker] = world.victims
  const callers = new Callers(service.port)
  const others = new Callers(service.port)
  /** How many of the answers of a burst pass an update: that of another token, or a later one of the same. */
  const passing = async (whose: 'another' | 'own') => {
    const reading = await reader()
    const statuses = new Set<number>()
    let answers = 0
    const reads = burst(callers, reading, status => {
      statuses.add(status)
      answers++
    })
    while (answers < 20) await sleep(1)
    const before = answers
    const { status } = await others.update(whose === 'own' ? reading : quiet, { description: randomUUID() })
    const passed = answers - before
    t.equal(status, 200)
    await reads
    t.strictSame([...statuses], [200])
    return passed
  }
  const comparisons: { own: number; another: number }[] = []
  const isFair = ({ own, another }: { own: number; another: number }) => another <= own / 3
  await others.update(quiet, { description: 'known' })
  while (comparisons.length < ATTEMPTS && !comparisons.some(isFair)) {
    comparisons.push({ own: await passing('own'), another: await passing('another') })
  }
  t.ok(comparisons.some(isFair), JSON.stringify(comparisons))
  callers.close()
  others.close()
})

if (FULL) {
  t.test('a burst of reads in each second, each of another token: quiet callers take no longer', t =>
    requireFairness(t, world, service, async (over, callers) => {
      while (!over.aborted) {
        const reading = await reader()
        await Promise.all([burst(callers, reading, () => undefined), sleep(1_000)])
      }
    }),
  )
}
