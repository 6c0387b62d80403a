import { createHash } from 'node:crypto'
import t from 'tap'
import { digestOf } from '../../src/http/large-answer.js'

t.test('the digest of a long text is that of the whole, and others go on while it is made', async t => {
  for (const shift of [0, 1]) {
    const text = 'x'.repeat(shift) + '🦊'.repeat(200_000)
    let turns = 0
    const counting = setInterval(() => turns++, 0)
    t.equal(await digestOf(text), createHash('sha256').update(text).digest('hex'))
    clearInterval(counting)
    t.ok(turns > 0)
  }
})
