import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { Case } from './cases.js'
import type { BenchDatabase } from './database.js'
import { builtBench } from './processes.js'
import type { Bench, Durations, Slot } from './rounds.js'

/** One build of the service with a database of its own, and the requests for that. */
export interface Side {
  bench: Bench
  cases: readonly Case[]
}

/** What one case took of two builds, round by round. */
export interface CaseOfBoth {
  name: string
  before: Slot[]
  after: Slot[]
}

/** Measures each case on both sides in turn; the first of a round is the second of the next. */
export async function compareBuilds(
  before: Side,
  after: Side,
  { rounds, warmUpMs, slotMs }: Durations,
  say: (line: string) => void,
): Promise<CaseOfBoth[]> {
  const compared = after.cases.map(({ name }): CaseOfBoth => ({ name, before: [], after: [] }))
  for (let round = 0; round <= rounds; round++) {
    say(round === 0 ? 'warming up both builds' : `both builds, round ${round} of ${rounds}`)
    for (const slots of compared) {
      const turns = round % 2 === 0 ? (['before', 'after'] as const) : (['after', 'before'] as const)
      for (const turn of turns) {
        const { bench, cases } = { before, after }[turn]
        const found = cases.find(({ name }) => name === slots.name)
        if (found === undefined) continue
        const slot = await bench.slot(found, round === 0 ? warmUpMs : slotMs)
        if (round > 0) slots[turn].push(slot)
      }
    }
  }
  return compared
}

/** Whether this folder holds a built benchmark. */
export function isBuilt(checkout: string): boolean {
  return existsSync(join(builtBench(checkout), 'service.js'))
}

/** The database of another checkout, opened and filled by its own program: it may have another schema. */
export async function openDatabaseOf(
  checkout: string,
  ...asked: Parameters<typeof import('./database.js').openBenchDatabase>
): Promise<BenchDatabase> {
  const file = pathToFileURL(join(builtBench(checkout), 'database.js')).href
  const { openBenchDatabase } = (await import(file)) as typeof import('./database.js') // another version of it
  return await openBenchDatabase(...asked)
}
