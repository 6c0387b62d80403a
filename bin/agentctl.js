#!/usr/bin/env node
// Runs `agentctl`. npm links a command only if its file exists, so this file is not compiled. In a fresh checkout, it first compiles the program. This
// needs the development dependencies.
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const cli = new URL('../build/src/cli.js', import.meta.url)

if (!existsSync(cli)) {
  spawnSync('npm', ['run', '--silent', 'build'], { cwd: root, stdio: ['ignore', 2, 2] })
}
if (existsSync(cli)) {
  await import(cli.href)
} else {
  process.stderr.write('agentctl is not built, and building it failed: run npm ci, then npm run build\n')
  process.exitCode = 78
}
