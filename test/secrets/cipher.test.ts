import { inspect } from 'node:util'
import t from 'tap'
import {
  decryptSecret,
  encryptSecret,
  generateDeploymentKey,
  KeyMissing,
  openDeploymentKey,
  SecretCorrupt,
  sealDeploymentKey,
} from '../../src/secrets/cipher.js'
import { encodeFields } from '../../src/secrets/encoding.js'
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

t.test('the deployment key survives sealing and rotation unchanged, and is no header value', async t => {
  const deploymentKey = generateDeploymentKey()
  const sealed = sealDeploymentKey(oldRing, deploymentKey)
  const rotated = sealDeploymentKey(bothRing, openDeploymentKey(bothRing, sealed))
  t.equal(rotated.keyId, 'new')
  t.equal(openDeploymentKey(newRing, rotated).equals(deploymentKey), true)
  t.throws(() => decryptSecret(oldRing, sealed, place), SecretCorrupt)
  t.throws(() => openDeploymentKey(oldRing, encryptSecret(oldRing, 'x'.repeat(32), place)), SecretCorrupt)
  t.throws(() => openDeploymentKey(newRing, sealed), KeyMissing)
})

t.test('no error shows the secret or the key', async t => {
  const sealed = encryptSecret(oldRing, 'very-secret', place)
  for (const ring of [newRing, parseKeyRing(generateKey('old'))]) {
    const error = t.throws(() => decryptSecret(ring, sealed, place))
    t.notMatch(inspect(error, { depth: 9 }), /very-secret/)
    t.notMatch(inspect(error, { depth: 9 }), oldEntry.slice(4, 16))
  }
})

t.test('fields are encoded so that no two lists give the same bytes', async t => {
  const lists = [['ab', 'c'], ['a', 'bc'], ['abc'], ['abc', ''], ['', 'abc'], ['a', 'b', 'c'], [], ['é'], ['e\u0301']]
  const encoded = new Set(lists.map(list => encodeFields(list).toString('hex')))
  t.equal(encoded.size, lists.length)
})
