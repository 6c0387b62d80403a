import { createCipheriv, createDecipheriv, createHmac, hkdfSync, type KeyObject, randomBytes } from 'node:crypto'
import type { KeyRing } from './key-ring.js'

/** The tool and the custom header that a secret value belongs to. Decryption requires the same place as encryption. */
export interface HeaderPlace {
  toolId: number
  /** Case is ignored. */
  headerName: string
}

/** An encrypted value. `nonce` has 12 bytes. `ciphertext` ends with a 16-byte authentication tag. */
export interface SealedSecret {
  keyId: string
  nonce: Buffer
  ciphertext: Buffer
}

const ALGORITHM = 'aes-256-gcm'
const NONCE_BYTES = 12
const TAG_BYTES = 16
const HEADER_VALUE_PURPOSE = 'custom-header-value/1'
const REQUEST_PURPOSE = 'request-fingerprint/1'

/** Encrypts a header value for its place with the first key of the ring (AES-256-GCM, random nonce). */
export function encryptSecret(ring: KeyRing, plaintext: string, place: HeaderPlace): SealedSecret {
  const keyId = ring.currentId
  const nonce = randomBytes(NONCE_BYTES)
  // The ring always contains its first key.
  const cipher = createCipheriv(ALGORITHM, ring.keys.get(keyId) as KeyObject, nonce, { authTagLength: TAG_BYTES })
  cipher.setAAD(placeData(place))
  const ciphertext = Buffer.concat([cipher.update(plaintext, 'utf8'), cipher.final(), cipher.getAuthTag()])
  return { keyId, nonce, ciphertext }
}

/**
 * Decrypts a header value, or returns the problem. `key_missing`: the ring lacks the key. `does_not_open`: the value was changed or moved to another
 * place, or it was encrypted with a different key that has the same id.
 */
export function openSecret(
  ring: KeyRing,
  { keyId, nonce, ciphertext, ...place }: SealedSecret & HeaderPlace,
): { value?: string; problem?: 'key_missing' | 'does_not_open' } {
  const key = ring.keys.get(keyId)
  if (key === undefined) return { problem: 'key_missing' }
  try {
    const decipher = createDecipheriv(ALGORITHM, key, nonce, { authTagLength: TAG_BYTES })
    decipher.setAAD(placeData(place))
    decipher.setAuthTag(ciphertext.subarray(-TAG_BYTES))
    const value = Buffer.concat([decipher.update(ciphertext.subarray(0, -TAG_BYTES)), decipher.final()])
    return nonce.length === NONCE_BYTES ? { value: value.toString('utf8') } : { problem: 'does_not_open' }
  } catch {
    return { problem: 'does_not_open' }
  }
}

/** Returns the HMAC of a header value in hex, for the fingerprint of a request. Returns null if `keyId` is null or the ring lacks the key. */
export function requestHash(ring: KeyRing, keyId: string | null, value: string): string | null {
  const key = keyId === null ? undefined : ring.keys.get(keyId)
  if (key === undefined) return null
  return createHmac('sha256', Buffer.from(hkdfSync('sha256', key, '', REQUEST_PURPOSE, 32)))
    .update(value)
    .digest('hex')
}

/** Encodes a place. Each part is preceded by its length in 4 bytes, so that different places have different encodings. */
function placeData({ toolId, headerName }: HeaderPlace): Buffer {
  return Buffer.concat(
    [HEADER_VALUE_PURPOSE, String(toolId), headerName.toLowerCase()].flatMap(part => {
      const bytes = Buffer.from(part, 'utf8')
      const length = Buffer.alloc(4)
      length.writeUInt32BE(bytes.length)
      return [length, bytes]
    }),
  )
}
