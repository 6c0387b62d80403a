import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import t from 'tap'

const CLI = fileURLToPath(new URL('../../src/cli.js', import.meta.url))

t.test('a reader that closes the pipe ends the command without an error', async t => {
  const { stderr, status } = spawnSync(
    'bash',
    ['-c', `set -o pipefail; for i in 1 2 3; do "$0" "$1" config | head -c 1 || exit 9; done`, process.execPath, CLI],
    { encoding: 'utf8' },
  )
  t.equal(stderr, '')
  t.equal(status, 0)
})
