import type { KeyObject } from 'node:crypto'
import { chmodSync, chownSync, existsSync, lstatSync, realpathSync, renameSync, rmSync, statSync } from 'node:fs'
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
import { generateKey, type KeyRing, parseKeyRing } from '../secrets/key-ring.js'
import { fingerprint } from '../secrets/mask.js'
import { recordAccess } from '../updates/access-events.js'
import type { Actor } from '../updates/audit.js'
import { operatorActor } from './operator.js'
import { Refusal } from './refusal.js'
import { readText, writeText } from './source.js'

/** How many stored secrets each key seals, and what cannot be read. */
export interface KeyStatus {
  current: string
  keys: { id: string; in_ring: boolean; current: boolean; values: number; deployment_key: boolean }[]
  /** Tools with a header whose key is missing from the ring. */
  tools_without_key: { id: number; name: string; keys: string[] }[]
  /** Keys of the ring that do not open what is stored under their id. */
  unopened: UnopenedKey[]
}

/** A key that does not open what was tried: another key has its id now, or the secret was damaged. */
export interface UnopenedKey {
  key: string
  tried: string
}

/** Counts the stored secrets by key, tries one of each, and names the tools whose key is missing. */
export async function keyStatus(db: Kysely<Database>, ring: KeyRing): Promise<KeyStatus> {
  const counted = await db
    .selectFrom('tool_header')
    .select(['key_id', sql<number>`count(*)::integer`.as('values')])
    .groupBy('key_id')
    .execute()
  const counts = new Map(counted.map(row => [row.key_id, row.values]))
  const deployment = await db.selectFrom('deployment_key').select('key_id').executeTakeFirst()
  const ids = new Set([...ring.ids, ...counts.keys(), ...(deployment ? [deployment.key_id] : [])])
  const { rows } = await sql<{ id: number; name: string; keys: string[] }>`
    select t.id, t.name, array_agg(distinct h.key_id order by h.key_id) as keys
    from tool_header h join tool t on t.id = h.tool_id
    where h.key_id <> all(${ring.ids}::text[]) group by t.id order by t.id`.execute(db)
  return {
    current: ring.currentId,
    keys: [...ids].map(id => ({
      id,
      in_ring: ring.key(id) !== undefined,
      current: id === ring.currentId,
      values: counts.get(id) ?? 0,
      deployment_key: deployment?.key_id === id,
    })),
    tools_without_key: rows,
    unopened: await unopenedKeys(db, ring),
  }
}

/** Tries each key of the ring on the deployment key, if it seals that, and on one header value. */
async function unopenedKeys(db: Kysely<Database>, ring: KeyRing): Promise<UnopenedKey[]> {
  const sealed = ['key_id as keyId', 'nonce', 'ciphertext'] as const
  const deployment = await db.selectFrom('deployment_key').select(sealed).where('key_id', 'in', ring.ids).execute()
  const headers = await db
    .selectFrom('tool_header')
    .distinctOn('key_id')
    .select([...sealed, 'tool_id as toolId', 'name as headerName'])
    .where('key_id', 'in', ring.ids)
    .orderBy('key_id')
    .orderBy('tool_id')
    .execute()
  const tries = [
    ...deployment.map(stored => ({
      key: stored.keyId,
      tried: 'the deployment key',
      open: () => openDeploymentKey(ring, stored),
    })),
    ...headers.map(stored => ({
      key: stored.keyId,
      tried: `the header ${stored.headerName} of tool ${stored.toolId}`,
      open: () => decryptSecret(ring, stored, stored),
    })),
  ]
  return tries.filter(({ open }) => !opens(open)).map(({ key, tried }) => ({ key, tried }))
}

function opens(open: () => unknown): boolean {
  try {
    open()
    return true
  } catch (error) {
    if (error instanceof SecretCorrupt) return false
    throw error
  }
}

/** What is wrong with a key, and what helps. */
export function unopenedText({ key, tried }: UnopenedKey): string {
  return (
    `the key "${key}" does not open ${tried}: another key has this id now, or the secret was damaged. ` +
    `Put the right key under "${key}" in the ring; a secret whose key is lost has to be sent anew`
  )
}

/** A stored secret that does not open where it stands, or is not the one that its mask was made of. */
export interface SecretFinding {
  /** `the deployment key`, or `the header X-Key of tool 7`. */
  place: string
  /** The id of the key that it is sealed with; null for what is not there. */
  key: string | null
  problem: 'key_missing' | 'does_not_open' | 'other_value' | 'not_there'
}

export interface KeyVerification {
  values: number
  opened: number
  findings: SecretFinding[]
}

const VALUES_AT_ONCE = 500

/**
 * Opens every stored secret in its place, a page at a time: a ciphertext that was damaged, or swapped with that of another header
 * or tool, does not open; an earlier one of the same header, put back by SQL, is not the one that its mask was made of. Values that change meanwhile are seen as they are when their page is read. Changes nothing.
 */
export async function verifyKeys(db: Kysely<Database>, ring: KeyRing): Promise<KeyVerification> {
  const result: KeyVerification = { values: 0, opened: 0, findings: [] }
  const tryToOpen = (place: string, key: string, holds: () => boolean) => {
    result.values++
    const problem = ring.key(key) === undefined ? 'key_missing' : problemOf(holds)
    if (problem === undefined) result.opened++
    else result.findings.push({ place, key, problem })
  }
  const sealed = ['key_id as keyId', 'nonce', 'ciphertext'] as const
  const deployment = await db.selectFrom('deployment_key').select(sealed).executeTakeFirst()
  let deploymentKey: KeyObject | undefined
  if (deployment) {
    tryToOpen('the deployment key', deployment.keyId, () => {
      deploymentKey = openDeploymentKey(ring, deployment)
      return true
    })
  }
  for (let after = { toolId: 0, position: -1 }; ; ) {
    const page = await db
      .selectFrom('tool_header')
      .select([...sealed, 'tool_id as toolId', 'position', 'name as headerName', 'fingerprint'])
      .where(sql<boolean>`(tool_id, position) > (${after.toolId}::integer, ${after.position}::integer)`)
      .orderBy('tool_id')
      .orderBy('position')
      .limit(VALUES_AT_ONCE)
      .execute()
    for (const stored of page) {
      const { toolId, headerName } = stored
      tryToOpen(`the header ${headerName} of tool ${toolId}`, stored.keyId, () => {
        const value = decryptSecret(ring, stored, stored)
        return (
          deploymentKey === undefined ||
          fingerprint(deploymentKey, toolId, headerName, value).equals(stored.fingerprint)
        )
      })
    }
    if (page.length > 0 && after.toolId === 0 && deployment === undefined) {
      result.findings.push({ place: 'the deployment key', key: null, problem: 'not_there' })
    }
    const last = page.at(-1)
    if (last === undefined) return result
    after = last
  }
}

function problemOf(holds: () => boolean): SecretFinding['problem'] | undefined {
  try {
    return holds() ? undefined : 'other_value'
  } catch (error) {
    if (error instanceof SecretCorrupt) return 'does_not_open'
    throw error
  }
}

export interface Rotation {
  values: number
  tools: number
  deployment_key: boolean
  /** Tools left as they are, as a key that their secrets need is missing. */
  skipped_tools: number[]
  /** Tools left as they are, as the key of a secret does not open it. */
  unopened_tools: number[]
}

const TOOLS_AT_ONCE = 200

/**
 * Encrypts every stored secret anew with the ring's first key, under traffic: one small transaction for each tool, which locks the
 * tool's row and moves its `secrets_generation`, so that a writer that keeps a value decides again. Interrupted, it goes on
 * where it was when it is started again: what is done needs nothing. Throws `Refusal` when the deployment key cannot be read, and
 * when the first key is not the one that sealed before under its id: it would make two kinds of secrets that no ring can open.
 */
export async function rotateKeys(
  db: Kysely<Database>,
  ring: KeyRing,
  actor: Actor = operatorActor(),
): Promise<Rotation> {
  const wrong = (await unopenedKeys(db, ring)).find(({ key }) => key === ring.currentId)
  if (wrong) throw new Refusal(unopenedText(wrong))
  const rotation: Rotation = {
    values: 0,
    tools: 0,
    deployment_key: await rotateDeploymentKey(db, ring, await countOld(db, ring), actor),
    skipped_tools: [],
    unopened_tools: [],
  }
  for (let after = 0; ; ) {
    const { rows } = await sql<{ tool_id: number }>`
      select distinct tool_id from tool_header where key_id <> ${ring.currentId} and tool_id > ${after}
      order by tool_id limit ${TOOLS_AT_ONCE}::integer`.execute(db)
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
    const last = rows.at(-1)
    if (last === undefined) break
    after = last.tool_id
  }
  if (rotation.tools > 0 || rotation.deployment_key) {
    const detail = { key: ring.currentId, ...rotation }
    await joined(db, trx => recordAccess(trx, actor, [{ kind: 'keys', subject: '', action: 'rotated', detail }]))
  }
  return rotation
}

async function countOld(db: Kysely<Database>, ring: KeyRing): Promise<number> {
  const row = await db
    .selectFrom('tool_header')
    .select(sql<number>`count(*)::integer`.as('count'))
    .where('key_id', '<>', ring.currentId)
    .executeTakeFirst()
  return row?.count ?? 0
}

/** Answers how many values were encrypted anew. Throws `KeyMissing` or `SecretCorrupt`; then nothing was changed. */
async function rotateTool(db: Kysely<Database>, ring: KeyRing, toolId: number): Promise<number> {
  return await db.transaction().execute(async trx => {
    await trx.selectFrom('tool').select('id').where('id', '=', toolId).forNoKeyUpdate().execute()
    const headers = await trx
      .selectFrom('tool_header')
      .select(['position', 'name', 'key_id as keyId', 'nonce', 'ciphertext'])
      .where('tool_id', '=', toolId)
      .execute()
    const old = headers.filter(header => isSealedByOldKey(ring, header))
    if (old.length === 0) return 0
    const sealed = old.map(header => {
      const place = { toolId, headerName: header.name }
      const { keyId, nonce, ciphertext } = encryptSecret(ring, decryptSecret(ring, header, place), place)
      return {
        position: header.position,
        key_id: keyId,
        nonce: nonce.toString('hex'),
        ciphertext: ciphertext.toString('hex'),
      }
    })
    await sql`
      update tool_header h set key_id = s.key_id, nonce = decode(s.nonce, 'hex'), ciphertext = decode(s.ciphertext, 'hex')
      from jsonb_to_recordset(${JSON.stringify(sealed)}::jsonb) s (position integer, key_id text, nonce text, ciphertext text)
      where h.tool_id = ${toolId} and h.position = s.position`.execute(trx)
    await trx
      .updateTable('tool')
      .set(eb => ({ secrets_generation: eb('secrets_generation', '+', 1) }))
      .where('id', '=', toolId)
      .execute()
    return old.length
  })
}

/** Also notes, before anything is sealed anew, that a rotation of so many values begins: it may be killed before its end. */
async function rotateDeploymentKey(
  db: Kysely<Database>,
  ring: KeyRing,
  values: number,
  actor: Actor,
): Promise<boolean> {
  return await db.transaction().execute(async trx => {
    const stored = await trx
      .selectFrom('deployment_key')
      .select(['key_id as keyId', 'nonce', 'ciphertext'])
      .forUpdate()
      .executeTakeFirst()
    const isOld = stored !== undefined && isSealedByOldKey(ring, stored)
    if (isOld || values > 0) {
      const detail = { key: ring.currentId, values, deployment_key: isOld }
      await recordAccess(trx, actor, [{ kind: 'keys', subject: '', action: 'rotation begun', detail }])
    }
    if (!isOld) return false
    const { keyId, nonce, ciphertext } = sealDeploymentKey(ring, openedDeploymentKey(ring, stored))
    await trx.updateTable('deployment_key').set({ key_id: keyId, nonce, ciphertext }).execute()
    return true
  })
}

function openedDeploymentKey(ring: KeyRing, stored: Parameters<typeof openDeploymentKey>[1]) {
  try {
    return openDeploymentKey(ring, stored)
  } catch (error) {
    if (error instanceof KeyMissing)
      throw new Refusal(`the deployment key needs the key "${error.keyId}", which the ring lacks`)
    throw error
  }
}

/**
 * Puts a new key first in a key file, which keeps its owner and mode; a missing file is made with mode 0600. A link is followed.
 * The file is replaced in one step, and nothing is left beside it on failure. Answers the new key's id. Throws `Refusal`.
 */
export function addKeyToFile(given: string): string {
  const entry = generateKey()
  const path = behindLinks(given)
  const before = path === undefined ? '' : readText(path)
  if (before.trim() !== '') parseKeyRing(before)
  const draft = `${path ?? given}.${process.pid}`
  try {
    writeText(draft, `${entry}\n${before}`, { mode: 0o600, flag: 'wx' })
    if (path !== undefined) {
      const { uid, gid, mode } = statSync(path)
      chownSync(draft, uid, gid)
      chmodSync(draft, mode)
    }
    renameSync(draft, path ?? given)
  } catch (error) {
    rmSync(draft, { force: true })
    if (!(error instanceof Error && 'syscall' in error)) throw error
    const { code, syscall } = error as NodeJS.ErrnoException // what node:fs throws
    throw new Refusal(
      `${given} cannot be replaced with its owner and mode kept (${code}, ${syscall}): run this as its owner`,
    )
  }
  return entry.slice(0, entry.indexOf(':'))
}

/** The file that a path leads to; undefined where there is none yet. Throws `Refusal` for a link to nothing. */
function behindLinks(path: string): string | undefined {
  if (existsSync(path)) return realpathSync(path)
  if (lstatSync(path, { throwIfNoEntry: false }) === undefined) return undefined
  throw new Refusal(`${path} is a link that leads to a file that is not there`)
}
