import t from 'tap'
import { startAgentctl } from '../cli/agentctl.js'
import { worldDatabase } from '../world.js'

/** The number of audit rows. Each holds an old and a new prompt, 2 MB together. All rows together exceed the heap of the command. */
const ROWS = Number(process.env.TEST_ROWS ?? 35)
const PROMPT_CHARACTERS = 250_000

t.test('audit verify reads a long history of large changes in a small heap', async t => {
  const { apply, url } = await worldDatabase(t)
  for (let row = 0; row < ROWS; row++)
    await apply({ agents: [{ id: 1, system_prompt: ['😀', '😃'][row % 2]?.repeat(PROMPT_CHARACTERS) }] })
  const env = { NODE_OPTIONS: '--max-old-space-size=48' }
  const { status, stdout } = await startAgentctl({ url, args: ['audit', 'verify'], env }).answer
  t.equal(status, 0, stdout)
  t.match(stdout, /0 findings/)
})
