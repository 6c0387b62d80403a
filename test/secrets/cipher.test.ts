import { inspect } from 'node:util'
import t from 'tap'
import { encryptSecret, openSecret, requestHash } from '../../src/secrets/cipher.js'
import { generateKey, parseKeyRing } from '../../src/secrets/key-ring.js'

const oldEntry = generateKey('old')
const newEntry = generateKey('new')
const oldRing = parseKeyRing(oldEntry)
const bothRing = parseKeyRing(`${newEntry},${oldEntry}`)
const newRing = parseKeyRing(newEntry)
const otherRing = parseKeyRing(generateKey('old'))
const place = { toolId: 7, headerName: 'X-Api-Key' }

t.test('a secret comes back exactly, whatever its characters and the case of the header name', async t => {
  for (const secret of ['', 'Bearer abc', ' blanks ', '日本 😀', 'x'.repeat(8_192)]) {
    const sealed = encryptSecret(oldRing, secret, place)
    t.equal(openSecret(oldRing, { ...sealed, toolId: 7, headerName: 'x-API-key' }).value, secret)
  }
})

t.test('the same secret never encrypts to the same bytes, and the plaintext is nowhere in them', async t => {
  const nonces = new Set<string>()
  for (let i = 0; i < 200; i++) {
    const sealed = encryptSecret(oldRing, 'the same secret', place)
    t.strictSame([sealed.nonce.length, sealed.ciphertext.length], [12, 'the same secret'.length + 16])
    t.equal(sealed.ciphertext.includes('the same'), false)
    nonces.add(sealed.nonce.toString('hex'))
  }
  t.equal(nonces.size, 200)
})

const DAMAGED = { problem: 'does_not_open' }

t.test('does_not_open: moved to another tool or header, or under another key of the same id', async t => {
  // Neighbouring fields must stay distinct: tool 1 with header "2-x" is not tool 12 with header "-x".
  const [at1, at12] = [
    { toolId: 1, headerName: '2-x' },
    { toolId: 12, headerName: '-x' },
  ]
  for (const [from, to] of [
    [place, { ...place, toolId: 8 }],
    [place, { ...place, headerName: 'X-Api-Keys' }],
    [at1, at12],
    [
      { ...at1, headerName: '1x' },
      { toolId: 11, headerName: 'x' },
    ],
  ] as const)
    t.strictSame(openSecret(oldRing, { ...encryptSecret(oldRing, 'secret', from), ...to }), DAMAGED)
  t.strictSame(openSecret(otherRing, { ...encryptSecret(oldRing, 'secret', place), ...place }), DAMAGED)
})

t.test('any flipped bit in nonce, ciphertext or tag, and any truncation, is does_not_open', async t => {
  const sealed = encryptSecret(oldRing, 'secret', place)
  for (const field of ['nonce', 'ciphertext'] as const) {
    for (let i = 0; i < sealed[field].length; i++) {
      const damaged = Buffer.from(sealed[field])
      damaged[i] = (damaged[i] ?? 0) ^ 1
      for (const bytes of [damaged, damaged.subarray(0, i)])
        t.strictSame(openSecret(oldRing, { ...sealed, ...place, [field]: bytes }), DAMAGED)
    }
  }
})

t.test('the first key encrypts, every key of the ring decrypts; one that is not in it is key_missing', async t => {
  const byOld = encryptSecret(oldRing, 'from before', place)
  t.equal(openSecret(bothRing, { ...byOld, ...place }).value, 'from before')
  const byNew = encryptSecret(bothRing, 'from now', place)
  t.equal(byNew.keyId, 'new')
  t.equal(openSecret(newRing, { ...byNew, ...place }).value, 'from now')
  t.strictSame(openSecret(newRing, { ...byOld, ...place }), { problem: 'key_missing' })
  t.notMatch(inspect(bothRing, { depth: 9 }), oldEntry.slice(4, 16))
})

t.test('a hash for a request depends on key and value, and needs that key alone', async t => {
  t.match(requestHash(bothRing, 'old', 'secret'), /^[0-9a-f]{64}$/)
  t.equal(requestHash(oldRing, 'old', 'secret'), requestHash(bothRing, 'old', 'secret'))
  t.not(requestHash(bothRing, 'new', 'secret'), requestHash(bothRing, 'old', 'secret'))
  t.not(requestHash(oldRing, 'old', 'other'), requestHash(oldRing, 'old', 'secret'))
  t.same([requestHash(newRing, 'old', 'secret'), requestHash(newRing, null, 'secret')], [null, null])
})
