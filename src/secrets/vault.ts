import type { KeyObject } from 'node:crypto'
import type { Kysely } from 'kysely'
import type { Tables } from '../db/tables.js'
import { Unavailable } from '../errors.js'
import { generateDeploymentKey, KeyMissing, openDeploymentKey, sealDeploymentKey } from './cipher.js'
import type { KeyRing } from './key-ring.js'

/** The key ring, and the deployment key by which redactions are computed; the latter null when its own key is missing from the ring. */
export interface Vault {
  ring: KeyRing
  deploymentKey: KeyObject | null
}

/**
 * Opens the vault of a database: reads its deployment key, or makes it. A ring without that key opens a vault that seals nothing new.
 * `SecretCorrupt` passes through: another key under the same id is a mistake of the operator.
 */
export async function openVault(db: Kysely<Tables>, ring: KeyRing): Promise<Vault> {
  const readStored = () => db.selectFrom('deployment_key').select(['key_id', 'nonce', 'ciphertext']).executeTakeFirst()
  let stored = await readStored() // a standby takes no insert, and has the key already
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

/** The deployment key, or the refusal of a request that cannot be carried out without it. */
export function requireDeploymentKey(vault: Vault): KeyObject {
  if (vault.deploymentKey === null) throw secretUnavailable()
  return vault.deploymentKey
}

/** The refusal of a request that touches a secret whose key is missing from the ring. Names no key and no tool. */
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
