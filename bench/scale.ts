import type { BenchDatabase } from './database.js'
import { type LoadResult, load, sendAll } from './load.js'
import { median, percentile } from './measure.js'
import { startService } from './processes.js'
import { agentUpdates } from './requests.js'
import type { Durations } from './rounds.js'

/** How the size of the organisation tells on the agent update; times are medians over the rounds. */
export interface ScaleFigures {
  agents: [small: number, large: number]
  p50Ms: [small: number | null, large: number | null]
  /** The median of each round's ratio, at 16 connections. */
  p50Ratio: number | null
  /** One connection: an agent shared with hundreds, with a history of a hundred versions, beside an ordinary one. */
  wideP50Ms: number | null
  ordinaryP50Ms: number | null
}

/** Measures the agent update on two organisations in turn. */
export async function compareSizes(
  small: BenchDatabase,
  large: BenchDatabase,
  keys: string,
  { rounds, slotMs, warmUpMs }: Durations,
  say: (line: string) => void,
): Promise<ScaleFigures> {
  const [few, many] = [await startService(small.url, keys), await startService(large.url, keys)]
  const wide = agentUpdates(large.world, { ids: [large.world.wideAgentId] })
  await sendAll(many.ports.port, [wide(0, 1)()], 200)
  const p50 = ({ latenciesMs }: LoadResult) => percentile(latenciesMs, 0.5)
  const update = async (database: BenchDatabase, port: number, durationMs: number, connections = 16) =>
    p50(await load([port], agentUpdates(database.world), { connections, durationMs, status: 200 }))
  await update(small, few.ports.port, warmUpMs)
  await update(large, many.ports.port, warmUpMs)
  const measured = []
  for (let round = 0; round < rounds; round++) {
    say(`both sizes, round ${round + 1} of ${rounds}`)
    measured.push({
      few: await update(small, few.ports.port, slotMs),
      many: await update(large, many.ports.port, slotMs),
      ordinary: await update(large, many.ports.port, slotMs, 1),
      wide: p50(await load([many.ports.port], wide, { connections: 1, durationMs: slotMs, status: 200 })),
    })
  }
  await few.end()
  await many.end()
  return {
    agents: [small.world.size.agents, large.world.size.agents],
    p50Ms: [median(measured.map(({ few }) => few)), median(measured.map(({ many }) => many))],
    p50Ratio: median(measured.map(({ few, many }) => many / few)),
    wideP50Ms: median(measured.map(({ wide }) => wide)),
    ordinaryP50Ms: median(measured.map(({ ordinary }) => ordinary)),
  }
}
