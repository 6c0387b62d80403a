import type { KeyObject } from 'node:crypto'
import { type Kysely, sql, type Transaction } from 'kysely'
import type { Tables } from '../db/tables.js'
import { joined } from '../db/transaction.js'
import {
  decryptSecret,
  encryptSecret,
  type HeaderPlace,
  KeyMissing,
  openDeploymentKey,
  type SealedSecret,
  SecretCorrupt,
  sealDeploymentKey,
} from '../secrets/cipher.js'
import type { KeyRing } from '../secrets/key-ring.js'
import { fingerprint } from '../secrets/redaction.js'
import { recordAccess } from '../updates/access-events.js'
import type { Actor } from '../updates/audit.js'
import { inOneSnapshot } from '../updates/read.js'
import { operatorActor } from './operator.js'
import { Refusal } from './refusal.js'
import { scan } from './scan.js'

/** A stored secret that cannot be decrypted, or does not match its redaction. */
export interface SecretFinding {
  /** `the deployment key`, or `the header X-Key of tool 7`. */
  place: string
  /** The id of its key; null for a missing secret. */
  key: string | null
  problem: 'key_missing' | 'does_not_open' | 'other_value' | 'not_there'
}

const VALUES_AT_ONCE = 500
const SEALED = ['key_id as keyId', 'nonce', 'ciphertext'] as const

/**
 * Decrypts every stored secret and compares it with its redaction, which finds damaged, swapped and outdated values. Returns these
 * findings, the keys of the ring and of stored secrets, and the number of header values per key.
 */
export async function keyStatus(db: Kysely<Tables>, ring: KeyRing) {
  const findings: SecretFinding[] = []
  const counts = new Map([...ring.keys.keys()].map(id => [id, 0]))
  let values = 0
  const tryToOpen = (place: string, key: string, holds: () => boolean) => {
    const problem = problemOf(holds)
    values++
    if (problem !== undefined) findings.push({ place, key, problem })
  }
  const deployment = await inOneSnapshot({ db }, async trx => {
    const deployment = await trx.selectFrom('deployment_key').select(SEALED).executeTakeFirst()
    let deploymentKey: KeyObject | undefined
    if (deployment) {
      counts.set(deployment.keyId, 0)
      tryToOpen('the deployment key', deployment.keyId, () => {
        deploymentKey = openDeploymentKey(ring, deployment)
        return true
      })
    }
    const headers = sql<SealedSecret & HeaderPlace & { fingerprint: Buffer }>`
      select tool_id as "toolId", name as "headerName", key_id as "keyId", nonce, ciphertext, fingerprint
      from tool_header order by tool_id, position`
    for await (const stored of scan(trx, 'headers', headers, VALUES_AT_ONCE)) {
      const { keyId, toolId, headerName } = stored
      counts.set(keyId, (counts.get(keyId) ?? 0) + 1)
      tryToOpen(`the header ${headerName} of tool ${toolId}`, keyId, () => {
        const value = decryptSecret(ring, stored, stored)
        return !deploymentKey || fingerprint(deploymentKey, toolId, headerName, value).equals(stored.fingerprint)
      })
    }
    return deployment
  })
  const opened = values - findings.length
  if (deployment === undefined && values > 0) {
    findings.unshift({ place: 'the deployment key', key: null, problem: 'not_there' })
  }
  const keys = [...counts].map(([id, values]) => ({
    id,
    in_ring: ring.keys.get(id) !== undefined,
    current: id === ring.currentId,
    values,
    deployment_key: deployment?.keyId === id,
  }))
  return { current: ring.currentId, keys, values, opened, findings }
}

function problemOf(holds: () => boolean): SecretFinding['problem'] | undefined {
  try {
    return holds() ? undefined : 'other_value'
  } catch (error) {
    if (error instanceof KeyMissing) return 'key_missing'
    if (error instanceof SecretCorrupt) return 'does_not_open'
    throw error
  }
}

/**
 * Encrypts all stored secrets with the ring's first key, in one transaction per tool, while the service runs. It may be repeated. Tools
 * whose key is missing or does not decrypt a value are skipped and listed. Throws `Refusal` if the deployment key cannot be read, or if the
 * first key does not decrypt what has its id.
 */
export async function rotateKeys(db: Kysely<Tables>, ring: KeyRing, actor: Actor = operatorActor()) {
  const { findings } = await keyStatus(db, ring)
  const wrong = findings.find(({ key, problem }) => key === ring.currentId && problem === 'does_not_open')
  if (wrong) throw new Refusal(`the key "${ring.currentId}" does not open ${wrong.place}; see agentctl keys status`)
  const rotation = {
    values: 0,
    tools: 0,
    deployment_key: await rotateDeploymentKey(db, ring, actor),
    skipped_tools: [] as number[],
    unopened_tools: [] as number[],
  }
  const { rows } = await sql<{ tool_id: number }>`
    select distinct tool_id from tool_header where key_id <> ${ring.currentId} order by tool_id`.execute(db)
  for (const { tool_id } of rows) {
    try {
      const count = await db.transaction().execute(trx => rotateTool(trx, ring, tool_id))
      if (count > 0) rotation.tools++
      rotation.values += count
    } catch (error) {
      if (error instanceof KeyMissing) rotation.skipped_tools.push(tool_id)
      else if (error instanceof SecretCorrupt) rotation.unopened_tools.push(tool_id)
      else throw error
    }
  }
  if (rotation.tools > 0 || rotation.deployment_key) {
    const detail = { key: ring.currentId, ...rotation }
    await joined(db, trx => recordAccess(trx, actor, [{ kind: 'keys', subject: '', action: 'rotated', detail }]))
  }
  return rotation
}

/**
 * Encrypts the values of one tool again under its lock, and returns their number. `secrets_generation` is raised, so that a concurrent
 * update decides again. Throws `KeyMissing` or `SecretCorrupt`.
 */
async function rotateTool(trx: Transaction<Tables>, ring: KeyRing, toolId: number): Promise<number> {
  await sql`select from tool where id = ${toolId} for no key update`.execute(trx)
  const { rows: headers } = await sql<SealedSecret & HeaderPlace & { position: number }>`
    select position, name as "headerName", tool_id as "toolId", key_id as "keyId", nonce, ciphertext
    from tool_header where tool_id = ${toolId} and key_id <> ${ring.currentId}`.execute(trx)
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

/** Encrypts the deployment key again; true if it did. Also records the start of a rotation, which may be killed before its end. */
async function rotateDeploymentKey(db: Kysely<Tables>, ring: KeyRing, actor: Actor): Promise<boolean> {
  return await db.transaction().execute(async trx => {
    const stored = await trx.selectFrom('deployment_key').select(SEALED).forUpdate().executeTakeFirst()
    const isOld = stored !== undefined && stored.keyId !== ring.currentId
    const old = trx.selectFrom('tool_header').select('key_id').where('key_id', '<>', ring.currentId)
    if (isOld || (await old.limit(1).execute()).length > 0) {
      const detail = { key: ring.currentId, deployment_key: isOld }
      await recordAccess(trx, actor, [{ kind: 'keys', subject: '', action: 'rotation begun', detail }])
    }
    if (!isOld) return false
    if (ring.keys.get(stored.keyId) === undefined)
      throw new Refusal(`the deployment key needs the key "${stored.keyId}", which the ring lacks`)
    const { keyId: key_id, ...sealed } = sealDeploymentKey(ring, openDeploymentKey(ring, stored))
    await trx
      .updateTable('deployment_key')
      .set({ key_id, ...sealed })
      .execute()
    return true
  })
}
