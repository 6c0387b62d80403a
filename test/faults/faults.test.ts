import t from 'tap'
import { FAULTS } from './faults.js'
import { Trial } from './trial.js'

// As the campaign does it twenty times: here each once, without those that take long or a file system of their own.
const QUICK = ['connections_killed', 'server_restarted', 'read_only', 'pool_exhausted', 'deadlock', 'service_killed']

t.setTimeout(120_000)

t.test(
  '200, 412 or 503 with a true outcome whatever happens to the database, and recovery within 5 seconds',
  async t => {
    const trial = await Trial.open()
    t.teardown(() => trial.close())
    for (const name of QUICK) {
      const fault = FAULTS[name]
      if (fault === undefined) throw new Error(`there is no fault ${name}`)
      const { faults, ...seen } = await trial.strike(fault, 0)
      t.strictSame(faults, [], name)
      t.ok(seen.acknowledged > 0)
      t.comment(`${name}: ${JSON.stringify(seen)}`)
    }
  },
)
