import t from 'tap'
import { changePersona } from '../../src/admin/apply/personas.js'
import { readConfig } from '../../src/config.js'
import { openUrl } from '../../src/db/open.js'
import { contentOf } from '../../src/persona/rules.js'
import { attach, fairnessWorld } from '../fairness/world.js'

const OPERATOR = {
  id: null,
  name: 'agentctl',
  tokenId: null,
  requestId: 'test',
  clientAddress: 'local',
  command: 'test',
}

t.test(
  'the operator changes an agent whose tools have half a gigabyte of definitions, and reads none of them',
  async t => {
    const world = await fairnessWorld(t)
    const { agentId } = world.attacker
    await attach(world, world.attacker, world.largeTools)
    const database = openUrl(world.url, readConfig({}))
    t.teardown(() => database.close())
    const before = process.memoryUsage().rss
    const description = 'changed by the operator'
    const changed = await database.db
      .transaction()
      .execute(trx => changePersona(trx, agentId, state => ({ ...contentOf(state), description }), OPERATOR))
    t.match(changed, { version: 2, changes: [{ field: 'description', to: description }] })
    t.ok(process.memoryUsage().rss - before < 100 * 2 ** 20)
  },
)
