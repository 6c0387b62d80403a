import { randomUUID } from 'node:crypto'
import { existsSync, lstatSync, readFileSync, statSync } from 'node:fs'
import { link, rm, writeFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import type { Config } from '../config.js'
import { makeDataDir } from '../db/embedded/home.js'
import { generateKey, InvalidKeyRing, type KeyRing, parseKeyRing } from './key-ring.js'

/** The key ring is missing or unusable. The message has the remedy. */
export class KeyRingMissing extends Error {}

/** The key file of the embedded database cannot be created: the disk is full. */
export class KeyFileDiskFull extends KeyRingMissing {}

const FILE_NAME = 'secret-keys'

/**
 * The key ring of the configuration. With the embedded database only, it defaults to a file next to its data, which is created if missing;
 * for an external database such a file could be lost with the container. Throws `KeyRingMissing`.
 */
export async function configuredKeyRing({ secrets, database }: Config): Promise<KeyRing> {
  try {
    if (secrets.keys !== undefined) return parseKeyRing(secrets.keys)
    if (secrets.keysFile !== undefined) return parseKeyRing(readFileSync(secrets.keysFile, 'utf8'))
    if (database.url === undefined) return parseKeyRing(await ownKeyFile(database.dataDir))
  } catch (error) {
    if (error instanceof InvalidKeyRing) throw new KeyRingMissing(error.message)
    if (error instanceof Error && 'code' in error && error.code === 'ENOSPC')
      throw new KeyFileDiskFull(`the disk of ${database.dataDir} is full; make space there and start again`)
    if (error instanceof Error && 'code' in error)
      throw new KeyRingMissing(fileFault(secrets.keysFile, database.dataDir, error))
    throw error
  }
  throw new KeyRingMissing(
    'an external database needs a key ring for the secrets of tools: set SECRET_KEYS or SECRET_KEYS_FILE. ' +
      'A new key is made by: agentctl keys generate',
  )
}

/** Warnings for the log about an unsafe key file: anyone who can read it can read every secret. None if the keys are in a variable. */
export function keyFileWarnings({ secrets, database }: Config): string[] {
  const path = secrets.keysFile ?? join(database.dataDir, FILE_NAME)
  if (secrets.keys !== undefined || (secrets.keysFile === undefined && database.url !== undefined)) return []
  const name = secrets.keysFile === undefined ? `the key file ${path}` : 'the file of SECRET_KEYS_FILE'
  const { uid, mode } = statSync(path)
  const self = process.geteuid?.() ?? uid
  // Files that systemd and Kubernetes provide belong to root and are readable by the service's group.
  const isHandedOver = uid === 0 && self !== 0 && (mode & 0o077) === 0o040
  return [
    ...(lstatSync(path).isSymbolicLink() ? [`${name} is a link: name the file itself`] : []),
    ...(uid !== self && uid !== 0
      ? [`${name} belongs to another user: chown it to the one that runs the service`]
      : []),
    ...((mode & 0o077) !== 0 && !isHandedOver ? [`${name} is open to other users: chmod 600`] : []),
  ]
}

/** Does not show the value of SECRET_KEYS_FILE, because it may be the key itself by mistake. */
function fileFault(keysFile: string | undefined, dataDir: string, error: Error): string {
  const reason = error.message.split(', ', 1)[0] // the rest of a system error is the path
  if (keysFile === undefined) {
    const path = join(dataDir, FILE_NAME)
    return `the key file ${path} cannot be read or made (${reason}): set DATA_DIR to a folder that this user can write`
  }
  const advice = 'It holds one id:base64 a line; a new one is made by: agentctl keys generate'
  return `SECRET_KEYS_FILE: the file cannot be read (${reason}). ${advice}`
}

/** Reads the key file of the embedded database, or creates it: written under a temporary name, then linked, so that it is never incomplete. */
async function ownKeyFile(dataDir: string): Promise<string> {
  const path = join(dataDir, FILE_NAME)
  if (!existsSync(path)) {
    await makeDataDir(resolve(dataDir))
    // A random name: process ids repeat in containers, and a killed process leaves its draft.
    const draft = `${path}.${randomUUID()}`
    try {
      await writeFile(draft, `${generateKey()}\n`, { flag: 'wx', mode: 0o600, flush: true })
      // If two processes start at once, `link` fails for the second, so that both use the same key.
      await link(draft, path).catch(error => {
        if (error.code !== 'EEXIST') throw error
      })
    } finally {
      await rm(draft, { force: true })
    }
  }
  return readFileSync(path, 'utf8')
}
