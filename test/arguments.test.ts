import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import t from 'tap'

/** Options that nobody knows, values that are none, and what the one line names. */
const WRONG: readonly [command: string, args: string[], fault: RegExp][] = [
  ['cluster/run.js', ['--fast'], /'--fast'.*usage: npm run test:cluster/],
  ['cluster/run.js', ['--runs', '0'], /--runs 0 .*usage: npm run test:cluster/],
  ['cluster/run.js', ['nothing'], /'nothing'.*usage: npm run test:cluster/],
  ['faults/soak.js', ['--hours', '1'], /'--hours'.*usage: npm run test:soak/],
  ['faults/soak.js', ['--minutes', 'five'], /--minutes five .*usage: npm run test:soak/],
  ['faults/campaign.js', ['nothing'], /'nothing'.*usage: npm run test:campaign/],
  ['all.js', ['--job', '3'], /'--job'.*usage: npm test/],
]

for (const [command, args, fault] of WRONG) {
  t.test(`exit 2: ${command} ${args.join(' ')} is answered with one line`, async t => {
    const file = fileURLToPath(new URL(command, import.meta.url))
    const { status, stderr } = spawnSync(process.execPath, [file, ...args], { encoding: 'utf8', timeout: 180_000 })
    t.equal(status, 2)
    t.match(stderr, fault)
    t.equal(stderr.split('\n').length, 2, stderr)
  })
}

for (const [command, name] of [
  ['cluster/run.js', 'test:cluster'],
  ['faults/soak.js', 'test:soak'],
  ['faults/campaign.js', 'test:campaign'],
] as const) {
  t.test(`exit 0: ${command} --help prints how it is used`, async t => {
    const file = fileURLToPath(new URL(command, import.meta.url))
    const { status, stdout } = spawnSync(process.execPath, [file, '--help'], { encoding: 'utf8', timeout: 180_000 })
    t.equal(status, 0)
    t.match(stdout, `usage: npm run ${name} -- [`)
  })
}
