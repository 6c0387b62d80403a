import { createSecretKey, type KeyObject, randomBytes } from 'node:crypto'

const KEY_BYTES = 32
// Shorter than any spelling of a 32-byte key (base64 has 43 characters, hexadecimal 64), so that a key written where its
// id belongs is never taken for an id and shown.
const KEY_ID = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,31}$/
const BASE_64 = /^[A-Za-z0-9+/]+={0,2}$/

/** The text of a key ring is unusable. `faults` names every fault by the entry's place and id, never by its key. */
export class InvalidKeyRing extends Error {
  override readonly name = 'InvalidKeyRing'

  constructor(readonly faults: readonly string[]) {
    super(`the key ring is unusable: ${faults.join('; ')}`)
  }
}

/** The keys that protect stored secrets: the current one encrypts, all decrypt. A `KeyObject` shows nothing of its key when it is printed. */
export interface KeyRing {
  /** The id of the first key. */
  currentId: string
  /** By id, in the order of the ring. */
  keys: ReadonlyMap<string, KeyObject>
}

/** Reads a key ring: entries `id:base64` of 32 bytes, parted by commas or blanks, with `#` comments. Throws `InvalidKeyRing`. */
export function parseKeyRing(text: string): KeyRing {
  const faults: string[] = []
  const keys = new Map<string, KeyObject>()
  for (const [index, entry] of entriesOf(text).entries()) readEntry(entry, `entry ${index + 1}`, keys, faults)
  const [currentId] = keys.keys()
  if (faults.length > 0 || currentId === undefined)
    throw new InvalidKeyRing(faults.length > 0 ? faults : ['it holds no key'])
  return { currentId, keys }
}

/** A new random entry for a key ring, `id:base64`. Without an id it gets one of today's date and four random digits. */
export function generateKey(id: string = datedId()): string {
  if (!KEY_ID.test(id)) throw new InvalidKeyRing(['a key id is 1 to 32 letters, digits, "_", "." or "-"'])
  return `${id}:${randomBytes(KEY_BYTES).toString('base64')}`
}

function entriesOf(text: string): string[] {
  const uncommented = text.replace(/#[^\r\n]*/g, '')
  return uncommented.split(/[\s,]+/).filter(entry => entry !== '')
}

function readEntry(entry: string, place: string, keys: Map<string, KeyObject>, faults: string[]): void {
  const colon = entry.indexOf(':')
  if (colon < 0) {
    faults.push(`${place} has no colon: write id:base64`)
    return
  }
  const id = entry.slice(0, colon)
  if (!KEY_ID.test(id)) {
    faults.push(`${place} has no usable id: 1 to 32 letters, digits, "_", "." or "-"`)
    return
  }
  const encoded = entry.slice(colon + 1)
  const fault = keys.has(id) ? 'its id occurs twice' : keyFault(encoded)
  if (fault === undefined) keys.set(id, createSecretKey(Buffer.from(encoded, 'base64')))
  else faults.push(`${place} ("${id}"): ${fault}`)
}

function keyFault(encoded: string): string | undefined {
  const bytes = Buffer.from(encoded, 'base64')
  // Buffer.from skips what it cannot read; only the way back shows that nothing was lost.
  if (!BASE_64.test(encoded) || bytes.toString('base64') !== encoded) return 'the key is not base64'
  if (bytes.length !== KEY_BYTES) return `the key has ${bytes.length} bytes, not ${KEY_BYTES}`
  return undefined
}

function datedId(): string {
  return `${new Date().toISOString().slice(0, 10)}-${randomBytes(2).toString('hex')}`
}
