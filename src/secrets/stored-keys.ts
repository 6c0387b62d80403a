import { type Kysely, sql } from 'kysely'
import type { Tables } from '../db/tables.js'
import { decryptSecret, type HeaderPlace, KeyMissing, type SealedSecret, SecretCorrupt } from './cipher.js'
import { KeyRingMissing } from './configured-ring.js'
import type { KeyRing } from './key-ring.js'

/**
 * Decrypts one stored value for each key. Returns the ids of keys that the ring lacks or has wrong. Throws `KeyRingMissing` if its first key
 * is wrong, because new values would be encrypted with it under the same id.
 */
export async function unusableKeys(db: Kysely<Tables>, ring: KeyRing): Promise<string[]> {
  const { rows } = await sql<SealedSecret & HeaderPlace>`
    select distinct on (key_id) key_id as "keyId", nonce, ciphertext, tool_id as "toolId", name as "headerName"
    from tool_header order by key_id, tool_id`.execute(db)
  return rows.flatMap(stored => {
    try {
      decryptSecret(ring, stored, stored)
      return []
    } catch (error) {
      if (!(error instanceof KeyMissing || error instanceof SecretCorrupt)) throw error
      if (stored.keyId !== ring.currentId) return [stored.keyId]
      throw new KeyRingMissing(
        `the key "${stored.keyId}" does not open the header ${stored.headerName} of tool ${stored.toolId}: set SECRET_KEYS (or ` +
          'SECRET_KEYS_FILE) to the key ring that encrypted the stored secrets; agentctl keys status checks each of them',
      )
    }
  })
}
