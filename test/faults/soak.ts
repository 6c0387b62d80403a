/**
 * The soak: mixed updates without a pause on sixteen connections, for five minutes, against the real service in a process of
 * its own. In that time it answers more than one client may ask in half an hour by the default rate limit. Memory and
 * descriptors must not grow, and the last minute must answer as fast as the first.
 *
 *     npm run test:soak -- [--minutes 5]
 */
import { readdirSync, readFileSync } from 'node:fs'
import { loadavg } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import { generateKey } from '../../src/secrets/key-ring.js'
import { misused, readArguments } from '../arguments.js'
import { Cluster } from './cluster.js'
import { Load, type Sent } from './load.js'
import { ServiceProcess } from './service.js'
import { makeWorld } from './world.js'

const MINUTE_MS = 60_000
/** The compiler and the pool have settled after this; it is not counted. */
const WARM_UP_MS = 30_000
const SAMPLE_EVERY_MS = 1_000
const MINUTES_MAX = 60

/** Half an hour of one client at 600 requests a minute, in each five minutes. */
const REQUESTS_A_MINUTE_MIN = (30 * 600) / 5
/** A leak of 1 KiB a request shows as many times this. */
const MEMORY_SLOPE_MAX_KIB_PER_REQUEST = 0.1
const DESCRIPTOR_SLOPE_MAX_PER_MINUTE = 0.5
const P99_RATIO_MAX = 1.2

interface Sample {
  minute: number
  residentMib: number
  descriptors: number
}

interface Minute {
  requests: number
  p50Ms: number
  p99Ms: number
  /** Of the machine, when the minute ended: slower answers on a busier machine are not the service's. */
  load: number
}

async function main(): Promise<number> {
  const minutes = readMinutes()
  const cluster = await Cluster.create()
  try {
    const token = await makeWorld(cluster.url())
    const service = await ServiceProcess.start({ DATABASE_URL: cluster.url(), SECRET_KEYS: generateKey() })
    try {
      return report(await soak(service, token, minutes))
    } finally {
      await service.stop()
    }
  } finally {
    await cluster.remove()
  }
}

function readMinutes(): number {
  const usage = `npm run test:soak -- [--minutes 2 to ${MINUTES_MAX}]`
  const { values } = readArguments(usage, { options: { minutes: { type: 'string', default: '5' } } })
  const minutes = Number(values.minutes)
  if (Number.isInteger(minutes) && minutes >= 2 && minutes <= MINUTES_MAX) return minutes
  return misused(usage, `--minutes ${values.minutes} is not a whole number from 2 to ${MINUTES_MAX}`)
}

interface Soak {
  samples: Sample[]
  minutes: Minute[]
  /** How many answers there were of each status but 200 and 412; 0 is none at all. */
  troubles: Record<string, number>
}

async function soak(service: ServiceProcess, token: string, minutes: number): Promise<Soak> {
  const load = new Load(() => service.port, token)
  const found: Soak = { samples: [], minutes: [], troubles: {} }
  load.start()
  await sleep(WARM_UP_MS)
  load.sent.splice(0)
  const startedAt = performance.now()
  while (found.minutes.length < minutes) {
    const endsAt = startedAt + (found.minutes.length + 1) * MINUTE_MS
    while (performance.now() < endsAt) {
      found.samples.push(sample(service.pid, (performance.now() - startedAt) / MINUTE_MS))
      await sleep(SAMPLE_EVERY_MS)
    }
    const answered = load.sent.splice(0).filter(({ endedAt }) => endedAt > 0)
    found.minutes.push(minuteOf(answered))
    for (const { status } of answered.filter(isTrouble)) found.troubles[status] = (found.troubles[status] ?? 0) + 1
    print(found)
  }
  await load.stop()
  load.close()
  return found
}

function sample(pid: number, minute: number): Sample {
  const [, residentKib] = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? []
  return { minute, residentMib: Number(residentKib) / 1024, descriptors: readdirSync(`/proc/${pid}/fd`).length }
}

function isTrouble({ status }: Sent): boolean {
  return status !== 200 && status !== 412
}

function minuteOf(sent: readonly Sent[]): Minute {
  const durations = sent.map(({ durationMs }) => durationMs).sort((a, b) => a - b)
  const at = (share: number) => durations[Math.floor(durations.length * share)] ?? Number.NaN
  return { requests: sent.length, p50Ms: at(0.5), p99Ms: at(0.99), load: loadavg()[0] ?? Number.NaN }
}

function print({ samples, minutes }: Soak): void {
  const last = minutes.at(-1)
  const now = samples.at(-1)
  if (last === undefined || now === undefined) return
  const times = `p50 ${last.p50Ms.toFixed(1)} ms, p99 ${last.p99Ms.toFixed(1)} ms`
  const process = `${now.residentMib.toFixed(1)} MiB, ${now.descriptors} descriptors`
  console.log(
    `minute ${minutes.length}: ${last.requests} requests, ${times}, ${process}, machine load ${last.load.toFixed(1)}`,
  )
}

/** Prints the verdicts; answers the exit status. */
function report({ samples, minutes, troubles }: Soak): number {
  const requests = minutes.reduce((sum, minute) => sum + minute.requests, 0)
  const perMinute = requests / minutes.length
  const memory = slope(samples.map(({ minute, residentMib }) => [minute, residentMib]))
  const memoryPerRequest = (memory * 1024) / perMinute
  const descriptors = slope(samples.map(({ minute, descriptors: count }) => [minute, count]))
  const ratio = (minutes.at(-1)?.p99Ms ?? Number.NaN) / (minutes[0]?.p99Ms ?? Number.NaN)
  const verdicts: [boolean, string][] = [
    [
      perMinute >= REQUESTS_A_MINUTE_MIN,
      `${requests} requests, ${Math.round(perMinute)} a minute; at least ${REQUESTS_A_MINUTE_MIN}`,
    ],
    [Object.keys(troubles).length === 0, `answers but 200 and 412: ${JSON.stringify(troubles)}`],
    [
      memoryPerRequest <= MEMORY_SLOPE_MAX_KIB_PER_REQUEST,
      `memory grows by ${memory.toFixed(2)} MiB a minute, ${memoryPerRequest.toFixed(3)} KiB a request; at most ${MEMORY_SLOPE_MAX_KIB_PER_REQUEST}`,
    ],
    [
      Math.abs(descriptors) <= DESCRIPTOR_SLOPE_MAX_PER_MINUTE,
      `descriptors grow by ${descriptors.toFixed(3)} a minute; at most ${DESCRIPTOR_SLOPE_MAX_PER_MINUTE}`,
    ],
    [ratio <= P99_RATIO_MAX, `p99 of the last minute is ${ratio.toFixed(2)} of the first; at most ${P99_RATIO_MAX}`],
  ]
  for (const [isFine, text] of verdicts) console.log(`${isFine ? 'ok    ' : 'NOT OK'}  ${text}`)
  return verdicts.every(([isFine]) => isFine) ? 0 : 1
}

/** The slope of the line that fits the points best, by least squares. */
function slope(points: readonly (readonly [number, number])[]): number {
  const mean = (values: number[]) => values.reduce((sum, value) => sum + value, 0) / values.length
  const meanX = mean(points.map(([x]) => x))
  const meanY = mean(points.map(([, y]) => y))
  const covariance = mean(points.map(([x, y]) => (x - meanX) * (y - meanY)))
  return covariance / mean(points.map(([x]) => (x - meanX) ** 2))
}

process.exitCode = await main()
