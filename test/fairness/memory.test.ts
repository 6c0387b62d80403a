import { readFileSync } from 'node:fs'
import t from 'tap'
import { FULL, fairService, peakResidentBytes, RESIDENT_BYTES_MAX } from './beside.js'
import { Callers } from './callers.js'
import { fairnessWorld } from './world.js'

const BODY_BYTES_MAX = 5 * 2 ** 20 - 1_000
/** Objects, lists, texts and commas; and values, which are fewer. */
const NODES_MAX = 980_000

/** A list of items that takes so many bytes, or holds as much as a definition may. */
function listOf(itemOf: (index: number) => string, bytesMax: number): string {
  const items: string[] = []
  const itemNodes = 1 + (itemOf(0).match(/[[{,]|"[^"]*"/g)?.length ?? 0)
  for (let bytes = 0, item = itemOf(0); items.length < NODES_MAX / itemNodes; item = itemOf(items.length)) {
    bytes += Buffer.byteLength(item) + 1
    if (bytes > bytesMax) break
    items.push(item)
  }
  return items.join(',')
}

/** What takes most memory for its length, by what it is; each in a second shape that differs in every value. */
function extensions(bytesMax: number): Record<string, (variant: number) => string> {
  const list = (itemOf: (index: number) => string) => `[${listOf(itemOf, bytesMax)}]`
  return {
    'numbers with a zero behind the point': variant => list(() => `[${variant}.0]`),
    ...(FULL && {
      'numbers, each another': variant => list(i => `[${i}.${variant}0]`),
      'integers that no double holds': variant => list(i => `[${variant}2345678901234567${i % 10}]`),
      'objects with one number': variant => list(() => `{"a":${variant}.0}`),
      'objects, each with another key': variant => list(i => `{"k${i}":${variant}}`),
      'one object of many keys': variant => `{${listOf(i => `"k${i}":${variant}.0`, bytesMax)}}`,
      'empty objects': variant => list(() => (variant === 1 ? '{}' : '[]')),
      'short texts': variant => list(i => `"${variant}${i.toString(36)}"`),
      'one text of wide characters': variant => `"${'\u0416'.repeat(Math.floor(bytesMax / 2))}${variant}"`,
      'a hundred lists deep': variant => list(() => `${'['.repeat(100)}${variant}.0${']'.repeat(100)}`),
    }),
  }
}

function definitionWith(extension: string): string {
  return (
    '{"openapi":"3.1.0","info":{"title":"M","version":"1"},"servers":[{"url":"https://m.example.com"}],' +
    `"paths":{"/p":{"get":{"operationId":"o","summary":"s"}}},"x-a":${extension}}`
  )
}

t.test('what one caller has checked, stored and compared', async t => {
  const world = await fairnessWorld(t)
  await world.client.query(
    `update user_account set permissions = '{basic,manage:actions}' where email = 'alice+attacker@example.com'`,
  )
  const { attacker, popularTool } = world
  const tool = `/admin/tool/custom/${popularTool}`
  const limits = { RATE_LIMIT_BYTES_PER_MINUTE: '0' } // a minute is long
  const service = await fairService(t, world, limits)
  const callers = new Callers(service.port)
  t.teardown(() => callers.close())

  t.test('the process stays below 400 MiB, however the definitions follow each other', async t => {
    for (const [name, extension] of Object.entries(extensions(FULL ? BODY_BYTES_MAX : 1_500_000))) {
      const [one, other] = [1, 2].map(variant => `{"definition":${definitionWith(extension(variant))}}`)
      const steps = [
        ['PUT', tool, one],
        ['PUT', `${tool}?dry_run=true`, other],
        ['POST', `/admin/tool/custom/validate?tool_id=${popularTool}`, other],
        ['POST', '/admin/tool/custom/validate?complete=true&report=full', one],
      ] as const
      for (const [method, path, body = ''] of steps) {
        const { status, body: answer } = await callers.send(method, path, attacker.token, body)
        const isRefused = status === 422 && answer.includes('"definition_too_large"')
        // On a busy machine it may also take too long: what it held until then counts all the same.
        const isLate = !FULL && status === 503 && answer.includes('took more than')
        t.ok(status === 200 || isRefused || isLate, `${name}: ${method} ${path} ${status} ${answer.slice(0, 100)}`)
        const peak = peakResidentBytes(service.pid)
        t.ok(peak < RESIDENT_BYTES_MAX, `${name}: ${method} ${path}: ${Math.round(peak / 2 ** 20)} MiB at most`)
      }
    }
  })

  t.test('the origins of a large stored definition are not looked for on the thread that serves requests', async t => {
    const servers = Array.from({ length: 600 }, (_, i) => ({ url: `https://m${i}.example.com` }))
    const definition = {
      ...JSON.parse(definitionWith(`[${listOf(() => '{"a":[]}', 2_100_000)}]`)),
      servers,
    }
    const custom_headers = [{ key: 'x-a', value: 'v' }]
    const stored = await callers.send('PUT', tool, attacker.token, JSON.stringify({ definition, custom_headers }))
    t.equal(stored.status, 200, stored.body.slice(0, 100))
    const before = processorTicks(service.pid)
    for (let i = 0; i < 3; i++) {
      const given = JSON.stringify({ custom_headers: [{ key: 'x-a', value: `w${i}` }] })
      const { status, headers } = await callers.send('PUT', `${tool}?dry_run=true`, attacker.token, given)
      t.equal(status, 200)
      t.match(String(headers.warning), 'https://m0.example.com')
    }
    const { serving, others } = processorTicks(service.pid)
    const [servingTicks, otherTicks] = [serving - before.serving, others - before.others]
    t.ok(servingTicks < otherTicks, `${servingTicks} ticks on the thread that serves requests, ${otherTicks} on others`)
  })
})

/** The processor time of a process so far, in ticks (proc(5), utime and stime): of its first thread, and of all others. */
function processorTicks(pid: number): { serving: number; others: number } {
  const ticksIn = (path: string) => {
    const text = readFileSync(path, 'utf8')
    const [utime = 0, stime = 0] = text
      .slice(text.lastIndexOf(')') + 2)
      .split(' ')
      .slice(11, 13)
      .map(Number)
    return utime + stime
  }
  const serving = ticksIn(`/proc/${pid}/task/${pid}/stat`)
  return { serving, others: ticksIn(`/proc/${pid}/stat`) - serving }
}
