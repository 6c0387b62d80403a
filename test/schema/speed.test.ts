import t from 'tap'
import { PersonaUpsertRequest } from '../../src/persona/schema.js'
import { compileBody } from '../../src/schema/faults.js'
import { parseJsonBody } from '../../src/schema/json-body.js'
import { FULL_AGENT_UPDATE } from '../fixtures/agent-fields.js'
import { requireWithin } from '../slowness.js'

const rounds = 5_000
/** Far above what any machine needs: the test is to notice a wrong order of growth, the figures are for reading. */
const boundUs = 200

t.test(`a body of every field is judged in less than ${boundUs} microseconds`, async t => {
  const agent = compileBody(PersonaUpsertRequest)
  const wrong = { ...FULL_AGENT_UPDATE, name: 1, users: ['x'], search_start_date: '' }
  const bytes = Buffer.from(JSON.stringify(FULL_AGENT_UPDATE))
  t.ok(agent.check(FULL_AGENT_UPDATE))
  t.equal(agent.faults(wrong).length, 3)
  const works: [string, () => unknown][] = [
    ['check', () => agent.check(FULL_AGENT_UPDATE)],
    ['report of three faults', () => agent.faults(wrong)],
    ['JSON.parse', () => JSON.parse(bytes.toString())],
    ['parseJsonBody', () => parseJsonBody(bytes)],
  ]
  for (const [what, work] of works) {
    for (let round = 0; round < rounds; round++) work()
    requireWithin(t, `${what}, ${rounds} times`, (rounds * boundUs) / 1000, () => {
      for (let round = 0; round < rounds; round++) work()
    })
  }
})
