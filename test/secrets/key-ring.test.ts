import { randomBytes } from 'node:crypto'
import { inspect } from 'node:util'
import t from 'tap'
import { generateKey, InvalidKeyRing, parseKeyRing } from '../../src/secrets/key-ring.js'

const base64Key = () => randomBytes(32).toString('base64')

t.test('the first key encrypts, the others keep their order, between commas, blanks and comments', async t => {
  const key = base64Key()
  const ring = parseKeyRing(
    `# the keys of this deployment\r\n a:${key} # first, since June\n\n\tb:${base64Key()} c:${base64Key()},\nd:${base64Key()}\n#e:${base64Key()}`,
  )
  t.equal(ring.currentId, 'a')
  t.strictSame([...ring.keys.keys()], ['a', 'b', 'c', 'd'])
  t.equal(ring.keys.get('a')?.export().toString('base64'), key)
})

t.test('every fault is named at once, by place and id', async t => {
  const long = randomBytes(33).toString('base64')
  const faults = faultsOf(
    `ok:${base64Key()},short:${randomBytes(16).toString('base64')},long:${long},ok:${base64Key()},bad:%%%,empty:,${base64Key()},:${base64Key()}`,
  )
  t.strictSame(faults, [
    'entry 2 ("short"): the key has 16 bytes, not 32',
    'entry 3 ("long"): the key has 33 bytes, not 32',
    'entry 4 ("ok"): an earlier entry has this id: give each key a different id',
    'entry 5 ("bad"): the key is not base64',
    'entry 6 ("empty"): the key is not base64',
    'entry 7 has no colon: write id:base64',
    'entry 8 has no usable id: an id has 1 to 32 characters (letters, digits, "_", "." and "-") and begins with a letter or digit',
  ])
})

t.test('an empty ring is refused, and base64 that Buffer would read leniently', async t => {
  for (const text of ['', '  \n', '# nothing here', ',,,'])
    t.strictSame(faultsOf(text), ['there is no key: create one with agentctl keys generate'])
  const key = randomBytes(32)
  const base64 = key.toString('base64')
  const texts = [key.toString('base64url'), base64.replace('=', ''), `${base64}=`, key.toString('hex').slice(0, 43)]
  for (const text of [...texts, `${'A'.repeat(42)}B=`])
    t.match(faultsOf(`k:${text}`)[0], /not base64|bytes, not 32/, text)
})

t.test('no message shows a key, wherever it was written', async t => {
  const key = randomBytes(32)
  const spellings = [key.toString('base64'), key.toString('base64url'), key.toString('hex')]
  for (const spelling of spellings) {
    for (const text of [spelling, `${spelling}:id`, `id:${spelling}!`, `a:${spelling}:b`, `:${spelling}`]) {
      const message = t.throws(() => parseKeyRing(text), InvalidKeyRing)
      t.notMatch(inspect(message), spelling.slice(0, 12), text)
    }
  }
})

t.test('printing a ring or turning it into JSON shows no key', async t => {
  const key = base64Key()
  const ring = parseKeyRing(`k1:${key}`)
  const bytes = Buffer.from(key, 'base64')
  const inWords = (each: unknown) => [inspect(each, { showHidden: true, depth: 9 }), JSON.stringify(each), String(each)]
  const shown = [ring, { nested: { ring } }, ring.keys.get('k1')].flatMap(inWords)
  for (const text of shown) {
    t.notMatch(text, key.slice(0, 10))
    t.notMatch(text, bytes.toString('hex').slice(0, 10))
    t.notMatch(text.replace(/\s/g, ''), [...bytes.subarray(0, 4)].join(','))
  }
  t.match(inspect(ring), 'k1')
})

t.test('a generated key is an entry of its own, new each time', async t => {
  const [first, second] = [generateKey('k1'), generateKey('k1')]
  t.not(first, second)
  t.strictSame([...parseKeyRing(first).keys.keys()], ['k1'])
  t.match(parseKeyRing(generateKey()).currentId, /^\d{4}-\d\d-\d\d-[0-9a-f]{4}$/)
  t.throws(() => generateKey('no blanks'), InvalidKeyRing)
  t.throws(() => parseKeyRing('# no key'), InvalidKeyRing)
})

function faultsOf(text: string): readonly string[] {
  try {
    parseKeyRing(text)
  } catch (error) {
    if (error instanceof InvalidKeyRing) return error.faults
    throw error
  }
  return []
}
