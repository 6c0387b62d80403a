import t from 'tap'
import type { Waiter } from '../../src/db/connection/waiter.js'
import { RateLimited } from '../../src/errors.js'
import { FREE_BYTES, MemoryBudget } from '../../src/http/memory-budget.js'
import { MemoryQueue } from '../../src/http/memory-queue.js'

const noWaiter: Waiter = { beginWait: () => () => undefined }

/** A queue before a budget of so many units, of which one is what each token has free. */
function queueOf(total: number, perToken: number) {
  const budget = new MemoryBudget({ totalBytes: total * FREE_BYTES, perTokenBytes: perToken * FREE_BYTES })
  const begun: string[] = []
  const refused: [string, Error][] = []
  const queue = new MemoryQueue({
    take: (owner, bytes) => budget.take(owner, bytes),
    makeRoom: () => false,
    refusal: (exhausted, owner) => new Error(`${owner}: ${exhausted}`),
  })
  return {
    begun,
    refused,
    enter: (owner: string, units: number, name = owner) =>
      queue.enter(
        owner,
        units * FREE_BYTES,
        noWaiter,
        () => begun.push(name),
        error => refused.push([name, error]),
      ),
    give: (owner: string, units: number) => {
      budget.give(owner, units * FREE_BYTES)
      queue.end(owner, units * FREE_BYTES)
      queue.serve()
    },
  }
}

t.test(
  'what is free goes to whose owner will have least under way with it, of the same to who asked first',
  async t => {
    const { begun, enter, give } = queueOf(100, 40)
    enter('a', 40)
    enter('b', 31)
    t.strictSame(begun, ['a', 'b'], 'at once where there is some')
    const ends = [enter('c', 30), enter('d', 20, 'd1'), enter('e', 20), enter('b', 6, 'b2')]
    t.strictSame(begun, ['a', 'b'])
    enter('f', 1)
    t.strictSame(begun.splice(0), ['a', 'b', 'f'], 'who takes no more than what is free for each waits for nobody')
    give('a', 40)
    t.strictSame(
      begun.splice(0),
      ['d1', 'e'],
      'a second of b would come behind the first of c, for which there is too little',
    )
    give('d', 20)
    give('e', 20)
    t.strictSame(begun.splice(0), ['c'])
    give('c', 30)
    t.strictSame(begun, ['b2'])
    for (const end of ends) end()
  },
)

t.test('an owner whose own share is taken keeps nobody waiting; who leaves the queue is never begun', async t => {
  const { begun, enter, give } = queueOf(100, 40)
  enter('a', 40)
  enter('a', 1, 'a2')
  const end = enter('a', 2, 'a3')
  enter('b', 20)
  t.strictSame(begun, ['a', 'b'])
  end()
  give('a', 40)
  t.strictSame(begun, ['a', 'b', 'a2'])
})

t.test('of one owner a hundred wait; of all 256, and then the last of whom most wait is refused', async t => {
  const { begun, refused, enter, give } = queueOf(100, 40)
  enter('a', 40)
  const ends = Array.from({ length: 101 }, () => enter('a', 1))
  t.equal(refused.length, 1)
  const [[, error] = []] = refused.splice(0)
  t.ok(error instanceof RateLimited)
  t.match(error, { state: { limit: 'token-requests', quota: 100, remaining: 0, queue: 'transfer_memory' } })
  enter('b', 30)
  for (let n = 0; n < 80; n++) ends.push(enter('b', 20, `b${n}`), enter('c', 35, `c${n}`))
  t.strictSame(
    refused.map(([name, { message }]) => [name, message]),
    [
      ['a', 'a: token'],
      ['a', 'a: token'],
      ['a', 'a: token'],
      ['a', 'a: token'],
    ],
  )
  t.strictSame(begun, ['a', 'b'])
  for (const end of ends) end()
  give('a', 40)
  t.strictSame(begun, ['a', 'b'], 'nobody waits any more')
})
