import t from 'tap'
import { AnswerText } from '../../src/updates/answer-text.js'

t.test('an answer is told from others by its texts and the hashes of its definitions', t => {
  const shown = (text: string | Buffer, hash = 'ab') => new AnswerText(['{"a":', { hash, text }, '}'])
  t.equal(shown('[1]').toBuffer().toString(), '{"a":[1]}')
  t.equal(shown(Buffer.from('["\u00e9"]')).toBuffer().toString(), '{"a":["\u00e9"]}')
  t.equal(shown('[1]').digest(), shown(Buffer.from('[1]')).digest())
  t.not(shown('[1]').digest(), shown('[1]', 'cd').digest())
  t.equal(shown('[1]').length, 9)
  t.end()
})
