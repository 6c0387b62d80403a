import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import pg from 'pg'
import t from 'tap'
import { parentOf } from '../../bench/measure.js'
import { testDatabase } from '../postgres.js'

/*
 * `npm run bench` as its user meets it, on a server of the tests; what it measures is not looked at.
 */
const PROGRAM = fileURLToPath(new URL('../../bench/run.js', import.meta.url))

t.test('the benchmark: 2 and one line for a comparison with nothing', async t => {
  for (const [option, file, fault] of [
    [
      '--against',
      'missing',
      /^bench: --against takes a built checkout, and missing\/build\/bench has no service\.js\n$/,
    ],
    ['--compare', 'missing.json', /^bench: --compare cannot read missing\.json: ENOENT.*\n$/],
    ['--compare', 'package.json', /^bench: --compare takes a results\.json .* package\.json has no cases\n$/],
  ] as const) {
    const cwd = fileURLToPath(new URL('../../..', import.meta.url))
    const { status, stderr } = spawnSync(process.execPath, [PROGRAM, option, file], { encoding: 'utf8', cwd })
    t.match({ status, stderr }, { status: 2, stderr: fault })
  }
})

t.test(
  'the benchmark: 2 and the names of the cases for a name that none has; two builds in turns; SIGTERM ends all that it started',
  async t => {
    const { url } = await testDatabase(t)
    t.teardown(() => dropMade(url))
    const env = { ...process.env, DATABASE_URL: url }

    const refused = spawnSync(process.execPath, [PROGRAM, '--only', 'nope'], { encoding: 'utf8', env })
    t.equal(refused.status, 2)
    t.match(
      refused.stderr,
      /bench: no case has 'nope' in its name; the cases are\n {2}agent update\n.*return=minimal\n/,
    )
    t.equal(refused.stdout, '')

    const checkout = fileURLToPath(new URL('../../..', import.meta.url))
    const compared = spawnSync(process.execPath, [PROGRAM, '--quick', '--only', 'If-Match', '--against', checkout], {
      encoding: 'utf8',
      env,
    })
    t.match(
      compared.stdout,
      /^\| agent update, If-Match \| \d+\.\d{3}, \d+\.\d{3} \| -?\d+ \| -?\d+ to -?\d+ \|/m,
      compared.stderr,
    )

    const bench = spawn(process.execPath, [PROGRAM, '--quick', '--only', '401'], { env, stdio: 'ignore' })
    t.teardown(() => bench.kill('SIGKILL'))
    const started = await until(() => {
      const children = childrenOf(bench.pid ?? 0)
      const names = children.map(commandOf).join('\n')
      return /bench\/service\.js/.test(names) && /bench\/controls\.js/.test(names) ? children : undefined
    })
    bench.kill('SIGTERM')
    t.same(await once(bench, 'exit'), [143, null])
    await until(() => (started.some(isAlive) ? undefined : true))
    t.pass('its service and its controls have ended')
  },
)

function childrenOf(parent: number): number[] {
  return readdirSync('/proc')
    .map(Number)
    .filter(pid => Number.isInteger(pid) && parentOf(pid) === parent)
}

function commandOf(pid: number): string {
  return existsSync(`/proc/${pid}/cmdline`) ? readFileSync(`/proc/${pid}/cmdline`, 'utf8') : ''
}

/** A process that ended and that nobody has waited for has no command any more. */
function isAlive(pid: number): boolean {
  return commandOf(pid) !== ''
}

/** What `found` answers when it answers something; a test that waits in vain ends by tap's limit. */
async function until<T>(found: () => T | undefined): Promise<T> {
  for (;;) {
    const value = found()
    if (value !== undefined) return value
    await sleep(20)
  }
}

/** The benchmark keeps its database for its next run; on a server of the tests it goes. */
async function dropMade(url: string): Promise<void> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  for (const name of ['bench_1000_v1', 'bench_1000_v1_unfinished'])
    await client.query(`drop database if exists ${name} with (force)`)
  await client.end()
}
