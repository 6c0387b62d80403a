import { type Kysely, sql, type Transaction } from 'kysely'
import type { Tables } from '../db/tables.js'
import { joined } from '../db/transaction.js'
import {
  decryptSecret,
  encryptSecret,
  type HeaderPlace,
  KeyMissing,
  type SealedSecret,
  SecretCorrupt,
} from '../secrets/cipher.js'
import type { KeyRing } from '../secrets/key-ring.js'
import { recordAccess } from '../updates/access-events.js'
import type { Actor } from '../updates/audit.js'
import { inOneSnapshot } from '../updates/read.js'
import { operatorActor } from './operator.js'
import { Refusal } from './refusal.js'
import { scan } from './scan.js'

/** A stored secret that cannot be decrypted. */
export interface SecretFinding {
  /** `the header X-Key of tool 7`. */
  place: string
  /** The id of its key. */
  key: string
  problem: 'key_missing' | 'does_not_open'
}

const VALUES_AT_ONCE = 500

/**
 * Decrypts every stored secret. Returns those that cannot be decrypted, and the keys of the ring and of stored secrets with the number of
 * their values.
 */
export async function keyStatus(db: Kysely<Tables>, ring: KeyRing) {
  const findings: SecretFinding[] = []
  const counts = new Map([...ring.keys.keys()].map(id => [id, 0]))
  let values = 0
  await inOneSnapshot({ db }, async trx => {
    const headers = sql<SealedSecret & HeaderPlace>`
      select tool_id as "toolId", name as "headerName", key_id as "keyId", nonce, ciphertext
      from tool_header order by tool_id, position`
    for await (const stored of scan(trx, 'headers', headers, VALUES_AT_ONCE)) {
      const { keyId: key, toolId, headerName } = stored
      values++
      counts.set(key, (counts.get(key) ?? 0) + 1)
      const problem = problemOf(() => decryptSecret(ring, stored, stored))
      if (problem !== undefined) findings.push({ place: `the header ${headerName} of tool ${toolId}`, key, problem })
    }
  })
  const keys = [...counts].map(([id, values]) => {
    return { id, in_ring: ring.keys.has(id), current: id === ring.currentId, values }
  })
  return { current: ring.currentId, keys, values, opened: values - findings.length, findings }
}

function problemOf(open: () => void): SecretFinding['problem'] | undefined {
  try {
    open()
    return undefined
  } catch (error) {
    if (error instanceof KeyMissing) return 'key_missing'
    if (error instanceof SecretCorrupt) return 'does_not_open'
    throw error
  }
}

/**
 * Encrypts all stored secrets with the ring's first key, in one transaction per tool, while the service runs. It may be repeated. Tools
 * with a value that cannot be decrypted are skipped and listed. Throws `Refusal` if the first key does not decrypt what has its id.
 */
export async function rotateKeys(db: Kysely<Tables>, ring: KeyRing, actor: Actor = operatorActor()) {
  const { findings } = await keyStatus(db, ring)
  const wrong = findings.find(({ key, problem }) => key === ring.currentId && problem === 'does_not_open')
  if (wrong) {
    const remedy = 'put the right key under this id in SECRET_KEYS (or SECRET_KEYS_FILE); see agentctl keys status'
    throw new Refusal(`the key "${ring.currentId}" does not open ${wrong.place}: ${remedy}`)
  }
  const rotation = { values: 0, tools: 0, skipped_tools: [] as number[], unopened_tools: [] as number[] }
  const { rows } = await sql<{ tool_id: number }>`
    select distinct tool_id from tool_header where key_id <> ${ring.currentId} order by tool_id`.execute(db)
  const record = (action: string, detail: object) =>
    joined(db, trx => recordAccess(trx, actor, [{ kind: 'keys', subject: '', action, detail }]))
  // Also recorded at its start, because a rotation may be killed before its end.
  if (rows.length > 0) await record('rotation begun', { key: ring.currentId })
  for (const { tool_id } of rows) {
    let count = 0
    const problem = await db.transaction().execute(async trx => {
      const headers = await lockedHeaders(trx, ring, tool_id)
      const problem = headers.map(header => problemOf(() => decryptSecret(ring, header, header))).find(Boolean)
      if (problem === undefined) count = await sealAnew(trx, ring, tool_id, headers)
      return problem
    })
    if (problem !== undefined) rotation[problem === 'key_missing' ? 'skipped_tools' : 'unopened_tools'].push(tool_id)
    if (count > 0) rotation.tools++
    rotation.values += count
  }
  if (rotation.tools > 0) await record('rotated', { key: ring.currentId, ...rotation })
  return rotation
}

type StoredHeader = SealedSecret & HeaderPlace & { position: number }

/** The header values of a tool under other keys. Locks the tool. */
async function lockedHeaders(trx: Transaction<Tables>, ring: KeyRing, toolId: number): Promise<StoredHeader[]> {
  await sql`select from tool where id = ${toolId} for no key update`.execute(trx)
  const { rows } = await sql<StoredHeader>`
    select position, name as "headerName", tool_id as "toolId", key_id as "keyId", nonce, ciphertext
    from tool_header where tool_id = ${toolId} and key_id <> ${ring.currentId}`.execute(trx)
  return rows
}

/** Encrypts values again, and returns their number. Raises `secrets_generation`, so that a concurrent update decides again. */
async function sealAnew(trx: Transaction<Tables>, ring: KeyRing, toolId: number, headers: StoredHeader[]) {
  if (headers.length === 0) return 0
  const sealed = headers.map(header => encryptSecret(ring, decryptSecret(ring, header, header), header))
  await sql`
    update tool_header h set key_id = ${ring.currentId}, nonce = s.nonce, ciphertext = s.ciphertext
    from unnest(${headers.map(({ position }) => position)}::integer[], ${sealed.map(({ nonce }) => nonce)}::bytea[],
      ${sealed.map(({ ciphertext }) => ciphertext)}::bytea[]) s (position, nonce, ciphertext)
    where h.tool_id = ${toolId} and h.position = s.position`.execute(trx)
  await sql`update tool set secrets_generation = secrets_generation + 1 where id = ${toolId}`.execute(trx)
  return headers.length
}
