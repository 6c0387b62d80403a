import { setTimeout as sleep } from 'node:timers/promises'
import type { BenchDatabase } from './database.js'
import { load, type RequestSource } from './load.js'
import { percentile, residentMib } from './measure.js'
import { startService } from './processes.js'
import {
  agentUpdates,
  faultyAgents,
  largeValidations,
  toolUpdates,
  unauthenticated,
  unchangedAgents,
  validations,
} from './requests.js'
import type { Durations } from './rounds.js'
import type { World } from './world.js'

/** What one process of the service takes, apart from processor time. */
export interface ProcessFigures {
  /** From the start of the process to its first request, with a database that is there. */
  startMs: number
  residentAtStartMib: number | null
  mixedRequests: number
  residentAfterMixedMib: number | null
  /** While definitions of nearly 5 MiB are validated one after the other beside small ones. */
  besideLarge: BesideLarge
}

export interface BesideLarge {
  largeRequests: number
  smallPerSecond: number
  smallP50Ms: number
  smallP99Ms: number
  eventLoopDelayP99Ms: number
  eventLoopDelayMaxMs: number
}

const MIXED_LIMIT_MS = 240_000
const LARGE_BYTES = 4_900_000

/** Measures start-up, memory after so many requests of all kinds, and how much large definitions delay others. */
export async function measureProcess(
  { url, world }: BenchDatabase,
  keys: string,
  { mixedRequests, slotMs }: Durations,
  say: (line: string) => void,
): Promise<ProcessFigures> {
  const service = await startService(url, keys)
  const ports = [service.ports.port]
  const residentAtStartMib = residentMib(service.pid)
  say(`${mixedRequests.toLocaleString('en')} mixed requests`)
  const kinds = mixOf(world)
  const mixed = await load(ports, (i, n) => kindOf(kinds, i).requests(i, n), {
    connections: 16,
    durationMs: MIXED_LIMIT_MS,
    status: i => kindOf(kinds, i).status,
    requestsMax: mixedRequests,
  })
  const residentAfterMixedMib = residentMib(service.pid)
  await service.counts()
  say('small definitions beside large ones')
  const small = { connections: 8, durationMs: slotMs * 3, status: 200 }
  const [large, others] = await Promise.all([
    load(ports, largeValidations(world, LARGE_BYTES), { ...small, connections: 1 }),
    sleep(50).then(() => load(ports, validations(world, 10), small)),
  ])
  const counts = await service.counts()
  await service.end()
  return {
    startMs: service.startMs,
    residentAtStartMib,
    mixedRequests: mixed.requests,
    residentAfterMixedMib,
    besideLarge: {
      largeRequests: large.requests,
      smallPerSecond: others.requests / others.seconds,
      smallP50Ms: percentile(others.latenciesMs, 0.5),
      smallP99Ms: percentile(others.latenciesMs, 0.99),
      eventLoopDelayP99Ms: counts.eventLoopDelayP99Ms,
      eventLoopDelayMaxMs: counts.eventLoopDelayMaxMs,
    },
  }
}

interface Kind {
  requests: RequestSource
  status: number
}

function mixOf(world: World): Kind[] {
  return [
    { requests: agentUpdates(world), status: 200 },
    { requests: unchangedAgents(world), status: 200 },
    { requests: toolUpdates(world), status: 200 },
    { requests: validations(world, 10), status: 200 },
    { requests: validations(world, 300), status: 200 },
    { requests: agentUpdates(world, { query: '?dry_run=true' }), status: 200 },
    { requests: unauthenticated(world, 'unknown'), status: 401 },
    { requests: faultyAgents(world), status: 422 },
  ]
}

function kindOf(kinds: readonly Kind[], connection: number): Kind {
  return kinds[connection % kinds.length] as Kind // the list is not empty
}
