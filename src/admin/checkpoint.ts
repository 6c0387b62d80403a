import { createPrivateKey, createPublicKey, generateKeyPairSync, hash, type KeyObject, sign, verify } from 'node:crypto'
import { Refusal } from './refusal.js'

/*
 * Checkpoints in the form of transparency logs: a signed note (C2SP signed-note and tlog-checkpoint) of origin, size and root.
 * Keys have the textual form of those notes, so that other tools read them: `PRIVATE+KEY+name+hash+key` and `name+hash+key`.
 */

/** The tree over all hashes at one time. */
export interface Checkpoint {
  /** Whose tree it is: the name of the key. */
  origin: string
  /** How many leaves it has. */
  size: number
  root: Buffer
}

/** A key that signs checkpoints. */
export interface SigningKey {
  name: string
  id: Buffer
  key: KeyObject
  /** The public key as `name+hash+key`: for everybody who checks. */
  verifier: string
}

interface VerifyingKey {
  name: string
  id: Buffer
  key: KeyObject
}

const ED25519 = Buffer.of(1)
/** What stands before the 32 bytes of a key in DER (RFC 8410). */
const PRIVATE_DER = Buffer.from('302e020100300506032b657004220420', 'hex')
const PUBLIC_DER = Buffer.from('302a300506032b6570032100', 'hex')
const KEY_BYTES = 32
/** A name: no blank, no plus sign, nothing that a line of a note could not hold. */
const NAME = /^[A-Za-z0-9][A-Za-z0-9._/-]{0,99}$/

/** Makes a key pair with a name, such as the host of the service. Throws `Refusal` for a name that a note cannot hold. */
export function generateSigningKey(name: string): { signer: string; verifier: string } {
  if (!NAME.test(name)) throw new Refusal(`a name has letters, digits and ._/- only, at most 100: not ${name}`)
  const { privateKey } = generateKeyPairSync('ed25519')
  const seed = privateKey.export({ format: 'der', type: 'pkcs8' }).subarray(-KEY_BYTES)
  const { id, verifier } = signingKey(name, seed)
  return { signer: `PRIVATE+KEY+${name}+${id.toString('hex')}+${encoded(seed)}`, verifier }
}

function encoded(bytes: Buffer): string {
  return Buffer.concat([ED25519, bytes]).toString('base64')
}

function signingKey(name: string, seed: Buffer): SigningKey {
  const key = createPrivateKey({ key: Buffer.concat([PRIVATE_DER, seed]), format: 'der', type: 'pkcs8' })
  const own = createPublicKey(key).export({ format: 'der', type: 'spki' }).subarray(-KEY_BYTES)
  const id = keyId(name, own)
  return { name, id, key, verifier: `${name}+${id.toString('hex')}+${encoded(own)}` }
}

function keyId(name: string, publicKey: Buffer): Buffer {
  return hash('sha256', Buffer.concat([Buffer.from(`${name}\n`), ED25519, publicKey]), 'buffer').subarray(0, 4)
}

/** Reads `PRIVATE+KEY+name+hash+key`. Throws `Refusal`, which never repeats what was given. */
export function parseSigningKey(text: string): SigningKey {
  const [, name = '', id, key = ''] = /^PRIVATE\+KEY\+([^+\s]+)\+([0-9a-f]{8})\+(\S+)$/.exec(text.trim()) ?? []
  const bytes = Buffer.from(key, 'base64')
  const parsed = NAME.test(name) && isKey(bytes) ? signingKey(name, bytes.subarray(1)) : undefined
  if (parsed === undefined || parsed.id.toString('hex') !== id) {
    throw new Refusal('the signing key is not one: agentctl audit keygen NAME makes one, as PRIVATE+KEY+name+hash+key')
  }
  return parsed
}

/** Reads `name+hash+key`. Throws `Refusal`. */
export function parseVerifyingKey(text: string): VerifyingKey {
  const [, name = '', id, key = ''] = /^([^+\s]+)\+([0-9a-f]{8})\+(\S+)$/.exec(text.trim()) ?? []
  const bytes = Buffer.from(key, 'base64')
  if (!isKey(bytes) || keyId(name, bytes.subarray(1)).toString('hex') !== id) {
    throw new Refusal('the public key is not one: agentctl audit keygen prints it, as name+hash+key')
  }
  const der = Buffer.concat([PUBLIC_DER, bytes.subarray(1)])
  return { name, id: Buffer.from(id, 'hex'), key: createPublicKey({ key: der, format: 'der', type: 'spki' }) }
}

function isKey(bytes: Buffer): boolean {
  return bytes.length === 1 + KEY_BYTES && bytes[0] === 1
}

/** The checkpoint as a signed note. */
export function signedNote({ size, root }: Omit<Checkpoint, 'origin'>, { name, id, key }: SigningKey): string {
  const text = `${name}\n${size}\n${root.toString('base64')}\n`
  const signature = Buffer.concat([id, sign(null, Buffer.from(text), key)])
  return `${text}\n— ${name} ${signature.toString('base64')}\n`
}

/** Reads a signed note and checks its signature. Throws `Refusal` when it is not a checkpoint, or not signed by this key. */
export function readNote(note: string, verifier: string): Checkpoint {
  const { name, id, key } = parseVerifyingKey(verifier)
  const end = note.indexOf('\n\n')
  const text = note.slice(0, end + 1)
  const [, origin, size, root = ''] = /^([^\n]+)\n(0|[1-9]\d{0,14})\n([A-Za-z0-9+/]{43}=)\n/.exec(text) ?? []
  if (end < 0 || origin !== name) throw new Refusal(`this is not a checkpoint of ${name}`)
  const signatures = note
    .slice(end + 2)
    .split('\n')
    .filter(line => line.startsWith(`— ${name} `))
    .map(line => Buffer.from(line.slice(name.length + 3), 'base64'))
  const isSigned = signatures.some(
    bytes => bytes.subarray(0, 4).equals(id) && verify(null, Buffer.from(text), key, bytes.subarray(4)),
  )
  if (!isSigned) throw new Refusal(`the checkpoint is not signed by the key ${name}+${id.toString('hex')}`)
  return { origin, size: Number(size), root: Buffer.from(root, 'base64') }
}
