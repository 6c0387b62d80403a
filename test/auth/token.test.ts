import { crc32 } from 'node:zlib'
import t from 'tap'
import { hashToken, mintToken, parseToken } from '../../src/auth/token.js'

const SCANNER = /\b(?:pat|sa)_[0-9A-Za-z]{28}\b/

t.test("a new token has its kind's prefix, 28 characters of base 62, and the form that scanners look for", async t => {
  const person = mintToken('person').token
  const account = mintToken('service_account').token
  t.match(person, /^pat_[0-9A-Za-z]{28}$/)
  t.match(account, /^sa_[0-9A-Za-z]{28}$/)
  t.equal(SCANNER.exec(`Authorization: Bearer ${person}.`)?.[0], person)
  t.equal(SCANNER.exec(`token=${account}\n`)?.[0], account)
})

t.test('the last six characters are the CRC-32 of everything before them, in base 62, padded to six', async t => {
  const digits = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
  let padded = 0
  for (let i = 0; i < 2_000; i++) {
    const { token } = mintToken('person')
    const value = [...token.slice(-6)].reduce((sum, digit) => sum * 62 + digits.indexOf(digit), 0)
    if (value !== crc32(token.slice(0, -6))) return t.fail(token)
    if (token.at(-6) === '0') padded++
  }
  // About one checksum in five is below 62^5.
  t.ok(padded > 100)
})

t.test('two tokens written down once are read: the form never changes', async t => {
  // Checksums and hashes computed with another implementation (Python's zlib and hashlib).
  t.strictSame(parseToken('pat_0123456789ABCDEFGHabcd4AnPqb'), {
    ok: true,
    kind: 'person',
    hash: Buffer.from('e69a41364fda1a72d2e581dcc89f94c75494dd7fe23f01794d0032b0894e9ce7', 'hex'),
  })
  t.strictSame(parseToken('sa_0123456789ABCDEFGHabcd0VPA9Q'), {
    ok: true,
    kind: 'service_account',
    hash: Buffer.from('bbc8ee9cbda1d5b0b6700cbd2492e31c4d1faf36f3b08cfaa202eb9c5f0ccdc2', 'hex'),
  })
})

t.test('the hash is the SHA-256 of the token and comes the same from minting, parsing and hashing', async t => {
  const { token, hash } = mintToken('service_account')
  const parsed = parseToken(token)
  t.equal(hash.length, 32)
  t.ok(hash.equals(hashToken(token)))
  t.ok(parsed.ok && parsed.hash.equals(hash))
})

t.test('every single mistyped character is refused', async t => {
  const { token } = mintToken('person')
  for (let i = 0; i < token.length; i++) {
    const wrong = token[i] === 'x' ? 'y' : 'x'
    t.strictSame(parseToken(token.slice(0, i) + wrong + token.slice(i + 1)), { ok: false }, `position ${i}`)
  }
})

t.test('every pair of swapped neighbours is refused', async t => {
  const { token } = mintToken('person')
  for (let i = 0; i < token.length - 1; i++) {
    if (token[i] === token[i + 1]) continue
    const swapped = token.slice(0, i) + token[i + 1] + token[i] + token.slice(i + 2)
    t.strictSame(parseToken(swapped), { ok: false }, `position ${i}`)
  }
})

t.test(
  "refused: another kind's prefix, more or fewer characters, blanks, other alphabets, nothing, very long text",
  async t => {
    const { token } = mintToken('person')
    const texts = [
      '',
      `sa_${token.slice(4)}`,
      `PAT_${token.slice(4)}`,
      `${token}0`,
      token.slice(0, -1),
      ` ${token}`,
      `${token}\n`,
      `${token.slice(0, 10)}\u0661${token.slice(11)}`,
      `pat_${'_'.repeat(28)}`,
      'x'.repeat(1_000_000),
    ]
    for (const text of texts) t.strictSame(parseToken(text), { ok: false })
  },
)

t.test('tokens do not repeat', async t => {
  const seen = new Set(Array.from({ length: 5_000 }, () => mintToken('person').token))
  t.equal(seen.size, 5_000)
})
