import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import t from 'tap'
import { parse } from 'yaml'
import { testDatabase } from './postgres.js'

/*
 * Every test file, or those that are named, as `tap` runs them and with its settings, but each as it is: tap's own command
 * starts each with loaders for coverage, mocks and TypeScript, which take up to a second of the processor and are not used
 * here. Writes TAP. `npm test` shows coverage and is for people.
 */
const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const settings = parse(readFileSync(join(ROOT, '.taprc'), 'utf8')) as { jobs: number; timeout: number } // the file is ours

const { values, positionals: named } = parseArgs({ allowPositionals: true, options: { jobs: { type: 'string' } } })
const files = named.length > 0 ? named : allFiles()
t.setTimeout(0) // each file has its own
t.jobs = Number(values.jobs ?? settings.jobs)
if (named.length === 0) await testDatabase(t) // keeps the server that they share
const env = { ...process.env, TAP_TIMEOUT: String(settings.timeout) }
for (const file of files) {
  const timeout = settings.timeout * 1000
  void t.spawn(process.execPath, [file], { name: file, cwd: ROOT, env, timeout, buffered: true })
}

function allFiles(): string[] {
  const names = readdirSync(join(ROOT, 'build', 'test'), { recursive: true, encoding: 'utf8' })
  return names
    .filter(name => name.endsWith('.test.js'))
    .sort()
    .map(name => join('build', 'test', name))
}
