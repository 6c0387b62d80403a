import { createCipheriv, createDecipheriv, createSecretKey, type KeyObject, randomBytes } from 'node:crypto'
import { encodeFields } from './encoding.js'
import type { KeyRing } from './key-ring.js'

/** The tool and header that a value belongs to. An encrypted value can be decrypted only with the same place. */
export interface HeaderPlace {
  toolId: number
  /** Not case-sensitive. */
  headerName: string
}

/** A stored secret: the id of its key, a 12-byte nonce, and the ciphertext with a 16-byte tag at its end. */
export interface SealedSecret {
  keyId: string
  nonce: Buffer
  ciphertext: Buffer
}

/** A stored secret needs a key that is not in the ring. Other secrets are not affected. */
export class KeyMissing extends Error {
  override readonly name = 'KeyMissing'

  constructor(readonly keyId: string) {
    super(`the key ring lacks the key "${keyId}"`)
  }
}

/** A stored secret cannot be decrypted: it was damaged, moved to another place, or encrypted with another key of the same id. */
export class SecretCorrupt extends Error {
  override readonly name = 'SecretCorrupt'

  constructor(keyId: string) {
    super(`a stored secret names the key "${keyId}", but the ring's key of that id does not open it`)
  }
}

const ALGORITHM = 'aes-256-gcm'
const NONCE_BYTES = 12
const TAG_BYTES = 16
const HEADER_VALUE_PURPOSE = 'custom-header-value/1'
const DEPLOYMENT_KEY_PURPOSE = 'deployment-key/1'
const DEPLOYMENT_KEY_BYTES = 32

/** Encrypts a header value with the ring's first key: AES-256-GCM with a random nonce, bound to its place. */
export function encryptSecret(ring: KeyRing, plaintext: string, place: HeaderPlace): SealedSecret {
  return seal(ring, Buffer.from(plaintext, 'utf8'), placeData(place))
}

/** Decrypts a header value. Throws `KeyMissing` or `SecretCorrupt`. */
export function decryptSecret(ring: KeyRing, sealed: SealedSecret, place: HeaderPlace): string {
  return open(ring, sealed, placeData(place)).toString('utf8')
}

/** Creates the 32-byte key for redactions. It is created once per deployment and never changes. */
export function generateDeploymentKey(): KeyObject {
  return createSecretKey(randomBytes(DEPLOYMENT_KEY_BYTES))
}

/** Encrypts the deployment key with the ring's first key. */
export function sealDeploymentKey(ring: KeyRing, deploymentKey: KeyObject): SealedSecret {
  return seal(ring, deploymentKey.export(), encodeFields([DEPLOYMENT_KEY_PURPOSE]))
}

/** Decrypts the deployment key. Throws `KeyMissing` or `SecretCorrupt`. */
export function openDeploymentKey(ring: KeyRing, sealed: SealedSecret): KeyObject {
  const bytes = open(ring, sealed, encodeFields([DEPLOYMENT_KEY_PURPOSE]))
  if (bytes.length !== DEPLOYMENT_KEY_BYTES) throw new SecretCorrupt(sealed.keyId)
  return createSecretKey(bytes)
}

function placeData({ toolId, headerName }: HeaderPlace): Buffer {
  return encodeFields([HEADER_VALUE_PURPOSE, String(toolId), headerName.toLowerCase()])
}

function seal(ring: KeyRing, plaintext: Buffer, associatedData: Buffer): SealedSecret {
  const keyId = ring.currentId
  const nonce = randomBytes(NONCE_BYTES)
  const cipher = createCipheriv(ALGORITHM, keyOf(ring, keyId), nonce, { authTagLength: TAG_BYTES })
  cipher.setAAD(associatedData)
  const ciphertext = Buffer.concat([cipher.update(plaintext), cipher.final(), cipher.getAuthTag()])
  return { keyId, nonce, ciphertext }
}

function open(ring: KeyRing, sealed: SealedSecret, associatedData: Buffer): Buffer {
  const key = keyOf(ring, sealed.keyId)
  const tagAt = sealed.ciphertext.length - TAG_BYTES
  if (sealed.nonce.length !== NONCE_BYTES || tagAt < 0) throw new SecretCorrupt(sealed.keyId)
  const decipher = createDecipheriv(ALGORITHM, key, sealed.nonce, { authTagLength: TAG_BYTES })
  decipher.setAAD(associatedData)
  decipher.setAuthTag(sealed.ciphertext.subarray(tagAt))
  try {
    return Buffer.concat([decipher.update(sealed.ciphertext.subarray(0, tagAt)), decipher.final()])
  } catch {
    throw new SecretCorrupt(sealed.keyId)
  }
}

function keyOf(ring: KeyRing, id: string): KeyObject {
  const key = ring.keys.get(id)
  if (!key) throw new KeyMissing(id)
  return key
}
