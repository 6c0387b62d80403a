#!/usr/bin/env node
import { createInterface } from 'node:readline/promises'
import { run } from './admin/commands/run.js'

// A reader such as `head` may close the pipe before everything is written: it has what it wanted.
process.stdout.on('error', error => {
  if ('code' in error && error.code === 'EPIPE') process.exit(0)
  throw error
})

process.exitCode = await run(process.argv.slice(2), process.env, {
  print: text => void process.stdout.write(`${text}\n`),
  remark: text => void process.stderr.write(`${text}\n`),
  colours: process.stdout.isTTY === true && !process.env.NO_COLOR,
  ...(process.stdout.isTTY && { columns: process.stdout.columns }),
  ...(process.stdin.isTTY && { ask }),
})

async function ask(question: string): Promise<string> {
  const lines = createInterface({ input: process.stdin, output: process.stderr })
  try {
    return await lines.question(question)
  } finally {
    lines.close()
  }
}
