import { existsSync } from 'node:fs'
import { chmod, mkdir } from 'node:fs/promises'
import { dirname } from 'node:path'

/**
 * Makes a folder and those above it where they are missing. What it makes lets the account of the embedded server pass through,
 * whatever the umask says. Each step is one call: Node's own recursion never ends below /proc, which takes no folder.
 * Throws the system's error.
 */
export async function makeDataDir(path: string): Promise<void> {
  if (existsSync(path)) return
  await makeDataDir(dirname(path))
  try {
    await mkdir(path)
    await chmod(path, 0o711)
  } catch (error) {
    const wasMade = error instanceof Error && 'code' in error && error.code === 'EEXIST'
    if (!wasMade) throw error // else by another process at the same time
  }
}
