import { randomUUID } from 'node:crypto'
import { existsSync, linkSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { makeFolder } from '../db/embedded/home.js'
import { generateKey, InvalidKeyRing, type KeyRing, parseKeyRing } from './key-ring.js'

/** The key ring is missing or unusable. The message says what to do. */
export class KeyRingMissing extends Error {}

interface Settings {
  secrets: { keys?: string; keysFile?: string }
  database: { url?: string; dataDir: string }
}

/**
 * Returns the configured key ring. By default, the service uses a key file next to the data of the embedded database, and creates the file if it
 * is missing. An external database has no default, because a key file could be lost with the container. Throws `KeyRingMissing`.
 */
export function configuredKeyRing({ secrets, database }: Settings): KeyRing {
  try {
    if (secrets.keys !== undefined) return parseKeyRing(secrets.keys)
    if (secrets.keysFile !== undefined) return parseKeyRing(readFileSync(secrets.keysFile, 'utf8'))
    if (database.url === undefined) return parseKeyRing(ownKeyFile(database.dataDir))
  } catch (error) {
    const variable = secrets.keys === undefined ? secrets.keysFile && 'SECRET_KEYS_FILE' : 'SECRET_KEYS'
    const place = variable ?? `the key file ${keyFileIn(database.dataDir)}`
    if (error instanceof InvalidKeyRing) throw new KeyRingMissing(`${place}: ${error.message}`)
    if (!(error instanceof Error && 'code' in error)) throw error
    const reason = error.message.split(', ', 1)[0] // omits the path, because the variable may contain a key instead of a path
    throw new KeyRingMissing(
      variable === undefined
        ? `${place} cannot be read or created (${reason}): set DATA_DIR to a folder that this user can write to`
        : `${place}: the file cannot be read (${reason}). It must contain keys in the form id:base64. Create a key with: agentctl keys generate`,
    )
  }
  throw new KeyRingMissing(
    'with an external database, the service needs keys to encrypt the secrets of tools: set SECRET_KEYS or SECRET_KEYS_FILE. ' +
      'Create a key with: agentctl keys generate',
  )
}

const keyFileIn = (dataDir: string) => join(dataDir, 'secret-keys')

/** Reads the key file of the embedded database. A missing file is first written under another name, so that no process reads an incomplete file. */
function ownKeyFile(dataDir: string): string {
  const path = keyFileIn(dataDir)
  if (!existsSync(path)) {
    makeFolder(dataDir)
    // A random name, because process ids repeat in containers and a killed process leaves its file behind.
    const draft = `${path}.${randomUUID()}`
    try {
      writeFileSync(draft, `${generateKey()}\n`, { flag: 'wx', mode: 0o600, flush: true })
      linkSync(draft, path)
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error // EEXIST: another process has created the file, and both use its key
    } finally {
      rmSync(draft, { force: true })
    }
  }
  return readFileSync(path, 'utf8')
}
