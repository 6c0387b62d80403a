import { type Kysely, type RawBuilder, sql, type Transaction } from 'kysely'
import type { Tables } from '../db/tables.js'
import { joined } from '../db/transaction.js'
import { encryptSecret, type HeaderPlace, openSecret, type SealedSecret } from '../secrets/cipher.js'
import type { KeyRing } from '../secrets/key-ring.js'
import { unusableKeys } from '../secrets/stored-keys.js'
import type { Actor } from '../updates/resource.js'
import { recordAccess } from './access-events.js'
import { operatorActor } from './operator.js'

type StoredHeader = SealedSecret & HeaderPlace & { position: number; mask: Buffer }

/** Reads the encrypted header values that match the condition `which`. */
export async function sealedHeaders(db: Kysely<Tables>, which: RawBuilder<unknown>): Promise<StoredHeader[]> {
  const { rows } = await sql<StoredHeader>`
    select position, name as "headerName", tool_id as "toolId", key_id as "keyId", nonce, ciphertext, mask
    from tool_header where ${which} order by tool_id, position`.execute(db)
  return rows
}

/** Tries to decrypt every stored secret. Returns the failures, and the number of secrets encrypted with each key. */
export async function keyStatus(db: Kysely<Tables>, ring: KeyRing) {
  const headers = await sealedHeaders(db, sql`true`)
  const counts = new Map([...ring.keys.keys()].map(id => [id, 0]))
  for (const { keyId } of headers) counts.set(keyId, (counts.get(keyId) ?? 0) + 1)
  const findings = headers.flatMap(header => {
    const { problem } = openSecret(ring, header)
    const place = `the header ${header.headerName} of tool ${header.toolId}`
    return problem === undefined ? [] : [{ place, key: header.keyId, problem }]
  })
  const keys = [...counts].map(([id, values]) => {
    return { id, in_ring: ring.keys.has(id), current: id === ring.currentId, values }
  })
  return { current: ring.currentId, keys, values: headers.length, findings }
}

/**
 * Encrypts all stored secrets with the ring's first key, in one transaction for each tool. The service can run meanwhile. If a tool has a secret
 * that cannot be decrypted, skips the tool and reports its id. Throws `KeyRingMissing` if the first key cannot decrypt a secret stored under its id.
 */
export async function rotateKeys(db: Kysely<Tables>, ring: KeyRing, actor: Actor = operatorActor()) {
  await unusableKeys(db, ring)
  const rotation = { values: 0, tools: 0, left_tools: [] as number[] }
  const { rows } = await sql<{ id: number }>`
    select distinct tool_id as id from tool_header where key_id <> ${ring.currentId} order by 1`.execute(db)
  for (const { id } of rows) {
    const count = await db.transaction().execute(trx => sealAnew(trx, ring, id))
    if (count === undefined) rotation.left_tools.push(id)
    else if (count > 0) rotation.tools++
    rotation.values += count ?? 0
  }
  if (rotation.tools > 0) {
    const detail = { key: ring.currentId, ...rotation }
    await joined(db, trx => recordAccess(trx, actor, [{ kind: 'keys', subject: '', action: 'rotated', detail }]))
  }
  return rotation
}

/** Encrypts again the values of a tool that other keys encrypted. Returns their number, or undefined if a value cannot be decrypted. */
async function sealAnew(trx: Transaction<Tables>, ring: KeyRing, toolId: number): Promise<number | undefined> {
  await sql`select from tool where id = ${toolId} for no key update`.execute(trx)
  const headers = await sealedHeaders(trx, sql`tool_id = ${toolId} and key_id <> ${ring.currentId}`)
  const sealed = headers.flatMap(header => {
    const { value } = openSecret(ring, header)
    return value === undefined ? [] : [{ ...encryptSecret(ring, value, header), position: header.position }]
  })
  if (sealed.length < headers.length) return undefined
  for (const { nonce, ciphertext, position } of sealed) {
    await sql`
      update tool_header set key_id = ${ring.currentId}, nonce = ${nonce}, ciphertext = ${ciphertext}
      where tool_id = ${toolId} and position = ${position}`.execute(trx)
  }
  return headers.length
}
