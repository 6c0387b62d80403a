import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { signal } from '../faults/cluster.js'
import { treeOf } from './processes.js'

export const FOLDER_PREFIX = 'agents-cluster-'

/** Notes whose folder this is: see `removeLeftovers`. */
export function claim(folder: string): void {
  writeFileSync(join(folder, 'owner'), String(process.pid))
}

/**
 * Removes what an earlier run left that was killed itself: its processes (each has the folder in its command line or environment), its
 * mounted disks and its files. Folders of runs that still go on are left alone.
 */
export function removeLeftovers(): void {
  for (const name of readdirSync(tmpdir()).filter(entry => entry.startsWith(FOLDER_PREFIX))) {
    const folder = join(tmpdir(), name)
    if (!isOwned(folder)) removeFolder(folder)
  }
}

function isOwned(folder: string): boolean {
  try {
    return existsSync(`/proc/${readFileSync(join(folder, 'owner'), 'utf8')}`)
  } catch {
    return false
  }
}

/** Ends every process that works in the folder, and removes it with its mounts. Works without waiting: also at the very end. */
export function removeFolder(folder: string): void {
  for (const pid of processesIn(folder)) signal(pid, 'SIGKILL')
  for (let attempt = 0; attempt < 20 && mountsIn(folder).length > 0; attempt++) {
    for (const mount of mountsIn(folder)) {
      try {
        execFileSync('umount', [mount], { stdio: 'ignore' })
      } catch {
        // A process that was killed lets go of its files a moment later.
        execFileSync('sleep', ['0.2'])
      }
    }
  }
  rmSync(folder, { recursive: true, force: true })
}

function processesIn(folder: string): number[] {
  const own = readdirSync('/proc')
    .map(Number)
    .filter(pid => Number.isInteger(pid) && pid !== process.pid && mentions(pid, folder))
  return [...new Set(own.flatMap(treeOf))]
}

function mentions(pid: number, folder: string): boolean {
  try {
    return ['cmdline', 'environ'].some(file => readFileSync(`/proc/${pid}/${file}`, 'utf8').includes(folder))
  } catch {
    return false
  }
}

function mountsIn(folder: string): string[] {
  const lines = readFileSync('/proc/self/mounts', 'utf8').split('\n')
  return lines.flatMap(line => line.split(' ')[1] ?? []).filter(path => path.startsWith(`${folder}/`))
}
