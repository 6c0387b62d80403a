import { readdirSync, readFileSync } from 'node:fs'

/** Clock ticks of /proc in a second; Linux has had no other value for user space since version 2.6. */
const TICKS_PER_S = 100

/** Processor time of a process since it began, in ms; null where /proc does not say. */
export function processorMs(pid: number): number | null {
  const stat = readStat(pid)
  return stat && ((stat.userTicks + stat.systemTicks) * 1000) / TICKS_PER_S
}

/**
 * Processor time of a process, its living children and those it has waited for, in ms: a PostgreSQL with its sessions. Read
 * again while children end: one that ends between two readings is in neither, or in both, with all that it ever used.
 */
export function familyProcessorMs(pid: number): number | null {
  for (;;) {
    const parent = readStat(pid)
    const pids = readdirSync('/proc').map(Number).filter(Number.isInteger)
    const children = pids.map(readStat).filter(stat => stat !== null && stat.parent === pid)
    const after = readStat(pid)
    if (parent === null || after === null) return null
    if (parent.reapedTicks !== after.reapedTicks) continue
    const ticks =
      parent.userTicks +
      parent.systemTicks +
      parent.reapedTicks +
      children.reduce((sum, child) => sum + (child ? child.userTicks + child.systemTicks : 0), 0)
    return (ticks * 1000) / TICKS_PER_S
  }
}

/** The parent of a process, or null. */
export function parentOf(pid: number): number | null {
  return readStat(pid)?.parent ?? null
}

/** Resident memory of a process in MiB, or null. */
export function residentMib(pid: number): number | null {
  try {
    const [, kib] = /^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? []
    return kib === undefined ? null : Number(kib) / 1024
  } catch {
    return null
  }
}

function readStat(pid: number) {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'latin1')
    // The name in brackets may hold blanks; behind it come state, parent, ... (proc_pid_stat(5)).
    const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
    return {
      parent: Number(fields[1]),
      userTicks: Number(fields[11]),
      systemTicks: Number(fields[12]),
      reapedTicks: Number(fields[13]) + Number(fields[14]),
    }
  } catch {
    return null
  }
}

/** The value below which the share `part` of some ascending values lies. */
export function percentile(ascending: ArrayLike<number>, part: number): number {
  return ascending[Math.min(ascending.length - 1, Math.floor(ascending.length * part))] ?? Number.NaN
}

/** The middle one of some values; null when there are none. */
export function median(values: readonly (number | null)[]): number | null {
  const known = values.filter(value => value !== null && !Number.isNaN(value)).sort((a, b) => (a ?? 0) - (b ?? 0))
  if (known.length === 0) return null
  const middle = known.length >> 1
  return known.length % 2 === 1 ? (known[middle] ?? null) : ((known[middle - 1] ?? 0) + (known[middle] ?? 0)) / 2
}

/** The smallest and the largest of some values. */
export type Spread = [smallest: number, largest: number]

/** The spread of what is there and finite; null when nothing is. */
export function spread(values: readonly (number | null)[]): Spread | null {
  const known = values.filter(value => Number.isFinite(value)) as number[] // null is not finite
  return known.length === 0 ? null : [Math.min(...known), Math.max(...known)]
}
