import t from 'tap'
import { RateLimited, Unavailable } from '../../src/errors.js'
import { bodyTurns } from '../../src/tool/worker/pool.js'

t.test('concurrent tasks are limited, in total and for each key, and run in the order of arrival', async t => {
  const run = bodyTurns(2, 60_000)
  const begun: string[] = []
  const ends = new Map<string, () => void>()
  const start = (name: string) =>
    run(name.slice(0, 1), async () => {
      begun.push(name)
      await new Promise<void>(resolve => ends.set(name, resolve))
      return name
    })
  const all = ['a1', 'a2', 'b1', 'c1', 'b2'].map(start)
  const next = async (name: string) => {
    await new Promise(setImmediate)
    ends.get(name)?.()
    await new Promise(setImmediate)
  }
  await next('a1')
  t.strictSame(begun, ['a1', 'b1', 'c1'], 'a key waits for its own place before it waits for one of all')
  for (const name of ['b1', 'c1', 'a2', 'b2']) await next(name)
  t.strictSame(begun, ['a1', 'b1', 'c1', 'a2', 'b2'])
  t.strictSame(await Promise.all(all), ['a1', 'a2', 'b1', 'c1', 'b2'])
})

t.test('429 for work that waits too long for its own key, 503 for work that waits for others', async t => {
  const run = bodyTurns(2, 10)
  let end = () => {}
  const held = new Promise<void>(resolve => {
    end = resolve
  })
  const nothing = async () => 1
  const first = run('a', () => held)
  t.ok((await run('a', nothing).catch(error => error)) instanceof RateLimited)
  const second = run('b', () => held)
  t.ok((await run('c', nothing).catch(error => error)) instanceof Unavailable)
  end()
  await Promise.all([first, second])
  t.equal(await run('a', nothing), 1)
  const failing = run('a', () => Promise.reject(new Error('of the work')))
  await t.rejects(failing, { message: 'of the work' })
  t.equal(await run('a', nothing), 1, 'a failure frees its turn')
})
