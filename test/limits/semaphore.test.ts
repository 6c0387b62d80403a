import t from 'tap'
import { Semaphore } from '../../src/limits/semaphore.js'

t.test('of all and of one key no more runs at once than may, in the order in which it came', async t => {
  const semaphore = new Semaphore({ max: 2, maxPerKey: 1, waitMs: 60_000, refusal: () => new Error('refused') })
  const begun: string[] = []
  const ends = new Map<string, () => void>()
  const start = (name: string) =>
    semaphore.run(name.slice(0, 1), async () => {
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
  t.strictSame(begun, ['a1', 'b1', 'a2'])
  for (const name of ['b1', 'a2', 'c1', 'b2']) await next(name)
  t.strictSame(begun, ['a1', 'b1', 'a2', 'c1', 'b2'])
  t.strictSame(await Promise.all(all), ['a1', 'a2', 'b1', 'c1', 'b2'])
})

t.test('work that waits too long is refused, and told whether its own key was in the way', async t => {
  const refusal = (isOwn: boolean) => new Error(isOwn ? 'own' : 'all')
  const semaphore = new Semaphore({ max: 2, maxPerKey: 1, waitMs: 10, refusal })
  let end = () => {}
  const held = new Promise<void>(resolve => {
    end = resolve
  })
  const first = semaphore.run('a', () => held)
  await t.rejects(
    semaphore.run('a', async () => 1),
    { message: 'own' },
  )
  const second = semaphore.run('b', () => held)
  await t.rejects(
    semaphore.run('c', async () => 1),
    { message: 'all' },
  )
  end()
  await Promise.all([first, second])
  t.equal(await semaphore.run('a', async () => 1), 1)
  await t.rejects(
    semaphore.run('a', async () => Promise.reject(new Error('of the work'))),
    { message: 'of the work' },
  )
  t.equal(await semaphore.run('a', async () => 2), 2, 'a failure frees its turn')
})
