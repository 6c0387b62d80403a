import { createHash } from 'node:crypto'
import { setImmediate } from 'node:timers/promises'
import t from 'tap'
import { AnswerText, digestOf, PIECE_LENGTH, piecesOf } from '../../src/updates/answer-text.js'

const FOX = '\u{1f98a}'

t.test('the digest of a long text is that of the whole', async t => {
  for (const shift of [0, 1]) {
    const text = 'x'.repeat(shift) + FOX.repeat(200_000)
    t.equal(await digestOf([text]), createHash('sha256').update(text).digest('hex'))
  }
})

t.test('of all long work together one piece is done in each turn', async t => {
  const pieces = 20
  const texts = ['a', 'b', 'c'].map(letter => letter.repeat(PIECE_LENGTH * pieces))
  let isOver = false
  let turns = 0
  const counting = (async () => {
    for (; !isOver; turns++) await setImmediate()
  })()
  await Promise.all(texts.map(text => digestOf([text])))
  isOver = true
  await counting
  t.ok(turns >= texts.length * pieces, `${turns} turns`)
})

t.test('pieces are the text in its order, short ones put together', t => {
  const bytes = Buffer.from(FOX.repeat(PIECE_LENGTH))
  const texts = ['', '{', FOX.repeat(PIECE_LENGTH), ...Array.from({ length: 1_000 }, (_, i) => `"${i}",`), bytes, '}']
  const pieces = [...piecesOf(texts)]
  const joined = Buffer.concat(pieces.map(piece => Buffer.from(piece)))
  t.ok(joined.equals(Buffer.concat(texts.map(text => Buffer.from(text)))))
  t.ok(pieces.every(piece => piece.length <= PIECE_LENGTH + 1))
  t.ok(pieces.length < 3 * (joined.length / PIECE_LENGTH))
  t.end()
})

t.test('an answer is told from others by its texts and the hashes of its definitions', async t => {
  const shown = (text: string | Buffer, hash = 'ab') => new AnswerText(['{"a":', { hash, text }, '}'])
  t.equal(shown('[1]').toBuffer().toString(), '{"a":[1]}')
  t.equal(shown(Buffer.from('["\u00e9"]')).toBuffer().toString(), '{"a":["\u00e9"]}')
  t.equal(await shown('[1]').digest(), await shown(Buffer.from('[1]')).digest())
  t.not(await shown('[1]').digest(), await shown('[1]', 'cd').digest())
  t.equal(shown('[1]').length, 9)
})
