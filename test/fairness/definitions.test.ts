import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { FULL, fairService, repeatedly, requireFairness } from './beside.js'
import { fairnessWorld } from './world.js'

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

const accepted = {
  ...HEAD,
  paths: { '/x': { get: { operationId: 'x', summary: 'X' } } },
  'x-lists': Array.from({ length: 320_000 }, () => ({})),
}
const manyKeys = { ...accepted, 'x-lists': Object.fromEntries(Array.from({ length: 300_000 }, (_, i) => [`k${i}`, 0])) }

/** Some 64 kB of small operations: not large, but many of them at once are dear. */
function smallOperations(): object {
  const responses = { 200: { description: 'ok' } }
  const operations = Array.from({ length: 640 }, (_, i) => [
    `/p${i}`,
    { get: { operationId: `o${i}`, summary: 's', responses } },
  ])
  return { ...HEAD, paths: Object.fromEntries(operations) }
}

t.test('definitions that are dear to check', async t => {
  const world = await fairnessWorld(t)
  const service = await fairService(t, world)
  const { attacker, client } = world
  await client.query(
    `update user_account set permissions = '{basic,manage:actions}' where email = 'alice+attacker@example.com'`,
  )
  const [tool = 0] = world.mediumTools
  const attacks: [string, number, object, string, string][] = [
    ['row 7: an $id of two million characters and 30,000 references', 422, longBase(), 'POST', 'validate'],
    ['row 8: sixty thousand paths of one path item', 422, sharedItems(), 'POST', 'validate'],
    ['a million values, repaired', 200, accepted, 'POST', 'validate?complete=true'],
    ['a million values, compared', 200, accepted, 'POST', `validate?report=full&tool_id=${tool}`],
    ['an object of 300,000 keys, stored', 200, manyKeys, 'PUT', `${tool}`],
  ]
  for (const [name, status, definition, method, path] of FULL ? attacks : attacks.slice(-1)) {
    await requireFair(name, status, definition, method, path, { atOnce: 2, pauseMs: 900 })
  }
  const small = ['ten at once of 64 kB, validated', 200, smallOperations(), 'POST', 'validate'] as const
  await requireFair(...small, { atOnce: 10, pauseMs: 0 })

  async function requireFair(
    name: string,
    status: number,
    definition: object,
    method: string,
    path: string,
    { atOnce, pauseMs }: { atOnce: number; pauseMs: number },
  ): Promise<void> {
    const body = Buffer.from(JSON.stringify({ definition }))
    await t.test(name, async t => {
      const answers = new Set<string>()
      await requireFairness(t, world, service, (over, callers) =>
        repeatedly(over, atOnce, pauseMs, async () => {
          const answer = await callers.send(method, `/admin/tool/custom/${path}`, attacker.token, body)
          if (answer.status === 429) await sleep(300)
          else answers.add(answer.status === status ? `${status}` : answer.body)
        }),
      )
      t.strictSame([...answers], [`${status}`])
    })
  }
})
