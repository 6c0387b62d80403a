import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync, statfsSync } from 'node:fs'
import { freemem } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { PassThrough } from 'node:stream'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { parse } from 'yaml'
import { readArguments } from './arguments.js'
import './plain-children.js'
import { sharedServer } from './postgres.js'

/*
 * Every test file, or those that are named, as `tap` runs them and with its settings, but each as it is: tap's own command
 * starts each with loaders for mocks and TypeScript, which take up to a second of the processor, and with coverage, which doubles it
 * (`plain-children.ts`). Writes the TAP of the files, and of what is in them the failures; with `--tap` all of it.
 */
const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const settings = parse(readFileSync(join(ROOT, '.taprc'), 'utf8')) as { jobs: number; timeout: number } // the file is ours

/** Those that take longest, in this order: none of them runs alone at the end. */
const FIRST = ['oldest-postgresql', 'start', 'faults/embedded', 'supervised', 'http/large-bodies'].map(pathOf)

/** What the tests need of memory to lie there. */
const MEMORY_BYTES_MIN = 8e9

/** How many lines of a failure are shown. */
const FAILURE_LINES = 40

const { values, positionals: named } = readArguments('npm test -- [--jobs n] [--tap] [file ...]', {
  allowPositionals: true,
  options: { jobs: { type: 'string' }, tap: { type: 'boolean' } },
})
const files = named.length > 0 ? named : allFiles()
if (values.tap !== true) showSummary()
t.setTimeout(0) // each file has its own
t.jobs = Number(values.jobs ?? settings.jobs)
keepInMemory()
const env = {
  ...process.env,
  ...(await sharedServer(t)),
  TAP_TIMEOUT: String(settings.timeout),
  _TAPJS_PROCESSINFO_COVERAGE_: '0',
}
for (const file of files) {
  const timeout = settings.timeout * 1000
  void t.spawn(process.execPath, [file], { name: file, cwd: ROOT, env, timeout, buffered: true })
}

function allFiles(): string[] {
  const names = readdirSync(join(ROOT, 'build', 'test'), { recursive: true, encoding: 'utf8' })
  const paths = names
    .filter(name => name.endsWith('.test.js'))
    .sort()
    .map(name => join('build', 'test', name))
  return [...new Set([...FIRST.filter(path => paths.includes(path)), ...paths])]
}

/** Where there is room, servers and folders of the tests lie in memory: a database is copied there in a tenth of the time. */
function keepInMemory(): void {
  const { TEST_DATA_DIR, TMPDIR } = process.env
  if (TEST_DATA_DIR || TMPDIR || freeBytes('/dev/shm') < MEMORY_BYTES_MIN) return
  const folder = mkdtempSync('/dev/shm/agents-tests-')
  chmodSync(folder, 0o1777)
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }))
  process.env.TEST_DATA_DIR = folder
  process.env.TMPDIR = folder
}

function freeBytes(path: string): number {
  try {
    const { bavail, bsize } = statfsSync(path)
    return Math.min(bavail * bsize, freemem())
  } catch {
    return 0 // only Linux has it
  }
}

function pathOf(name: string): string {
  return join('build', 'test', `${name}.test.js`)
}

function showSummary(): void {
  const whole = new PassThrough()
  let left = 0
  createInterface({ input: whole }).on('line', line => {
    if (/^\s+not ok /.test(line)) left = FAILURE_LINES
    if (/^(ok|not ok|# |Bail out)/.test(line) || left > 0) process.stdout.write(`${line}\n`)
    left--
  })
  t.register() // as where it writes to the standard output itself
  t.pipe(whole)
}
