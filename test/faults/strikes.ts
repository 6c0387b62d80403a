import type { Test } from 'tap'
import type { ClusterOptions } from './cluster.js'
import { FAULTS } from './faults.js'
import { Trial } from './trial.js'

/** Strikes once with each of these faults, as the campaign does it twenty times. */
export async function strikeEach(t: Test, names: readonly string[], options: ClusterOptions = {}): Promise<void> {
  const trial = await Trial.open(options)
  t.teardown(() => trial.close())
  for (const name of names) {
    const fault = FAULTS[name]
    if (fault === undefined) throw new Error(`there is no fault ${name}`)
    const { faults, ...seen } = await trial.strike(fault, 0)
    t.strictSame(faults, [], name)
    t.ok(seen.acknowledged > 0)
    t.comment(`${name}: ${JSON.stringify(seen)}`)
  }
}
