import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { startAgentctl } from '../cli/agentctl.js'
import { FULL, fairService, peakResidentBytes, RESIDENT_BYTES_MAX, repeatedly, requireFairness } from './beside.js'
import { Callers, percentile } from './callers.js'
import { fairnessWorld, owner } from './world.js'

const HEAD = { openapi: '3.1.0', info: { title: 'Hostile' }, servers: [{ url: 'https://h.example.com' }] }

/** A base address of two million characters that 30,000 references would be resolved against. */
function longBase(): object {
  const allOf = Array.from({ length: 30_000 }, (_, i) => ({ $ref: `r${i}.json` }))
  const schema = { $id: `https://h.example.com/${'a'.repeat(2_000_000)}`, allOf }
  const requestBody = { content: { 'application/json': { schema } } }
  return { ...HEAD, paths: { '/x': { post: { operationId: 'x', summary: 'X', requestBody } } } }
}

/** Sixty thousand paths of one path item, behind a chain of 63 with null methods. */
function sharedItems(): object {
  const methods = { get: null, post: null, put: null, patch: null, delete: null }
  const items = Array.from({ length: 63 }, (_, i) => [
    `C${i}`,
    i === 62 ? {} : { ...methods, $ref: `#/components/pathItems/C${i + 1}` },
  ])
  const paths = Array.from({ length: 60_000 }, (_, i) => [`/p${i}`, { $ref: '#/components/pathItems/C0' }])
  return { ...HEAD, paths: Object.fromEntries(paths), components: { pathItems: Object.fromEntries(items) } }
}

/** A definition of 1.2 MB, of which each of the functions would hold a copy of one large schema: 5 GB in all. */
function sharedSchema(): object {
  const requestBody = { content: { 'application/json': { schema: { $ref: '#/components/schemas/Large' } } } }
  const paths = Array.from({ length: 4_900 }, (_, i) => [
    `/p${i}`,
    { post: { operationId: `o${i}`, summary: 'S', requestBody } },
  ])
  const properties = Array.from({ length: 20_000 }, (_, i) => [`property ${i}`, { type: 'string' }])
  const components = { schemas: { Large: { type: 'object', properties: Object.fromEntries(properties) } } }
  return { ...HEAD, paths: Object.fromEntries(paths), components }
}

const accepted = {
  ...HEAD,
  paths: { '/x': { get: { operationId: 'x', summary: 'X' } } },
  'x-lists': Array.from({ length: 320_000 }, () => ({})),
}
const manyKeys = { ...accepted, 'x-lists': Object.fromEntries(Array.from({ length: 300_000 }, (_, i) => [`k${i}`, 0])) }

/** A definition of 1.1 MB that takes half a second to repair and to report on. */
function manyParameters(): object {
  const parameters = Array.from({ length: 8 }, (_, i) => ({ name: `a${i}`, in: 'query', schema: { type: 'string' } }))
  const paths = Array.from({ length: 2_000 }, (_, i) => [`/p${i}`, { get: { summary: 's', parameters } }])
  return { ...HEAD, paths: Object.fromEntries(paths) }
}

/** Small operations: 640 of them are some 64 kB and not large, but many such bodies at once are dear. */
function smallOperations(count = 640): object {
  const responses = { 200: { description: 'ok' } }
  const operations = Array.from({ length: count }, (_, i) => [
    `/p${i}`,
    { get: { operationId: `o${i}`, summary: 's', responses } },
  ])
  return { ...HEAD, paths: Object.fromEntries(operations) }
}

/** An ordinary definition that is nearly as large as one may be. */
function longDescriptions(): object {
  const responses = { 200: { description: 'ok' } }
  const paths = Array.from({ length: 1_000 }, (_, i) => [
    `/p${i}`,
    { get: { operationId: `o${i}`, summary: 's', description: 'd'.repeat(4_700), responses } },
  ])
  return { ...HEAD, paths: Object.fromEntries(paths) }
}

/** A definition of 7 kB that gives 500 functions of 40 parameters each: to repair it and to report on it takes a quarter of a second. */
function smallAndDear(): object {
  const responses = { 200: { description: 'ok' } }
  const methods = ['get', 'put', 'post', 'delete', 'patch'].map(method => [method, { summary: 's', responses }])
  const parameters = Array.from({ length: 40 }, (_, i) => ({ name: `p${i}`, in: 'query', schema: { type: 'string' } }))
  const paths = Array.from({ length: 100 }, (_, i) => [`/p${i}`, { $ref: '#/components/pathItems/a' }])
  const components = { pathItems: { a: { parameters, ...Object.fromEntries(methods) } } }
  return { ...HEAD, paths: Object.fromEntries(paths), components }
}

/** A name, the status that it is answered with, the definition, and where it is sent. */
type Hostile = readonly [name: string, status: number, definition: object, method: string, path: string]

t.test('definitions that are dear to check', async t => {
  const world = await fairnessWorld(t)
  const service = await fairService(t, world)
  const { client } = world
  const [tool = 0, shared] = world.mediumTools
  const attacks: Hostile[] = [
    ['row 7: an $id of two million characters and 30,000 references', 422, longBase(), 'POST', 'validate'],
    ['row 8: sixty thousand paths of one path item', 422, sharedItems(), 'POST', 'validate'],
    ['a million values, repaired', 200, accepted, 'POST', 'validate?complete=true'],
    ['a million values, compared', 200, accepted, 'POST', `validate?report=full&tool_id=${tool}`],
    ['an object of 300,000 keys, stored', 200, manyKeys, 'PUT', `${tool}`],
  ]
  const slowly = { atOnce: 2, pauseMs: 900 }
  // One after the other in full; else all in turn, in the time of one.
  if (FULL) for (const attack of attacks) await requireFair(attack[0], [attack], slowly)
  else await requireFair('each in turn', attacks, slowly)
  const ordinary: Hostile = ['one after the other of 4.9 MB, validated', 200, longDescriptions(), 'POST', 'validate']
  await requireFair(ordinary[0], [ordinary], { atOnce: 1, pauseMs: 0 })
  const small: Hostile = ['ten at once of 64 kB, validated', 200, smallOperations(), 'POST', 'validate']
  await requireFair(small[0], [small], { atOnce: 10, pauseMs: 0 })
  const dear: Hostile = ['7 kB, repaired', 200, smallAndDear(), 'POST', 'validate?complete=true&report=full']
  await requireFair(dear[0], [dear], { atOnce: 4, pauseMs: 100 })

  t.test('a definition of 15 kB is stored beside repairs that take half a second each', async t => {
    const storing = await owner(client, 'alice+storing@example.com', [])
    const repairing = await owner(client, 'alice+repairing@example.com', [])
    await client.query(
      `update user_account set permissions = '{basic,manage:actions}'
      where email in ('alice+storing@example.com', 'alice+repairing@example.com')`,
    )
    const callers = new Callers(service.port)
    t.teardown(() => callers.close())
    const store = async (over: AbortSignal) => {
      const latenciesMs: number[] = []
      while (!over.aborted) {
        const body = JSON.stringify({ definition: { ...smallOperations(150), 'x-note': `${Math.random()}` } })
        const path = `/admin/tool/custom/${world.popularTool}`
        const { status, durationMs, body: answer } = await callers.send('PUT', path, storing.token, body)
        t.equal(status, 200, answer.slice(0, 200))
        latenciesMs.push(durationMs)
        await sleep(100)
      }
      return percentile(latenciesMs, 0.5)
    }
    await store(AbortSignal.timeout(1)) // the thread starts
    const body = JSON.stringify({ definition: manyParameters() })
    const path = '/admin/tool/custom/validate?complete=true&report=full'
    const comparisons: string[] = []
    let isFair = false
    for (let attempt = 0; attempt < 3 && !isFair; attempt++) {
      const control = await store(AbortSignal.timeout(1_000))
      const over = AbortSignal.timeout(3_000)
      const tookMs: number[] = []
      const attack = repeatedly(over, 2, 0, async () => {
        const { status, durationMs } = await callers.send('POST', path, repairing.token, body)
        t.equal(status, 200, 'repaired')
        tookMs.push(durationMs)
      })
      await sleep(300)
      const beside = await store(over)
      await attack
      const repairMs = Math.min(...tookMs) // with two of them each waits for the other, but for the first
      comparisons.push([beside, control, repairMs].map(Math.round).join(', '))
      isFair = beside <= 2 * control + 200 && beside < repairMs / 2
    }
    t.ok(isFair, `p50, control and one repair in ms: ${comparisons.join('; ')}`)
  })

  t.test('a definition of 14 kB is checked beside eight curators who have small and dear ones repaired', async t => {
    const emails = Array.from({ length: 9 }, (_, n) => `alice+curator${n}@example.com`)
    const owners = await Promise.all(emails.map(email => owner(client, email, [])))
    await client.query(`update user_account set permissions = '{basic,manage:actions}' where email = any($1)`, [emails])
    const [checking, ...repairing] = owners.map(({ token }) => token)
    const callers = new Callers(service.port)
    t.teardown(() => callers.close())
    const repair = '/admin/tool/custom/validate?complete=true&report=full'
    const [dear, cheap] = [smallAndDear(), smallOperations(150)].map(definition => JSON.stringify({ definition }))
    const check = async () => {
      const answer = await callers.send('POST', '/admin/tool/custom/validate', checking ?? '', cheap ?? '')
      t.equal(answer.status, 200)
      return answer.durationMs
    }
    for (let n = 0; n < 10; n++) await check() // it has used more than those who come
    const comparisons: string[] = []
    let isFair = false
    for (let attempt = 0; attempt < 3 && !isFair; attempt++) {
      let left = repairing.length
      const start = performance.now()
      const repairs = repairing.map(async token => {
        await callers.send('POST', repair, token, dear ?? '')
        left -= 1
      })
      const checks: number[] = []
      while (left > 0) {
        checks.push(await check())
        await sleep(50)
      }
      await Promise.all(repairs)
      const allMs = performance.now() - start
      const longest = Math.max(...checks)
      comparisons.push([longest, allMs].map(Math.round).join(', '))
      isFair = longest < allMs / 3
    }
    t.ok(isFair, `the longest check, and all repairs, in ms: ${comparisons.join('; ')}`)
  })

  async function requireFair(
    name: string,
    attacks: readonly Hostile[],
    { atOnce, pauseMs }: { atOnce: number; pauseMs: number },
  ): Promise<void> {
    const bodies = attacks.map(([, , definition]) => Buffer.from(JSON.stringify({ definition })))
    // A token of its own: what came before has used its minute.
    const email = `alice+${randomUUID()}@example.com`
    const { token } = await owner(client, email, [])
    await client.query(`update user_account set permissions = '{basic,manage:actions}' where email = $1`, [email])
    await t.test(name, async t => {
      const wrong: string[] = []
      const answered = new Set<string>()
      let n = 0
      await requireFairness(t, world, service, (over, callers) =>
        repeatedly(over, atOnce, pauseMs, async () => {
          const turn = n++ % attacks.length
          const [name, status, , method, path] = attacks[turn] as Hostile
          const answer = await callers.send(method, `/admin/tool/custom/${path}`, token, bodies[turn] ?? '')
          // Whoever sends as much as they may, on a machine with other work, also waits in vain.
          if (answer.status === 429 || (!FULL && answer.status === 503)) return sleep(300)
          answered.add(name)
          if (answer.status !== status) wrong.push(`${name}: ${answer.status} ${answer.body.slice(0, 500)}`)
        }),
      )
      t.strictSame(wrong, [])
      t.ok(answered.size > 0, [...answered].join('; '))
    })
  }

  t.test('row 10: agentctl tool show --as-functions on an accepted definition that would make 5 GB', async t => {
    const callers = new Callers(service.port)
    t.teardown(() => callers.close())
    const storing = await owner(client, 'alice+sharing@example.com', [])
    await client.query(
      `update user_account set permissions = '{basic,manage:actions}' where email = 'alice+sharing@example.com'`,
    )
    const definition = sharedSchema()
    t.ok(JSON.stringify(definition).length > 1_200_000)
    const { status } = await callers.send(
      'PUT',
      `/admin/tool/custom/${shared}`,
      storing.token,
      JSON.stringify({ definition }),
    )
    t.equal(status, 200, 'accepted')
    for (const options of [['--as-functions'], ['--json']].slice(FULL ? 0 : 1)) {
      const name = options.join(' ')
      const { child, answer } = startAgentctl({ url: world.url, args: ['tool', 'show', String(shared), ...options] })
      let peak = 0
      while (child.exitCode === null && child.signalCode === null) {
        peak = Math.max(peak, peakOf(child.pid ?? 0))
        await sleep(10)
      }
      const { status, stdout, stderr } = await answer
      if (options.includes('--as-functions')) {
        t.strictSame({ status, stdout }, { status: 1, stdout: '' }, name)
        t.match(stderr, /functions/, name)
      } else t.equal(status, 0, name)
      t.ok(peak > 0 && peak < RESIDENT_BYTES_MAX, `${name}: ${Math.round(peak / 2 ** 20)} MiB resident at most`)
    }
  })
})

/** The most that a process had resident; 0 where it has ended meanwhile. */
function peakOf(pid: number): number {
  try {
    return peakResidentBytes(pid) || 0
  } catch {
    return 0
  }
}
