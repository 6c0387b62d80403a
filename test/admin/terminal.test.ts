import t from 'tap'
import { COMMANDS } from '../../src/admin/commands/run.js'
import { harmless, jsonText, shownWidth, tableLines } from '../../src/admin/terminal.js'
import { agentctl as agentctlOf } from '../cli/agentctl.js'
import { worldDatabase } from '../world.js'

const { url } = await worldDatabase(t)
const agentctl = (...args: string[]) => agentctlOf({ url, args })

/** Sets the window's title, erases the line, forges a row, and turns the direction of what follows. */
const HOSTILE = 'a\u001b]0;owned\u0007\u001b[2K\r\n 1  forged\u009b31m\u007f\u202etxt\u2028.'
/** C0 but the end of a line, DEL and C1, and what turns the direction. */
const UNSAFE = /(?!\n)[\p{Cc}\p{Bidi_Control}\u2028\u2029]/u

t.test('what people read shows control characters as escapes, on one line', async t => {
  t.equal((await agentctl('agent', 'create', HOSTILE, '--description', HOSTILE)).status, 0)
  const { id } = JSON.parse((await agentctl('agent', 'list', '--json', '--filter', 'forged')).stdout)[0]
  const rows = (await agentctl('agent', 'list')).stdout.trimEnd().split('\n')
  t.equal(rows.length, 1 + JSON.parse((await agentctl('agent', 'list', '--json')).stdout).length)
  for (const args of [
    ['agent', 'list'],
    ['agent', 'show', String(id)],
    ['agent', 'show', HOSTILE],
    ['agent', 'show', String(id), '--json'],
    ['agent', 'list', '--json'],
    ['agent', 'delete', String(id), '--plan'],
    ['agent', 'show', `${HOSTILE}!`],
    ['history', 'agent', String(id)],
    ['diff', 'agent', String(id), '1', '1'],
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
})

t.test('JSON and CSV keep every value exactly', async t => {
  const [agent] = JSON.parse((await agentctl('agent', 'list', '--json', '--filter', 'forged')).stdout)
  t.equal(agent.name, HOSTILE)
  t.match((await agentctl('agent', 'list', '--output', 'csv', '--filter', 'forged')).stdout, `,"${HOSTILE}",`)
  t.same(JSON.parse(jsonText({ [HOSTILE]: [HOSTILE] })), { [HOSTILE]: [HOSTILE] })
})

t.test('a table fits the terminal: long columns are cut, ids never, and colours take no room', async t => {
  const id = 'a0000000-0000-4000-8000-000000000001'
  const rows = [
    ['ID', 'NAME', 'STATE'],
    [id, '旅行案内'.repeat(20), { text: 'MISSING', colour: 'red' } as const],
    [id, 'short', 'ok'],
  ]
  const lines = tableLines(rows, 80, [0]).map(pieces => pieces.map(p => (typeof p === 'string' ? p : p.text)).join(''))
  for (const line of lines) t.ok(shownWidth(line) <= 80, line)
  t.ok(lines.slice(1).every(line => line.startsWith(id)))
  t.equal(new Set(lines.slice(1, 3).map(line => shownWidth(line.replace(/(MISSING|ok)$/, '')))).size, 1)
  t.match(lines[1], '…')
  t.match(tableLines(rows).join(), '旅行案内'.repeat(20))
})

t.test('every list fits 80 columns; what is left out for that is said', async t => {
  t.equal((await agentctl('user', 'create', 'somebody-with-a-long-name@departments.example.com')).status, 0)
  t.equal(
    (await agentctl('token', 'create', '--for', 'alice@example.com', '--agent', '8', '--scope', 'basic')).status,
    0,
  )
  const lists = COMMANDS.filter(({ options }) => 'limit' in options).map(({ name }) => name)
  t.ok(lists.length >= 8)
  for (const name of [...lists, 'status']) {
    const place = name === 'history' ? ['agent', '8'] : []
    const { stdout } = await agentctlOf({ url, args: [...name.split(' '), ...place], columns: 80 })
    const wide = stdout.split('\n').filter(line => shownWidth(line) > 80)
    t.same(name === 'status' ? wide.filter(line => !line.startsWith('database')) : wide, [], name)
  }
  const { stderr } = await agentctlOf({ url, args: ['audit', 'list'], columns: 80 })
  t.match(stderr, 'not shown for lack of room: TOKEN, FROM, COMMAND; --output csv and json have them')
  t.equal((await agentctlOf({ url, args: ['audit', 'list'], columns: 300 })).stderr, '')
})
