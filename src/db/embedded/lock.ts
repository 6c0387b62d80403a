import { randomUUID } from 'node:crypto'
import { closeSync, constants, fstatSync, linkSync, openSync, readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Account, EmbeddedUnavailable, errorCode, runAs } from './account.js'

const POLL_MS = 10

/**
 * Takes the lock of a folder, which dies with the process that holds it.
 *
 * Node has no flock. A FIFO gives the same: its holder keeps it open for reading, so whoever opens it for writing learns from
 * the kernel whether the holder lives, whatever became of its process id. The lock is the FIFO with the highest number; it is
 * never removed, only followed by the next one, because removing it would let two processes follow different ones.
 * @param folder belongs to `account`, which makes the FIFO
 * @param deadline time in ms since the epoch
 * @returns gives the lock back
 * @throws EmbeddedUnavailable after the deadline
 */
export async function takeLock(folder: string, account: Account, deadline: number): Promise<() => void> {
  for (;;) {
    const top = highest(folder)
    if (top === 0 || probeFifo(lockPath(folder, top)) === 'unread') {
      const held = await follow(folder, account, top)
      if (held !== undefined) return () => closeSync(held)
    }
    if (Date.now() > deadline)
      throw new EmbeddedUnavailable(`another process has been starting it in ${folder} for too long`)
    await sleep(POLL_MS)
  }
}

/** Whether a process holds this FIFO open for reading. Nothing is written to it. */
export function probeFifo(path: string): 'read' | 'unread' | 'missing' {
  try {
    const fd = openForWriting(path)
    if (fd === undefined) return 'unread'
    closeSync(fd)
    return 'read'
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return 'missing'
    throw error
  }
}

/** Opens a FIFO for writing, or nothing when nobody reads it. */
export function openForWriting(path: string): number | undefined {
  try {
    return openFifo(path, constants.O_WRONLY)
  } catch (error) {
    if (errorCode(error) === 'ENXIO') return undefined
    throw error
  }
}

/** Opens a FIFO without waiting for its other side, and nothing else: another user may own the folder that root looks into. */
export function openFifo(path: string, access: number): number {
  const fd = openSync(path, access | constants.O_NONBLOCK | constants.O_NOFOLLOW)
  if (fstatSync(fd).isFIFO()) return fd
  closeSync(fd)
  throw new EmbeddedUnavailable(`${path} is not a FIFO`)
}

/** Publishes the next lock, already held. Undefined when another process was faster. */
async function follow(folder: string, account: Account, top: number): Promise<number | undefined> {
  const unpublished = join(folder, `lock-new-${randomUUID()}`)
  const { code, stderr, failed } = await runAs(account, 'mkfifo', [unpublished])
  if (code !== 0) throw new EmbeddedUnavailable(`mkfifo in ${folder} failed: ${failed ?? stderr.trim()}`)
  let fd: number | undefined
  let won = false
  try {
    fd = openFifo(unpublished, constants.O_RDONLY)
    linkSync(unpublished, lockPath(folder, top + 1))
    // A slow process may have followed a lock that has been followed and cleared away since: then there is a higher one.
    if (highest(folder) === top + 1) {
      clear(folder, top + 1)
      won = true
    }
  } catch (error) {
    if (!['EEXIST', 'ENOENT'].includes(errorCode(error) ?? '')) throw error
  } finally {
    rmSync(unpublished, { force: true })
    if (fd !== undefined && !won) closeSync(fd)
  }
  return won ? fd : undefined
}

/** Removes what earlier holders left. A competitor whose unpublished FIFO vanishes here simply tries again. */
function clear(folder: string, current: number): void {
  for (const name of readdirSync(folder)) {
    const number = numberOf(name)
    if (name.startsWith('lock-new-') || (number !== undefined && number < current))
      rmSync(join(folder, name), { force: true })
  }
}

function highest(folder: string): number {
  return readdirSync(folder).reduce((top, name) => Math.max(top, numberOf(name) ?? 0), 0)
}

function numberOf(name: string): number | undefined {
  const [, digits] = /^lock\.(\d+)$/.exec(name) ?? []
  return digits === undefined ? undefined : Number(digits)
}

function lockPath(folder: string, number: number): string {
  return join(folder, `lock.${number}`)
}
