import { once } from 'node:events'
import { readdirSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import t from 'tap'
import type { Caller } from '../../src/auth/caller.js'
import { readConfig } from '../../src/config.js'
import { ThreadTurns } from '../../src/db/connection/thread-turns.js'
import { ClientGone } from '../../src/errors.js'
import { UnparsedBody } from '../../src/http/body-parser.js'
import { definitionLimitsOf } from '../../src/tool/definition/index.js'
import { BodyTasks } from '../../src/tool/tasks/body-tasks.js'
import { worldApp } from '../app.js'
import { DEFINITION } from '../matrix-organisation.js'
import { nicenesses } from '../nicenesses.js'

/** Beyond what is parsed on the thread that serves requests. */
const LARGE_BYTES = 100_000
const IS_LINUX = process.platform === 'linux'
const PUT = '/admin/tool/custom/10'
const VALIDATE = '/admin/tool/custom/validate'
const SWAGGER = { swagger: '2.0', info: { title: 'Old', version: '1' }, host: 'h.example.com', paths: DEFINITION.paths }

t.test('a large body is answered as the same body without its spaces is', async t => {
  const { call, token } = await worldApp(t)
  const admin = await token('admin@example.com')
  const both = async (method: string, url: string, text: string, headers: Record<string, string> = {}) => {
    const small = await call(method, url, { token: admin, body: text, headers })
    const large = await call(method, url, { token: admin, body: ' '.repeat(LARGE_BYTES) + text, headers })
    return [small, large].map(({ statusCode, headers, json }) => {
      const { etag, warning, 'preference-applied': applied } = headers
      return { status: statusCode, headers: { etag, warning, applied }, body: { ...json(), request_id: '' } }
    })
  }
  const cases: [number, string, string, string, Record<string, string>?][] = [
    [200, 'PUT', `${PUT}?dry_run=true`, JSON.stringify({ definition: DEFINITION, name: 'renamed', x: 1 })],
    [200, 'PUT', PUT, JSON.stringify({ definition: { ...DEFINITION, 'x-note': '\u00e9 2' } })],
    [200, 'POST', VALIDATE, JSON.stringify({ definition: DEFINITION, unknown: [1] })],
    [200, 'POST', `${VALIDATE}?report=full`, JSON.stringify({ definition: DEFINITION })],
    [200, 'POST', `${VALIDATE}?tool_id=10`, JSON.stringify({ definition: DEFINITION })],
    [200, 'POST', `${VALIDATE}?complete=true`, JSON.stringify({ definition: SWAGGER })],
    [
      422,
      'PUT',
      PUT,
      JSON.stringify({ definition: { ...DEFINITION, servers: [] }, custom_headers: [{ key: 'Host' }] }),
    ],
    [422, 'PUT', PUT, JSON.stringify({ name: 5, definition: [] })],
    [422, 'PUT', PUT, JSON.stringify({ unknown: 5 }), { prefer: 'handling=strict' }],
    [422, 'PUT', PUT, '{"definition":{"__proto__":{}}}'],
    [422, 'POST', VALIDATE, JSON.stringify({ definition: { ...DEFINITION, paths: {} } })],
    [422, 'POST', VALIDATE, 'null'],
    [404, 'PUT', '/admin/tool/custom/424242', JSON.stringify({ definition: DEFINITION })],
  ]
  for (const [status, method, url, text, headers] of cases) {
    const [small, large] = await both(method, url, text, headers)
    t.equal(small?.status, status, `${method} ${url} ${text.slice(0, 40)}`)
    t.strictSame(large, small)
  }
  // The place of a syntax error counts the spaces.
  const [small, large] = await both('PUT', PUT, '{"name":')
  t.strictSame(small?.body.detail[0].loc, ['body', 8])
  t.strictSame(large?.body.detail[0].loc, ['body', LARGE_BYTES + 8])
})

t.test('422: faults beside a large body are reported without those of the body', async t => {
  const { call, token } = await worldApp(t)
  const body = `${' '.repeat(LARGE_BYTES)}{"name":5}`
  const answer = await call('PUT', `${PUT}?dry_run=maybe`, { token: await token('admin@example.com'), body })
  t.strictSame(
    answer.json().detail.map(({ loc }: { loc: unknown }) => loc),
    [['query', 'dry_run']],
  )
})

const limits = definitionLimitsOf(readConfig({}).limits)
const input = { strict: false, limits, query: {}, use: null }
const callerOf = (id: number) => ({ token: { id } }) as unknown as Caller // what tells callers apart

function request(id: number, text: string, socket = { destroyed: false }) {
  const beginWait = () => () => undefined
  return { body: new UnparsedBody(Buffer.from(text)), caller: callerOf(id), raw: { socket }, beginWait }
}

function failureOf(work: Promise<unknown>): Promise<unknown> {
  return work.then(
    () => undefined,
    error => error,
  )
}

/** A definition that it takes some hundred milliseconds to repair and to report on; with more operations, more. */
function dearDefinition(operations = 300): object {
  const parameters = Array.from({ length: 8 }, (_, i) => ({ name: `a${i}`, in: 'query', schema: { type: 'string' } }))
  const paths = Array.from({ length: operations }, (_, i) => [`/p${i}`, { get: { summary: 's', parameters } }])
  return { ...DEFINITION, paths: Object.fromEntries(paths) }
}

/** Who is answered when: each sends one body. */
async function orderOf(tasks: BodyTasks, ids: readonly number[], textOf: (id: number) => string): Promise<number[]> {
  const order: number[] = []
  const query = { complete: true, report: 'full', target: 'openai' } as const
  const send = async (id: number) => {
    await tasks.run('validate_tool', request(id, textOf(id)), { ...input, query })
    order.push(id)
  }
  await Promise.all(ids.map(send))
  return order
}

t.test('callers have the same time: who sent one body does not wait for all those of another', async t => {
  const tasks = new BodyTasks({ bodyLimitBytes: 5_000_000, jsonDepthMax: 64, turns: new ThreadTurns() })
  t.teardown(() => tasks.close())
  const dear = JSON.stringify({ definition: dearDefinition() })
  const first = (await orderOf(tasks, [1, 1, 1, 1, 2, 3], () => dear)).slice(0, 3)
  t.strictSame(new Set(first), new Set([1, 2, 3]), `${first}`)
  const small = JSON.stringify({ definition: { ...DEFINITION, 'x-list': Array.from({ length: 40_000 }, () => 0) } })
  const order = await orderOf(tasks, [11, 12, 13], id => (id === 13 ? small : dear))
  t.strictSame(order, [11, 13, 12], 'who asks for less goes first')
})

t.test('bodies of 30 and of 300 kB do not wait for the end of a larger one', async t => {
  const tasks = new BodyTasks({ bodyLimitBytes: 5_000_000, jsonDepthMax: 64, turns: new ThreadTurns() })
  t.teardown(() => tasks.close())
  const dear = JSON.stringify({ definition: dearDefinition(1_500) })
  const [light, middling] = [30_000, 300_000].map(length =>
    JSON.stringify({ definition: { ...DEFINITION, 'x-text': 'x'.repeat(length) } }),
  )
  const texts = [dear, dear, light, middling]
  const order = await orderOf(tasks, [0, 1, 2, 3], id => texts[id] ?? '')
  t.strictSame(order.slice(0, 2).sort(), [2, 3])
})

t.test(
  'a cheap definition does not wait for the end of dear ones of its size, nor behind those of many newcomers',
  async t => {
    const tasks = new BodyTasks({ bodyLimitBytes: 5_000_000, jsonDepthMax: 64, turns: new ThreadTurns() })
    t.teardown(() => tasks.close())
    const methods = ['get', 'put', 'post', 'delete'].map(method => [method, { summary: 's' }])
    const parameters = Array.from({ length: 40 }, (_, i) => ({
      name: `p${i}`,
      in: 'query',
      schema: { type: 'string' },
    }))
    // So many that they take several times as long as a trial of their size lasts.
    const paths = Array.from({ length: 600 }, (_, i) => [`/p${i}`, { $ref: '#/components/pathItems/a' }])
    const components = { pathItems: { a: { parameters, ...Object.fromEntries(methods) } } }
    for (const padding of [0, 60_000]) {
      const note = { 'x-text': 'x'.repeat(padding) }
      const dear = JSON.stringify({
        definition: { ...DEFINITION, ...note, paths: Object.fromEntries(paths), components },
      })
      const cheap = JSON.stringify({
        definition: { ...DEFINITION, ...note, 'x-list': Array.from({ length: 6_000 }, () => 0) },
      })
      const textOf = (id: number) => (id === 7 ? cheap : dear)
      for (let n = 0; n < 5; n++) await orderOf(tasks, [7], textOf) // it has used more than those who come
      const order = await orderOf(
        tasks,
        [1, 2, 3, 4, 7].map(id => (id === 7 ? 7 : id + padding)),
        textOf,
      )
      t.equal(order[0], 7, `${order}`)
    }
  },
)

t.test('a body of 30 kB does not wait for the end of a comparison of numbers', async t => {
  const tasks = new BodyTasks({ bodyLimitBytes: 5_000_000, jsonDepthMax: 64, turns: new ThreadTurns() })
  t.teardown(() => tasks.close())
  const numbersOf = (number: string) => `[${Array(60_000).fill(`[${number}]`).join(',')}]`
  const light = JSON.stringify({ definition: { ...DEFINITION, 'x-text': 'x'.repeat(30_000) } })
  await tasks.run('validate_tool', request(2, light), input) // the thread has started
  const [stored, sent] = [numbersOf('1.0'), numbersOf('1.00')]
  const text = { length: stored.length, text: async () => stored }
  const order: string[] = []
  const comparing = tasks.run('compare_numbers', { ...request(1, ''), body: {} }, { strict: false, sent }, text)
  const compared = comparing.then(result => {
    order.push('compared')
    return result
  })
  await sleep(0) // the comparison is under way
  await tasks.run('validate_tool', request(2, light), input)
  order.push('validated')
  t.match(await compared, { isStoredPlain: false, isSame: true, rounded: [] })
  t.strictSame(order, ['validated', 'compared'])
})

t.test('the thread of large bodies gives way to the one that serves requests', { skip: !IS_LINUX }, async t => {
  const tasks = new BodyTasks({ bodyLimitBytes: 5_000_000, jsonDepthMax: 64, turns: new ThreadTurns() })
  t.teardown(() => tasks.close())
  const before = nicenesses(process.pid)
  await tasks.run('validate_tool', request(1, JSON.stringify({ definition: DEFINITION })), input)
  const own = before.get(process.pid) ?? 0
  const added = [...nicenesses(process.pid)].filter(([thread]) => !before.has(thread)).map(([, niceness]) => niceness)
  t.ok(added.includes(Math.min(19, own + 5)), `${own}; ${added}`)
  t.equal(nicenesses(process.pid).get(process.pid), own)
})

t.test('what takes long of a small body is done in turns of its token, until it goes to the other thread', async t => {
  const places: number[] = []
  class CountedTurns extends ThreadTurns {
    override turn(place: number): Promise<void> {
      places.push(place)
      return super.turn(place)
    }
  }
  const tasks = new BodyTasks({ bodyLimitBytes: 5_000_000, jsonDepthMax: 64, turns: new CountedTurns() })
  t.teardown(() => tasks.close())
  const caller = { token: { id: 1, place: 3 } } as unknown as Caller // what tells callers apart
  const body = { definition: dearDefinition(40) }
  const query = { complete: true, report: 'full', target: 'openai' } as const
  // The first times its slices take so long that it goes to the other thread at once.
  for (let n = 0; n < 40 && places.length === 0; n++) {
    const { answer } = await tasks.run('validate_tool', { ...request(1, ''), caller, body }, { ...input, query })
    t.match(JSON.parse(Buffer.from(answer).toString()), { methods: [{}] })
  }
  t.strictSame(new Set(places), new Set([3]))
})

t.test('the thread of large bodies works where a filter of system calls forbids it to give way', async t => {
  // As seccomp has the call answer.
  const forbidden = `import os from 'node:os'
    import { syncBuiltinESMExports } from 'node:module'
    os.setPriority = () => { throw Object.assign(new Error('uv_os_setpriority returned EPERM'), { code: 'ERR_SYSTEM_ERROR' }) }
    syncBuiltinESMExports()`
  const thread = new Worker(new URL('../../src/tool/tasks/body-thread.js', import.meta.url), {
    workerData: { jsonDepthMax: 64, heapMibMax: 64 },
    execArgv: ['--import', `data:text/javascript,${encodeURIComponent(forbidden)}`],
  })
  t.teardown(() => thread.terminate())
  const answered = once(thread, 'message')
  const { strict, ...asked } = input
  const body = { text: JSON.stringify({ definition: DEFINITION }) }
  thread.postMessage({ job: 1, name: 'validate_tool', isLarge: false, body, strict, input: asked })
  const [answer] = await answered
  t.match(answer, { job: 1, result: { answer: /"methods"/ } })
})

t.test('what nobody waits for any more is not worked on', async t => {
  const tasks = new BodyTasks({ bodyLimitBytes: 5_000_000, jsonDepthMax: 64, turns: new ThreadTurns() })
  t.teardown(() => tasks.close())
  const text = ' '.repeat(LARGE_BYTES) + JSON.stringify({ definition: DEFINITION })
  const first = tasks.run('validate_tool', request(1, text), input)
  const gone = request(1, text, { destroyed: true })
  t.ok((await failureOf(tasks.run('validate_tool', gone, input))) instanceof ClientGone)
  t.equal(gone.body.bytes.length, text.length, 'its bytes never went to the other thread')
  await first
})

t.test('a thread without work ends, and the next large body gets another', { skip: !IS_LINUX }, async t => {
  const tasks = new BodyTasks({ bodyLimitBytes: 5_000_000, jsonDepthMax: 64, turns: new ThreadTurns(), idleMs: 50 })
  t.teardown(() => tasks.close())
  const validated = async () => {
    const { answer } = await tasks.run('validate_tool', request(1, JSON.stringify({ definition: DEFINITION })), input)
    const [thread] = [...nicenesses(process.pid)].find(([, niceness]) => niceness !== own) ?? []
    return { answer, thread }
  }
  const own = nicenesses(process.pid).get(process.pid)
  const first = await validated()
  t.ok(first.thread)
  while (readdirSync('/proc/self/task').includes(String(first.thread))) await sleep(10)
  const second = await validated()
  t.equal(second.answer, first.answer)
  t.ok(second.thread)
})

t.test(
  '422 for a definition that takes too much memory; the next one is served, and a light one beside it',
  async t => {
    const tasks = new BodyTasks({ bodyLimitBytes: 1, jsonDepthMax: 64, turns: new ThreadTurns() }) // 64 MiB for the thread
    t.teardown(() => tasks.close())
    const huge = `{"definition":{"x":[${'{"a":{}},'.repeat(700_000)}{}]}}`
    const light = JSON.stringify({ definition: DEFINITION })
    for (let i = 0; i < 2; i++) {
      const failing = failureOf(tasks.run('validate_tool', request(1, huge), input))
      const beside = tasks.run('validate_tool', request(2, light), input) // begun while the thread works on the other
      t.match(await failing, {
        faults: [
          {
            loc: ['body', 'definition'],
            type: 'definition_too_large',
            msg: 'Checking it takes more than 64 MiB of memory: give it fewer values',
          },
        ],
      })
      for (const { answer } of [await beside, await tasks.run('validate_tool', request(1, light), input)])
        t.match(JSON.parse(String(answer)), { methods: [{}] })
    }
  },
)

t.test('what checks leave behind does not count against the next one', async t => {
  const tasks = new BodyTasks({ bodyLimitBytes: 1, jsonDepthMax: 64, turns: new ThreadTurns() })
  t.teardown(() => tasks.close())
  const half = JSON.stringify({ definition: { ...DEFINITION, 'x-lists': Array.from({ length: 300_000 }, () => [1]) } })
  for (let i = 0; i < 6; i++) {
    const { answer } = await tasks.run('validate_tool', request(1, half), input)
    t.match(JSON.parse(String(answer)), { methods: [{}] })
  }
})

t.test('behind a large job is a rest while others are served', async t => {
  const turns = new ThreadTurns()
  const tasks = new BodyTasks({ bodyLimitBytes: 5_000_000, jsonDepthMax: 64, turns })
  t.teardown(() => tasks.close())
  const text = JSON.stringify({ definition: { ...DEFINITION, 'x-list': Array.from({ length: 300_000 }, () => 0) } })
  const twice = async () => {
    const start = performance.now()
    const send = () => tasks.run('validate_tool', request(1, text), input)
    await send()
    const firstMs = performance.now() - start
    await send()
    return { firstMs, secondMs: performance.now() - start - firstMs }
  }
  await twice() // the thread starts
  const alone = await twice()
  turns.take(7, () => undefined)
  const beside = await twice()
  const restMs = Math.min(500, 3 * beside.firstMs)
  t.ok(beside.secondMs > restMs, JSON.stringify({ alone, beside }))
})
