#!/usr/bin/env node
import { run } from './admin/commands/run.js'
import { EXIT } from './admin/refusal.js'

// A reader such as `head` may close the pipe before all output is written. This is not an error.
process.stdout.on('error', error => {
  const code = 'code' in error ? String(error.code) : error.message
  if (code === 'EPIPE') process.exit(EXIT.ok)
  process.stderr.write(`agentctl: cannot write to standard output (${code})\n`)
  process.exit(EXIT.error)
})
// Failed writes to standard error are ignored, because the exit status still reports the result.
process.stderr.on('error', () => undefined)

process.exitCode = await run(process.argv.slice(2), process.env, {
  print: text => void process.stdout.write(`${text}\n`),
  remark: text => void process.stderr.write(`${text}\n`),
})
