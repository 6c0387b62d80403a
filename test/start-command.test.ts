import { readFileSync } from 'node:fs'
import t from 'tap'
import { nodeOfStart } from '../bench/processes.js'

const read = (path: string) => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8')

t.test('npm start, the program of the package, the image and the unit of systemd run node alike', async t => {
  const { env, options } = nodeOfStart()
  const assignments = Object.entries(env).map(pair => pair.join('='))
  t.ok(options.length > 0)
  t.ok(assignments.length > 0)
  const [shebang] = read('bin/agent-tool-management.js').split('\n')
  t.equal(shebang, `#!/usr/bin/env -S ${[...assignments, 'node', ...options].join(' ')}`)
  const image = read('Dockerfile').split('\n')
  t.ok(image.includes(`ENV ${assignments.join(' ')}`))
  t.ok(image.includes(`CMD ${JSON.stringify(['node', ...options, 'build/src/server.js']).replaceAll(',', ', ')}`))
  const unit = read('ops/agent-tool-management.service')
  t.match(unit, `Environment=${assignments.join(' ')}\n`)
  t.match(unit, `ExecStart=/usr/bin/node ${options.join(' ')} /opt/`)
})
