import { type Kysely, sql } from 'kysely'
import type { Tables } from '../db/tables.js'
import { type HeaderPlace, openSecret, type SealedSecret } from './cipher.js'
import { KeyRingMissing } from './configured-ring.js'
import type { KeyRing } from './key-ring.js'

/**
 * Decrypts one stored secret for each key id in use. Returns the ids whose keys are wrong or missing in the ring. Throws `KeyRingMissing` if the
 * ring's first key is wrong, because new secrets would then be encrypted with a different key of the same id.
 */
export async function unusableKeys(db: Kysely<Tables>, ring: KeyRing): Promise<string[]> {
  const { rows } = await sql<SealedSecret & HeaderPlace>`
    select distinct on (key_id) key_id as "keyId", nonce, ciphertext, tool_id as "toolId", name as "headerName"
    from tool_header order by key_id, tool_id`.execute(db)
  const unopened = rows.filter(stored => openSecret(ring, stored).problem !== undefined)
  const wrong = unopened.find(({ keyId }) => keyId === ring.currentId)
  if (wrong === undefined) return unopened.map(({ keyId }) => keyId)
  throw new KeyRingMissing(
    `the key "${wrong.keyId}" cannot decrypt the header ${wrong.headerName} of tool ${wrong.toolId}: set SECRET_KEYS (or ` +
      'SECRET_KEYS_FILE) to the keys that encrypted the stored secrets. To check each secret, run: agentctl keys status',
  )
}
