import type { KeyObject } from 'node:crypto'
import { type Kysely, sql } from 'kysely'
import type { Database } from '../db/tables.js'
import { joined } from '../db/transaction.js'
import {
  decryptSecret,
  encryptSecret,
  isSealedByOldKey,
  KeyMissing,
  openDeploymentKey,
  SecretCorrupt,
  sealDeploymentKey,
} from '../secrets/cipher.js'
import type { KeyRing } from '../secrets/key-ring.js'
import { fingerprint } from '../secrets/mask.js'
import { recordAccess } from '../updates/access-events.js'
import type { Actor } from '../updates/audit.js'
import { operatorActor } from './operator.js'
import { Refusal } from './refusal.js'

/** A stored secret that does not open where it stands, or is not the one that its mask was made of. */
export interface SecretFinding {
  /** `the deployment key`, or `the header X-Key of tool 7`. */
  place: string
  /** The id of the key that it is sealed with; null for what is not there. */
  key: string | null
  problem: 'key_missing' | 'does_not_open' | 'other_value' | 'not_there'
}

/** The keys of the ring and of stored secrets, with how many header values each seals; and whether every secret opens. */
export interface KeyStatus {
  current: string
  keys: { id: string; in_ring: boolean; current: boolean; values: number; deployment_key: boolean }[]
  values: number
  opened: number
  findings: SecretFinding[]
}

const VALUES_AT_ONCE = 500

/**
 * Opens every stored secret in its place, a page at a time, and compares it with its mask: finds a ciphertext that was damaged,
 * swapped, or put back by SQL. Changes nothing.
 */
export async function keyStatus(db: Kysely<Database>, ring: KeyRing): Promise<KeyStatus> {
  const findings: SecretFinding[] = []
  const counts = new Map(ring.ids.map(id => [id, 0]))
  let values = 0
  const tryToOpen = (place: string, key: string, holds: () => boolean) => {
    const problem = problemOf(holds)
    values++
    if (problem !== undefined) findings.push({ place, key, problem })
  }
  const sealed = ['key_id as keyId', 'nonce', 'ciphertext'] as const
  const deployment = await db.selectFrom('deployment_key').select(sealed).executeTakeFirst()
  let deploymentKey: KeyObject | undefined
  if (deployment) {
    counts.set(deployment.keyId, 0)
    tryToOpen('the deployment key', deployment.keyId, () => {
      deploymentKey = openDeploymentKey(ring, deployment)
      return true
    })
  }
  let page: { toolId: number; position: number }[] = [{ toolId: 0, position: -1 }]
  for (let after = page[0]; after !== undefined; after = page.at(-1)) {
    const headers = await db
      .selectFrom('tool_header')
      .select([...sealed, 'tool_id as toolId', 'position', 'name as headerName', 'fingerprint'])
      .where(sql<boolean>`(tool_id, position) > (${after.toolId}::integer, ${after.position}::integer)`)
      .orderBy('tool_id')
      .orderBy('position')
      .limit(VALUES_AT_ONCE)
      .execute()
    for (const stored of headers) {
      const { keyId, toolId, headerName } = stored
      counts.set(keyId, (counts.get(keyId) ?? 0) + 1)
      tryToOpen(`the header ${headerName} of tool ${toolId}`, keyId, () => {
        const value = decryptSecret(ring, stored, stored)
        return !deploymentKey || fingerprint(deploymentKey, toolId, headerName, value).equals(stored.fingerprint)
      })
    }
    page = headers
  }
  const opened = values - findings.length
  if (deployment === undefined && values > 0) {
    findings.unshift({ place: 'the deployment key', key: null, problem: 'not_there' })
  }
  const keys = [...counts].map(([id, values]) => ({
    id,
    in_ring: ring.key(id) !== undefined,
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
 * Encrypts every stored secret anew with the ring's first key, under traffic: one small transaction for each tool. It may be
 * interrupted and started again. Tools are left, and named, where a key is missing or does not open a value. Throws `Refusal` when the deployment key cannot be read, and when the first key does not open
 * what is sealed under its id: another key has this id now.
 */
export async function rotateKeys(db: Kysely<Database>, ring: KeyRing, actor: Actor = operatorActor()) {
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
      const count = await rotateTool(db, ring, tool_id)
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
 * Answers how many values were encrypted anew, under the tool's lock; its `secrets_generation` moves, so that an update that
 * keeps a value decides again. Throws `KeyMissing` or `SecretCorrupt`; then nothing was changed.
 */
async function rotateTool(db: Kysely<Database>, ring: KeyRing, toolId: number): Promise<number> {
  return await db.transaction().execute(async trx => {
    await trx.selectFrom('tool').select('id').where('id', '=', toolId).forNoKeyUpdate().execute()
    const headers = await trx
      .selectFrom('tool_header')
      .select(['position', 'name as headerName', 'tool_id as toolId', 'key_id as keyId', 'nonce', 'ciphertext'])
      .where('tool_id', '=', toolId)
      .where('key_id', '<>', ring.currentId)
      .execute()
    if (headers.length === 0) return 0
    const sealed = headers.map(header => encryptSecret(ring, decryptSecret(ring, header, header), header))
    await sql`
      update tool_header h set key_id = ${ring.currentId}, nonce = s.nonce, ciphertext = s.ciphertext
      from unnest(${headers.map(({ position }) => position)}::integer[], ${sealed.map(({ nonce }) => nonce)}::bytea[],
        ${sealed.map(({ ciphertext }) => ciphertext)}::bytea[]) s (position, nonce, ciphertext)
      where h.tool_id = ${toolId} and h.position = s.position`.execute(trx)
    await trx
      .updateTable('tool')
      .set(eb => ({ secrets_generation: eb('secrets_generation', '+', 1) }))
      .where('id', '=', toolId)
      .execute()
    return headers.length
  })
}

/** Also notes that a rotation begins, as it may be killed before its end. */
async function rotateDeploymentKey(db: Kysely<Database>, ring: KeyRing, actor: Actor): Promise<boolean> {
  return await db.transaction().execute(async trx => {
    const stored = await trx
      .selectFrom('deployment_key')
      .select(['key_id as keyId', 'nonce', 'ciphertext'])
      .forUpdate()
      .executeTakeFirst()
    const isOld = stored !== undefined && isSealedByOldKey(ring, stored)
    const old = trx.selectFrom('tool_header').select('key_id').where('key_id', '<>', ring.currentId)
    if (isOld || (await old.limit(1).execute()).length > 0) {
      const detail = { key: ring.currentId, deployment_key: isOld }
      await recordAccess(trx, actor, [{ kind: 'keys', subject: '', action: 'rotation begun', detail }])
    }
    if (!isOld) return false
    if (ring.key(stored.keyId) === undefined)
      throw new Refusal(`the deployment key needs the key "${stored.keyId}", which the ring lacks`)
    const { keyId: key_id, ...sealed } = sealDeploymentKey(ring, openDeploymentKey(ring, stored))
    await trx
      .updateTable('deployment_key')
      .set({ key_id, ...sealed })
      .execute()
    return true
  })
}
