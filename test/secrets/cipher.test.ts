import { inspect } from 'node:util'
import t from 'tap'
import { decryptSecret, encryptSecret, KeyMissing, requestHash, SecretCorrupt } from '../../src/secrets/cipher.js'
import { generateKey, parseKeyRing } from '../../src/secrets/key-ring.js'

const oldEntry = generateKey('old')
const newEntry = generateKey('new')
const oldRing = parseKeyRing(oldEntry)
const bothRing = parseKeyRing(`${newEntry},${oldEntry}`)
const newRing = parseKeyRing(newEntry)
const place = { toolId: 7, headerName: 'X-Api-Key' }

t.test('a secret comes back exactly, whatever its characters', async t => {
  for (const secret of ['', 'Bearer abc', ' blanks ', '日本 😀', 'x'.repeat(8_192)]) {
    t.equal(decryptSecret(oldRing, encryptSecret(oldRing, secret, place), place), secret)
  }
})

t.test('the header name counts without regard to case', async t => {
  const sealed = encryptSecret(oldRing, 'secret', place)
  t.equal(decryptSecret(oldRing, sealed, { toolId: 7, headerName: 'x-API-key' }), 'secret')
})

t.test('the same secret never encrypts to the same bytes, and the plaintext is nowhere in them', async t => {
  const nonces = new Set<string>()
  for (let i = 0; i < 200; i++) {
    const sealed = encryptSecret(oldRing, 'the same secret', place)
    t.equal(sealed.nonce.length, 12)
    t.equal(sealed.ciphertext.length, 'the same secret'.length + 16)
    t.equal(sealed.ciphertext.includes('the same'), false)
    nonces.add(sealed.nonce.toString('hex'))
  }
  t.equal(nonces.size, 200)
})

t.test('a secret moved to another tool or header does not open', async t => {
  const sealed = encryptSecret(oldRing, 'secret', place)
  t.throws(() => decryptSecret(oldRing, sealed, { toolId: 8, headerName: 'X-Api-Key' }), SecretCorrupt)
  t.throws(() => decryptSecret(oldRing, sealed, { toolId: 7, headerName: 'X-Api-Keys' }), SecretCorrupt)
  // Neighbouring fields must not flow into each other: tool 1 with header "2-x" is not tool 12 with header "-x".
  const shifted = encryptSecret(oldRing, 'secret', { toolId: 1, headerName: '2-x' })
  t.throws(() => decryptSecret(oldRing, shifted, { toolId: 12, headerName: '-x' }), SecretCorrupt)
})

t.test('any flipped bit in nonce, ciphertext or tag, and any truncation, is SecretCorrupt', async t => {
  const sealed = encryptSecret(oldRing, 'secret', place)
  for (const field of ['nonce', 'ciphertext'] as const) {
    for (let i = 0; i < sealed[field].length; i++) {
      const damaged = Buffer.from(sealed[field])
      damaged[i] = (damaged[i] ?? 0) ^ 1
      t.throws(() => decryptSecret(oldRing, { ...sealed, [field]: damaged }, place), SecretCorrupt)
    }
    for (const length of [0, 4, 11, 15, 16]) {
      const cut = { ...sealed, [field]: sealed[field].subarray(0, length) }
      if (sealed[field].length > length) t.throws(() => decryptSecret(oldRing, cut, place), SecretCorrupt)
    }
  }
})

t.test('the first key encrypts, every key of the ring decrypts', async t => {
  const byOld = encryptSecret(oldRing, 'from before', place)
  t.equal(decryptSecret(bothRing, byOld, place), 'from before')
  const byNew = encryptSecret(bothRing, 'from now', place)
  t.equal(byNew.keyId, 'new')
  t.equal(decryptSecret(newRing, byNew, place), 'from now')
})

t.test('a secret whose key is not in the ring is KeyMissing, with the id', async t => {
  const sealed = encryptSecret(oldRing, 'secret', place)
  const error = t.throws(() => decryptSecret(newRing, sealed, place), KeyMissing)
  t.match(error, { keyId: 'old', message: 'the key ring lacks the key "old"' })
})

t.test('another key under the same id is SecretCorrupt', async t => {
  const sealed = encryptSecret(oldRing, 'secret', place)
  t.throws(() => decryptSecret(parseKeyRing(generateKey('old')), sealed, place), SecretCorrupt)
})

t.test('a hash for a request depends on key and value, and needs that key alone', async t => {
  t.match(requestHash(bothRing, 'old', 'secret'), /^[0-9a-f]{64}$/)
  t.equal(requestHash(oldRing, 'old', 'secret'), requestHash(bothRing, 'old', 'secret'))
  t.not(requestHash(bothRing, 'new', 'secret'), requestHash(bothRing, 'old', 'secret'))
  t.not(requestHash(oldRing, 'old', 'other'), requestHash(oldRing, 'old', 'secret'))
  t.same([requestHash(newRing, 'old', 'secret'), requestHash(newRing, null, 'secret')], [null, null])
})

t.test('places whose parts join to the same text differ', async t => {
  const sealed = encryptSecret(oldRing, 'secret', { toolId: 1, headerName: '1x' })
  t.throws(() => decryptSecret(oldRing, sealed, { toolId: 11, headerName: 'x' }), SecretCorrupt)
})

t.test('no error shows the secret or the key', async t => {
  const sealed = encryptSecret(oldRing, 'very-secret', place)
  for (const ring of [newRing, parseKeyRing(generateKey('old'))]) {
    const error = t.throws(() => decryptSecret(ring, sealed, place))
    t.notMatch(inspect(error, { depth: 9 }), /very-secret/)
    t.notMatch(inspect(error, { depth: 9 }), oldEntry.slice(4, 16))
  }
})
