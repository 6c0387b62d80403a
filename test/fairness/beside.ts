import { readFileSync } from 'node:fs'
import { setPriority } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Test } from 'tap'
import { ServiceProcess } from '../faults/service.js'
import { processorSlowness } from '../slowness.js'
import { TEST_SECRET_KEYS } from '../world.js'
import { Callers, percentile, type QuietUpdates, type Served } from './callers.js'
import { QuietCallers, type Slot } from './quiet.js'
import type { FairnessWorld, Owner } from './world.js'

/** In full the slots are longer, and every row of the table has its real size. */
export const FULL = process.env.TEST_CAMPAIGN === 'full'

const SLOT_MS = FULL ? 3_000 : 1_500
const ROUNDS = FULL ? 2 : 1
/** A busy machine can spoil one comparison, but not each of these unless the attack itself does. */
const ATTEMPTS = 4
/** A fresh service is slow at first: the control has what is attacked, one that is warm. */
const WARM_MS = 400
/** Whoever uses less than this of one processor beside a comparison leaves it as it is. */
const OTHERS_PROCESSORS_MAX = 0.1
/** A balancer waits for five seconds; with other work on the machine what counts is the answer. */
const READINESS_WITHIN_MS = FULL ? 5_000 : 60_000
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
 * twice the control's and `extraMs` (see `compared`), none of them is refused or lost, the process stays below 400 MiB, and
 * readiness is true throughout.
 */
export async function requireFairness(
  t: Test,
  world: FairnessWorld,
  service: ServiceProcess,
  attack: Attack,
  { extraMs = 20, quietFrom = '127.0.0.1', updates = {}, owners = world.victims }: Beside = {},
): Promise<void> {
  const quiet = new QuietCallers(world, service, { from: quietFrom, owners, updates })
  const hostile = new Callers(service.port)
  const readiness = watchReadiness(service)
  const comparisons: string[] = []
  let isFair = false
  await quiet.serve(WARM_MS)
  for (let attempt = 0; attempt < ATTEMPTS && !isFair; attempt++) {
    const control: Slot[] = []
    const beside: Slot[] = []
    for (let round = 0; round < ROUNDS; round++) {
      control.push(await quiet.serve(SLOT_MS))
      beside.push(await besideAttack(attack, hostile, () => quiet.serve(SLOT_MS)))
    }
    requireAllServed(t, beside)
    const { isFair: isFairNow, text } = compared(control, beside, extraMs)
    isFair = isFairNow
    comparisons.push(text)
  }
  t.ok(isFair, comparisons.join('; '))
  const unready = await readiness.end()
  t.strictSame(unready, [], 'ready throughout')
  const peak = peakResidentBytes(service.pid)
  t.ok(peak < RESIDENT_BYTES_MAX, `${Math.round(peak / 2 ** 20)} MiB resident at most`)
  await quiet.close()
  hostile.close()
}

/**
 * Whether the p99 of quiet callers beside something is at most twice the control's and `extraMs`, by the clock. Where others used the
 * processors meanwhile it is enough if that holds without what the threads that served them have waited for a processor; and on
 * a slower machine `extraMs` is as many times more. In full it is the clock that counts, and the limit as it is.
 */
export function compared(control: Slot[], beside: Slot[], extraMs = 20): { isFair: boolean; text: string } {
  const slow = processorSlowness()
  const isWithin = (timesOf: (slot: Slot) => number[]) =>
    p99Of(beside, timesOf) <= 2 * p99Of(control, timesOf) + extraMs * (FULL ? 1 : slow)
  const others = Math.max(...beside.map(({ othersProcessors }) => othersProcessors))
  const byClock = (slot: Slot) => slot.latenciesMs
  const byProcessor = (slot: Slot) => slot.processedMs
  const isFair = isWithin(byClock) || (!FULL && others > OTHERS_PROCESSORS_MAX && isWithin(byProcessor))
  const p99s = (timesOf: (slot: Slot) => number[]) =>
    `p99 ${Math.round(p99Of(beside, timesOf))} ms, control ${Math.round(p99Of(control, timesOf))} ms`
  const conditions = `others used ${others.toFixed(1)} processors, ${slow.toFixed(1)} times slower than the reference`
  return { isFair, text: `${p99s(byClock)}; without waits for a processor ${p99s(byProcessor)}; ${conditions}` }
}

/** Does work beside an attack that is in full swing. */
export async function besideAttack(attack: Attack, callers: Callers, work: () => Promise<Slot>): Promise<Slot> {
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

/** Of several tries one has to hold: a busy machine lets more answers pass, for what the database does takes longer then. */
const PASSING_TRIES = 3

/** What is sent again and again beside a quiet caller, and how many of its answers may pass one of their updates. */
export interface Passing {
  attack: Attack
  /** How many of its answers came so far. */
  answered: () => number
  /** With so many it is in full swing. */
  begunAfter: number
  passingMax: number
  /** What the quiet caller stores. */
  fields: (n: number) => object
}

/** How many updates of the quiet caller are looked at, and the pause between two. */
const PASSED_UPDATES = FULL ? 10 : 7
const PASSED_PAUSE_MS = FULL ? 100 : 30

/** Holds when few answers of an attack come while an update of a quiet caller, or each time of another, is in work: the median of some. */
export async function requireFewPass(
  t: Test,
  { port }: ServiceProcess,
  quiet: Owner | (() => Promise<Owner>),
  { attack, answered, begunAfter, passingMax, fields }: Passing,
): Promise<void> {
  const medians: number[] = []
  while (medians.length < PASSING_TRIES && !medians.some(median => median <= passingMax)) {
    const [callers, hostile] = [new Callers(port), new Callers(port)]
    const over = new AbortController()
    const begun = answered()
    const attacking = attack(over.signal, hostile)
    while (answered() < begun + begunAfter) await sleep(10)
    const passing: number[] = []
    for (let n = 0; n < PASSED_UPDATES; n++) {
      const owner = typeof quiet === 'function' ? await quiet() : quiet
      const before = answered()
      const { status } = await callers.update(owner, fields(n))
      t.equal(status, 200)
      passing.push(answered() - before)
      await sleep(PASSED_PAUSE_MS)
    }
    over.abort()
    await attacking
    callers.close()
    hostile.close()
    medians.push(percentile(passing, 0.5))
  }
  t.ok(Math.min(...medians) <= passingMax, `${medians.join(' ')} answers`)
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
function p99Of(slots: readonly Slot[], timesOf: (slot: Slot) => number[]): number {
  return percentile(slots.flatMap(timesOf), 0.99)
}

/** Asks for readiness until `end`, which answers each time that it was not there. */
export function watchReadiness(service: ServiceProcess): { end(): Promise<unknown[]> } {
  const unready: unknown[] = []
  let isOver = false
  const watching = (async () => {
    while (!isOver) {
      const found = await service.readiness(READINESS_WITHIN_MS)
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
