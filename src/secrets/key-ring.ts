import { createSecretKey, type KeyObject, randomBytes } from 'node:crypto'

const KEY_BYTES = 32
// A 32-byte key in base64 is longer than any valid id, so a key that is given as an id is refused and not shown.
const KEY_ID = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,31}$/
const ID_FORM = 'an id has 1 to 32 characters (letters, digits, "_", "." and "-") and begins with a letter or digit'
const BASE_64 = /^[A-Za-z0-9+/]+={0,2}$/

/** The text of a key ring is invalid. `faults` identifies entries by position and id, never by key. */
export class InvalidKeyRing extends Error {
  override readonly name = 'InvalidKeyRing'

  constructor(readonly faults: readonly string[]) {
    super(faults.join('; '))
  }
}

/** The keys for stored secrets. The first key encrypts, and all keys can decrypt. Printing a `KeyObject` does not show the key. */
export interface KeyRing {
  /** The id of the first key. */
  currentId: string
  keys: ReadonlyMap<string, KeyObject>
}

/** Parses a key ring: `id:base64` entries with 32-byte keys, separated by commas or white space. `#` starts a comment. Throws `InvalidKeyRing`. */
export function parseKeyRing(text: string): KeyRing {
  const keys = new Map<string, KeyObject>()
  const entries = text.replace(/#[^\r\n]*/g, '').split(/[\s,]+/)
  const faults = entries.filter(Boolean).flatMap((entry, index) => {
    const place = `entry ${index + 1}`
    const colon = entry.indexOf(':')
    const [id, encoded] = [entry.slice(0, colon), entry.slice(colon + 1)]
    if (colon < 0) return [`${place} has no colon: write id:base64`]
    if (!KEY_ID.test(id)) return [`${place} has no usable id: ${ID_FORM}`]
    const fault = keys.has(id) ? 'an earlier entry has this id: give each key a different id' : keyFault(encoded)
    if (fault === undefined) keys.set(id, createSecretKey(Buffer.from(encoded, 'base64')))
    return fault === undefined ? [] : [`${place} ("${id}"): ${fault}`]
  })
  const [currentId] = keys.keys()
  if (faults.length > 0 || currentId === undefined)
    throw new InvalidKeyRing(faults.length > 0 ? faults : ['there is no key: create one with agentctl keys generate'])
  return { currentId, keys }
}

/** Generates a key and returns its `id:base64` entry. By default, the id is today's date with four random hex digits. Throws `InvalidKeyRing`. */
export function generateKey(id = `${new Date().toISOString().slice(0, 10)}-${randomBytes(2).toString('hex')}`): string {
  if (!KEY_ID.test(id)) throw new InvalidKeyRing([ID_FORM])
  return `${id}:${randomBytes(KEY_BYTES).toString('base64')}`
}

function keyFault(encoded: string): string | undefined {
  const bytes = Buffer.from(encoded, 'base64')
  // Encodes the bytes again for comparison, because Buffer.from skips invalid characters.
  if (!BASE_64.test(encoded) || bytes.toString('base64') !== encoded) return 'the key is not base64'
  if (bytes.length !== KEY_BYTES) return `the key has ${bytes.length} bytes, not ${KEY_BYTES}`
  return undefined
}
