import t from 'tap'
import { PersonaUpsertRequest } from '../../src/persona/schema.js'
import { compileBody } from '../../src/schema/faults.js'
import { parseJsonBody } from '../../src/schema/json-body.js'
import { FULL_AGENT_UPDATE } from '../fixtures/agent-fields.js'

const rounds = 20_000
/** Far above what any machine needs: the test is to notice a wrong order of growth, the figures are for reading. */
const boundUs = 200

function microseconds(run: () => unknown): number {
  for (let round = 0; round < rounds; round++) run()
  const started = performance.now()
  for (let round = 0; round < rounds; round++) run()
  return ((performance.now() - started) * 1000) / rounds
}

t.test(`a body of every field is judged in less than ${boundUs} microseconds`, async t => {
  const agent = compileBody(PersonaUpsertRequest)
  const wrong = { ...FULL_AGENT_UPDATE, name: 1, users: ['x'], search_start_date: '' }
  const bytes = Buffer.from(JSON.stringify(FULL_AGENT_UPDATE))
  t.ok(agent.check(FULL_AGENT_UPDATE))
  t.equal(agent.faults(wrong).length, 3)
  const figures = {
    check: microseconds(() => agent.check(FULL_AGENT_UPDATE)),
    'report of three faults': microseconds(() => agent.faults(wrong)),
    'JSON.parse': microseconds(() => JSON.parse(bytes.toString())),
    parseJsonBody: microseconds(() => parseJsonBody(bytes)),
  }
  for (const [what, us] of Object.entries(figures)) {
    t.comment(`${what}: ${us.toFixed(2)} us`)
    t.ok(us < boundUs, what)
  }
})
