import t from 'tap'
import { contentOf } from '../../src/persona/rules.js'
import { startAgentctl } from '../cli/agentctl.js'
import { changeAgent } from '../deletion.js'
import { worldDatabase } from '../world.js'

/** Each row holds a prompt of before and one of after: 5 MB. Together they are more than the heap of the command. */
const ROWS = Number(process.env.TEST_ROWS ?? 14)
const PROMPT_BYTES = 2_500_000

t.test('audit verify reads a long history of large changes in a small heap', async t => {
  const { database, url } = await worldDatabase(t)
  for (let row = 0; row < ROWS; row++) {
    const system_prompt = String(row % 10).repeat(PROMPT_BYTES)
    await database.db
      .transaction()
      .execute(trx => changeAgent(trx, 1, state => ({ ...contentOf(state), system_prompt })))
  }
  const env = { NODE_OPTIONS: '--max-old-space-size=48' }
  const { status, stdout } = await startAgentctl({ url, args: ['audit', 'verify'], env }).answer
  t.equal(status, 0, stdout)
  t.match(stdout, /0 findings/)
})
