#!/usr/bin/env node
import { run } from './admin/commands/run.js'

process.exitCode = await run(process.argv.slice(2), process.env, {
  print: text => void process.stdout.write(`${text}\n`),
  remark: text => void process.stderr.write(`${text}\n`),
  colours: process.stdout.isTTY === true && process.env.NO_COLOR === undefined,
})
