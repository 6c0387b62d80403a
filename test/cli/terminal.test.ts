import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { harmless, jsonText, tableLines } from '../../src/admin/terminal.js'
import { worldDatabase } from '../world.js'
import { agentctl as agentctlOf } from './agentctl.js'

const { url } = await worldDatabase(t)
const agentctl = (...args: string[]) => agentctlOf({ url, args })

/** Sets the window's title, erases the line, forges a row, and turns the direction of what follows. */
const HOSTILE = 'a\u001b]0;owned\u0007\u001b[2K\r\n 1  forged\u009b31m\u007f\u202etxt\u2028.'
/** C0 but the end of a line, DEL and C1, and what turns the direction. */
const UNSAFE = /(?!\n)[\p{Cc}\p{Bidi_Control}\u2028\u2029]/u

t.test('text for people shows control characters as escapes, on one line; JSON keeps every value', async t => {
  const document = join(t.testdir(), 'hostile.json')
  writeFileSync(document, JSON.stringify({ version: 1, agents: [{ name: HOSTILE, description: HOSTILE }] }))
  t.equal((await agentctl('apply', document)).status, 0)
  const agents: { id: number; name: string }[] = JSON.parse((await agentctl('agent', 'list', '--json')).stdout)
  const { id = 0 } = agents.find(agent => agent.name === HOSTILE) ?? {}
  t.ok(id)
  t.equal((await agentctl('agent', 'list')).stdout.trimEnd().split('\n').length, 1 + agents.length)
  for (const args of [
    ['agent', 'list'],
    ['agent', 'show', String(id)],
    ['agent', 'show', HOSTILE],
    ['agent', 'show', String(id), '--json'],
    ['agent', 'list', '--json'],
    ['agent', 'show', `${HOSTILE}!`],
    ['agent', 'history', String(id)],
    ['status'],
    ['audit', 'list', '--json'],
    [HOSTILE],
    ['user', 'list', `--${HOSTILE}`],
  ]) {
    const { stdout, stderr } = await agentctl(...args)
    t.notMatch(stdout, UNSAFE, `${harmless(args.join(' '))}: standard output`)
    t.notMatch(stderr, UNSAFE, `${harmless(args.join(' '))}: standard error`)
    t.notMatch(stdout, /^ 1 {2}forged/m)
  }
  t.match(
    (await agentctl('agent', 'show', String(id))).stdout,
    /^ {4}a\\x1b\]0;owned\\x07\\x1b\[2K\\r\n {5}1 {2}forged\\x9b/m,
  )
  t.same(JSON.parse(jsonText({ [HOSTILE]: [HOSTILE] })), { [HOSTILE]: [HOSTILE] })
})

t.test('a table has columns; nothing is a dash, a list has commas', async t => {
  const rows = [
    ['ID', 'STATE', 'NAMES'],
    [12, 'MISSING', ['a', 'b\n']],
    [null, 'ok', 'x'],
  ]
  t.same(tableLines(rows), ['ID  STATE    NAMES', '12  MISSING  a, b\\n', '-   ok       x'])
})
