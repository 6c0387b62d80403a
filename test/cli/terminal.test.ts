import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { jsonText } from '../../src/admin/document-text.js'
import { harmless, tableLines } from '../../src/admin/terminal.js'
import { worldDatabase } from '../world.js'
import { agentctl as agentctlOf } from './agentctl.js'

const { url } = await worldDatabase(t)
const agentctl = (...args: string[]) => agentctlOf({ url, args })

/** A text that sets the terminal's title, erases the line, imitates a row, and reverses the direction of text. */
const HOSTILE = 'a\u001b]0;owned\u0007\u001b[2K\r\n 1  forged\u009b31m\u007f\u202etxt\u2028.'
/** Control characters except newlines, and characters that change the direction of text. */
const UNSAFE = /(?!\n)[\p{Cc}\p{Bidi_Control}\u2028\u2029]/u

t.test('text for people shows control characters as escapes, on one line; JSON keeps every value', async t => {
  const document = join(t.testdir(), 'hostile.json')
  writeFileSync(document, JSON.stringify({ version: 1, agents: [{ id: 900, name: HOSTILE, description: HOSTILE }] }))
  t.equal((await agentctl('apply', document)).status, 0)
  for (const args of [
    ['apply', document, '--plan'],
    ['agent', 'owner', HOSTILE, '--to', 'bob@example.com'],
    ['agent', 'owner', '900', '--to', HOSTILE],
    ['status'],
    ['audit', 'list'],
    ['audit', 'list', '--json'],
    [HOSTILE],
    ['user', 'list', `--${HOSTILE}`],
  ]) {
    const { stdout, stderr } = await agentctl(...args)
    t.notMatch(stdout, UNSAFE, `${harmless(args.join(' '))}: standard output`)
    t.notMatch(stderr, UNSAFE, `${harmless(args.join(' '))}: standard error`)
    t.notMatch(stdout, /^ 1 {2}forged/m)
  }
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
