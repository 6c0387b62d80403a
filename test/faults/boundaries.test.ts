import pg from 'pg'
import t from 'tap'
import { readConfig } from '../../src/config.js'
import { openUrl } from '../../src/db/open.js'
import { appOver } from '../app.js'
import { testDatabase } from '../postgres.js'
import { FAULTS, type Fault, Lane, type Mode, type Trial } from './lane.js'
import { AGENT_COUNT, makeWorld, range } from './world.js'

/**
 * At each boundary between two messages of an update, between service and PostgreSQL, something happens, and another
 * client writes before the service can look what became of it. Whatever it answers must be true.
 */

const IS_FULL = process.env.TEST_CAMPAIGN === 'full'

t.setTimeout(IS_FULL ? 3_600_000 : 900_000)

const MODES: Mode[] = [
  { name: 'directly', settings: { PREPARED_STATEMENTS: 'on' }, disguised: false },
  { name: 'as through a pooler', settings: { PREPARED_STATEMENTS: 'off' }, disguised: true },
]

const { url } = await testDatabase(t)
const token = await makeWorld(url)
const direct = openUrl(url, readConfig({}))
t.teardown(() => direct.close())
const others = await appOver(t, direct)
const witness = new pg.Pool({ connectionString: url, max: 4 })
t.teardown(() => witness.end())
const site = { url, token, others, witness }

for (const mode of MODES) {
  t.test(
    `no outcome is false and nothing is applied twice, whatever happens between two messages, ${mode.name}`,
    async t => {
      const lanes = await Promise.all(range(AGENT_COUNT).map(agent => Lane.open(t, site, agent, mode)))
      const [first] = lanes
      if (first === undefined) throw new Error('there are no agents')
      const trials: Trial[] = []
      for (const contended of [false, true]) {
        const count = await first.messagesOfAnUpdate(contended)
        t.comment(`${count} messages ${contended ? 'under the lock' : 'as it was read'}`)
        for (const at of range(count)) trials.push(...trialsAt(at, contended))
      }
      const queue = [...trials]
      const tally: Record<string, number> = {}
      const faults: string[] = []
      await Promise.all(
        lanes.map(async lane => {
          for (let trial = queue.shift(); trial !== undefined; trial = queue.shift()) {
            const { answer, wrong } = await lane.run(trial)
            const key = `${answer.status} ${answer.outcome ?? ''}`.trim()
            tally[key] = (tally[key] ?? 0) + 1
            if (wrong !== undefined)
              faults.push(`${wrong}: ${JSON.stringify(trial)} answered ${JSON.stringify(answer)}`)
          }
        }),
      )
      for (const lane of lanes) faults.push(...(await lane.finallyWrong()))
      t.comment(`${trials.length} trials: ${JSON.stringify(tally)}`)
      t.strictSame(faults.slice(0, 20), [])
      t.ok(lanes.reduce((sum, { fired }) => sum + fired, 0) > trials.length * 0.9, 'the faults came to pass')
    },
  )
}

/** One at each boundary, others at the next. */
function trialsAt(at: number, contended: boolean): Trial[] {
  const faults = Object.keys(FAULTS) as Fault[]
  const tags = contended ? [false] : [false, true]
  const all = tags.flatMap(withTag => faults.map(fault => ({ at, fault, withTag, contended })))
  return IS_FULL ? all : all.filter((_, index) => (index + at * 3) % 22 === 0)
}
