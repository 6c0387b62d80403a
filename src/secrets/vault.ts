import type { KeyObject } from 'node:crypto'
import type { Kysely } from 'kysely'
import type { Tables } from '../db/tables.js'
import { Unavailable } from '../errors.js'
import { generateDeploymentKey, KeyMissing, openDeploymentKey, sealDeploymentKey } from './cipher.js'
import type { KeyRing } from './key-ring.js'

/** The key ring with the deployment key for redactions. The latter is null if the ring lacks the key that encrypts it. */
export interface Vault {
  ring: KeyRing
  deploymentKey: KeyObject | null
}

/**
 * Reads the deployment key of a database, or creates it. If the ring lacks its key, the vault can encrypt nothing new. Throws
 * `SecretCorrupt` if the ring has another key with the same id.
 */
export async function openVault(db: Kysely<Tables>, ring: KeyRing): Promise<Vault> {
  const readStored = () => db.selectFrom('deployment_key').select(['key_id', 'nonce', 'ciphertext']).executeTakeFirst()
  let stored = await readStored() // a standby is read-only, and has the key already
  if (stored === undefined) {
    const sealed = sealDeploymentKey(ring, generateDeploymentKey())
    await db
      .insertInto('deployment_key')
      .values({ key_id: sealed.keyId, nonce: sealed.nonce, ciphertext: sealed.ciphertext })
      .onConflict(conflict => conflict.doNothing())
      .execute()
    stored = await readStored()
  }
  if (stored === undefined) throw new Error('the deployment key is gone as soon as it is made')
  try {
    const { key_id: keyId, nonce, ciphertext } = stored
    return { ring, deploymentKey: openDeploymentKey(ring, { keyId, nonce, ciphertext }) }
  } catch (error) {
    if (error instanceof KeyMissing) return { ring, deploymentKey: null }
    throw error
  }
}

/** The deployment key. Throws `secretUnavailable` without one. */
export function requireDeploymentKey(vault: Vault): KeyObject {
  if (vault.deploymentKey === null) throw secretUnavailable()
  return vault.deploymentKey
}

/** The refusal of a request that needs a missing key. It names neither the key nor the tool. */
export function secretUnavailable(): Unavailable {
  return new Unavailable(
    'key_missing',
    'A key that this secret needs is missing from the key ring. The operator sees which with: agentctl keys status.',
    'not_applied',
  )
}

/** The ids of keys that stored secrets need and the ring lacks. */
export async function missingKeys(db: Kysely<Tables>, { ring }: Vault): Promise<string[]> {
  const used = await db
    .selectFrom('tool_header')
    .select('key_id')
    .union(db.selectFrom('deployment_key').select('key_id'))
    .execute()
  return used.map(row => row.key_id).filter(id => ring.keys.get(id) === undefined)
}
