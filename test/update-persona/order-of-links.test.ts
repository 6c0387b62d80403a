import fc from 'fast-check'
import t from 'tap'
import { compareIds } from '../../src/persona/fields.js'

t.test('texts have the order of their UTF-8, as in the database', async t => {
  const bytes = (text: string) => Buffer.from(text)
  const texts = ['', 'a', 'aa', 'b', '\u00e9', '\ud7ff', '\ue000', '\uffff', '\u{10000}', '\u{1f600}', '\u{10ffff}']
  for (const a of texts) {
    for (const b of texts) t.equal(Math.sign(compareIds(a, b)), Buffer.compare(bytes(a), bytes(b)), `${a} ${b}`)
  }
  fc.assert(
    fc.property(fc.string({ unit: 'binary' }), fc.string({ unit: 'binary' }), (a, b) => {
      return Math.sign(compareIds(a, b)) === Buffer.compare(bytes(a), bytes(b))
    }),
  )
  t.ok(compareIds(2, 10) < 0)
})
