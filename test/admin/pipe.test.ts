import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import t from 'tap'

const CLI = fileURLToPath(new URL('../../src/cli.js', import.meta.url))

/** A line of the shell; `$0 $1` is agentctl. */
function inShell(line: string) {
  const { stdout, stderr, status } = spawnSync('bash', ['-c', line, process.execPath, CLI], { encoding: 'utf8' })
  return { stdout, stderr, status }
}

t.test('standard input of a pipe whose writer is slower is read to its end', async t => {
  const definition = '{"openapi":"3.1.0","info":{"title":"x"},"servers":[{"url":"https://a.example.com"}]'
  const line = `(sleep 1; printf '%s' '${definition}'; sleep 0.2; printf ',"paths":{}}') | "$0" "$1" validate - --json`
  const { stdout, stderr } = inShell(line)
  t.equal(stderr, '')
  t.type(JSON.parse(stdout).ok, 'boolean')
})

t.test(
  '74: what cannot be written is told in a sentence',
  { skip: !existsSync('/dev/full') && 'no /dev/full' },
  async t => {
    for (const command of ['config', 'schema', '--help']) {
      t.strictSame(inShell(`"$0" "$1" ${command} > /dev/full`), {
        stdout: '',
        stderr: 'agentctl: standard output cannot be written (ENOSPC)\n',
        status: 74,
      })
    }
  },
)

t.test('2: the status of a refusal stays when nobody reads its reason', async t => {
  t.equal(inShell(`"$0" "$1" foo 2>&1 >/dev/null | true; echo $PIPESTATUS`).stdout, '2\n')
  t.equal(inShell(`"$0" "$1" foo 2> /dev/full`).status, 2)
})

t.test('a reader that closes the pipe ends the command without an error', async t => {
  const { stderr, status } = spawnSync(
    'bash',
    ['-c', `set -o pipefail; for i in 1 2 3; do "$0" "$1" config | head -c 1 || exit 9; done`, process.execPath, CLI],
    { encoding: 'utf8' },
  )
  t.equal(stderr, '')
  t.equal(status, 0)
})
