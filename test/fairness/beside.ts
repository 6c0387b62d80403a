import { readFileSync } from 'node:fs'
import { setPriority } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Test } from 'tap'
import { ServiceProcess } from '../faults/service.js'
import { TEST_SECRET_KEYS } from '../world.js'
import { Callers, percentile, type QuietUpdates, type Served } from './callers.js'
import { QuietCallers } from './quiet.js'
import type { FairnessWorld } from './world.js'

/** In full the slots are longer, and every row of the table has its real size. */
export const FULL = process.env.TEST_CAMPAIGN === 'full'

const SLOT_MS = FULL ? 10_000 : 1_500
const ROUNDS = FULL ? 3 : 1
/** A busy machine can spoil one comparison, but not each of these unless the attack itself does. */
const ATTEMPTS = 4
export const RESIDENT_BYTES_MAX = 400 * 2 ** 20

/** What tests of other things set otherwise: an empty value counts as absent. */
const DEFAULTS = { RATE_LIMIT_PER_MINUTE: '', HEADER_TRIALS_PER_HOUR: '', HISTORY_VERSIONS_MAX: '' }

/** Attacks until `over` is aborted; resolves when nothing of it is under way any more. */
export type Attack = (over: AbortSignal, callers: Callers) => Promise<void>

/** The real process over a world, in the default configuration unless `env` says otherwise. */
export async function fairService(
  t: Test,
  { url }: FairnessWorld,
  env: Record<string, string> = {},
): Promise<ServiceProcess> {
  const service = await ServiceProcess.start({
    DATABASE_URL: url,
    SECRET_KEYS: TEST_SECRET_KEYS,
    ...DEFAULTS,
    ...env,
  })
  t.teardown(async () => {
    await service.stop('SIGKILL')
  })
  return service
}

/** What a comparison has otherwise than most. */
export interface Beside {
  extraMs?: number
  quietFrom?: string
  owners?: FairnessWorld['victims']
  updates?: QuietUpdates
}

/**
 * Quiet callers beside an attack, and without it as the control, in turns. Holds when their p99 beside the attack is at most
 * twice the control's and `extraMs`, none of them is refused or lost, the process stays below 400 MiB, and readiness is true
 * throughout.
 */
export async function requireFairness(
  t: Test,
  world: FairnessWorld,
  service: ServiceProcess,
  attack: Attack,
  { extraMs = 20, quietFrom = '127.0.0.1', updates = {}, owners = world.victims }: Beside = {},
): Promise<void> {
  const quiet = new QuietCallers({ port: service.port, from: quietFrom, owners, updates })
  const hostile = new Callers(service.port)
  const readiness = watchReadiness(service)
  const comparisons: string[] = []
  let isFair = false
  for (let attempt = 0; attempt < ATTEMPTS && !isFair; attempt++) {
    const control: Served[] = []
    const beside: Served[] = []
    for (let round = 0; round < ROUNDS; round++) {
      control.push(await quiet.serve(SLOT_MS))
      beside.push(await besideAttack(attack, hostile, () => quiet.serve(SLOT_MS)))
    }
    requireAllServed(t, beside)
    const [without, during] = [p99Of(control), p99Of(beside)]
    isFair = during <= 2 * without + extraMs
    comparisons.push(`p99 ${Math.round(during)} ms, control ${Math.round(without)} ms`)
  }
  t.ok(isFair, comparisons.join('; '))
  const unready = await readiness.end()
  t.strictSame(unready, [], 'ready throughout')
  const peak = peakResidentBytes(service.pid)
  t.ok(peak < RESIDENT_BYTES_MAX, `${Math.round(peak / 2 ** 20)} MiB resident at most`)
  await quiet.close()
  hostile.close()
}

async function besideAttack(attack: Attack, callers: Callers, work: () => Promise<Served>): Promise<Served> {
  const over = new AbortController()
  takePriority(ATTACKER_NICE)
  const attacking = attack(over.signal, callers)
  await sleep(300) // until it is in full swing
  const served = await work()
  over.abort()
  await attacking
  takePriority(0)
  return served
}

const ATTACKER_NICE = 10

/** Whoever attacks has a machine of their own: the processor goes to the service and the quiet callers first. Root alone may take it back. */
function takePriority(nice: number): void {
  if (process.platform === 'linux' && process.getuid?.() === 0) setPriority(nice) // of this thread
}

/** Holds when every request of the quiet callers was answered with 200. */
export function requireAllServed(t: Test, slots: readonly Served[]): void {
  for (const { statuses, lost } of slots) {
    t.strictSame(
      { statuses: Object.keys(statuses), lost },
      { statuses: ['200'], lost: 0 },
      'every quiet caller is served',
    )
  }
}

/** The time that all but one of a hundred requests of some slots took at most, in ms. */
export function p99Of(slots: readonly Served[]): number {
  return percentile(
    slots.flatMap(({ latenciesMs }) => latenciesMs),
    0.99,
  )
}

/** Asks for readiness until `end`, which answers each time that it was not there. */
export function watchReadiness(service: ServiceProcess): { end(): Promise<unknown[]> } {
  const unready: unknown[] = []
  let isOver = false
  const watching = (async () => {
    while (!isOver) {
      const found = await service.readiness()
      if (found.status !== 200) unready.push(found)
      await sleep(100)
    }
  })()
  return {
    end: async () => {
      isOver = true
      await watching
      return unready
    },
  }
}

/** The most memory that a process ever had resident. */
export function peakResidentBytes(pid: number): number {
  return statusBytes(pid, 'VmHWM')
}

/** The memory that a process has resident now. */
export function residentBytes(pid: number): number {
  return statusBytes(pid, 'VmRSS')
}

function statusBytes(pid: number, name: string): number {
  const text = readFileSync(`/proc/${pid}/status`, 'utf8')
  return Number(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(text)?.[1]) * 1024
}

/** Repeats work until the attack is over, so many at once. What fails or is refused is repeated too. */
export async function repeatedly(
  over: AbortSignal,
  atOnce: number,
  pauseMs: number,
  work: () => Promise<unknown>,
): Promise<void> {
  const run = async () => {
    while (!over.aborted) {
      await work().catch(() => undefined)
      await sleep(pauseMs)
    }
  }
  await Promise.all(Array.from({ length: atOnce }, run))
}
