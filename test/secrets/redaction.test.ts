import { createSecretKey } from 'node:crypto'
import t from 'tap'
import { generateDeploymentKey } from '../../src/secrets/cipher.js'
import { fingerprint, looksRedacted, redactionOf } from '../../src/secrets/redaction.js'

const key = generateDeploymentKey()

t.test('a fingerprint has 32 bytes and the mask shows its first 12 hexadecimal digits', async t => {
  const bytes = fingerprint(key, 7, 'Authorization', 'Bearer abc')
  t.equal(bytes.length, 32)
  t.equal(redactionOf(bytes), `****#${bytes.toString('hex').slice(0, 12)}`)
  t.match(redactionOf(bytes), /^\*{4}#[0-9a-f]{12}$/)
})

t.test('masks outlive a release: a known key, place and value give a known mask', async t => {
  // HMAC computed with another implementation over the documented encoding.
  const fixed = createSecretKey(Buffer.alloc(32, 7))
  t.equal(redactionOf(fingerprint(fixed, 12, 'X-Api-Key', 'sécret')), '****#598593c67703')
})

t.test('equal values in the same place give the same mask, whatever the case of the header name', async t => {
  t.ok(fingerprint(key, 7, 'X-Key', 'v').equals(fingerprint(key, 7, 'x-KEY', 'v')))
})

t.test('another tool, header, value or deployment gives another mask', async t => {
  const others = [
    fingerprint(key, 7, 'x-key', 'v'),
    fingerprint(key, 8, 'x-key', 'v'),
    fingerprint(key, 7, 'x-keys', 'v'),
    fingerprint(key, 7, 'x-key', 'V'),
    fingerprint(key, 7, 'x-ke', 'yv'),
    fingerprint(key, 77, '-x-key', 'v'),
    fingerprint(generateDeploymentKey(), 7, 'x-key', 'v'),
  ]
  t.equal(new Set(others.map(redactionOf)).size, others.length)
})

t.test('what is shaped like a mask is known as one, damaged ones too', async t => {
  const mask = redactionOf(fingerprint(key, 7, 'x-key', 'v'))
  const masks = [
    mask,
    ` ${mask}`,
    `${mask}\n`,
    mask.toUpperCase(),
    mask.slice(0, -1),
    `${mask}00`,
    '****#',
    '****',
    `Bearer ${mask}`,
    mask.slice(1),
    `*${mask}`,
    '****#0123456789xy',
  ]
  for (const text of masks) t.equal(looksRedacted(text), true, text)
})

t.test('other values are no masks', async t => {
  const values = ['', '*', '**a', 'a..b', 'a * b', '#0123456789ab', 'xxx', 'please wait...']
  for (const text of values) t.equal(looksRedacted(text), false, text)
})
