import { spawn } from 'node:child_process'
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync, statfsSync } from 'node:fs'
import { freemem } from 'node:os'
import { join, relative } from 'node:path'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { startServer } from './postgres.js'

/*
 * Runs every test file, or the named ones, each in its own process on one PostgreSQL server. Prints one line for each file, then failed assertions
 * and skipped tests. With `--tap`, prints everything. The exit code is 1 if a file fails.
 *
 *     npm test -- [--jobs N] [--tap] [--golden] [FILE...]
 *
 * `--golden` runs the files that compare with golden files, and rewrites the golden files.
 *
 * The default is three files at once, which keep two cores busy: some files wait for servers to start and stop.
 */
const ROOT = fileURLToPath(new URL('../..', import.meta.url))

/** The slowest files, which start first. */
const FIRST = [
  ...['faults/embedded', 'start', 'proxy/shutdown', 'supervised', 'oldest-postgresql'],
  ...['admin/prune', 'admin/large-apply', 'matrix'],
].map(name => join('build', 'test', `${name}.test.js`))

/** The free memory that is needed to keep the data of the tests in memory, where copying a database is ten times faster. */
const MEMORY_BYTES_MIN = 8e9

/** A file that takes longer has hung. On a machine with eight busy loops, the slowest file takes nine minutes. */
const FILE_LIMIT_S = 1_800

const FAILURE_LINES = 40
const LINE_CHARS = 300

const { values, positionals: named } = parseArgs({
  allowPositionals: true,
  options: { jobs: { type: 'string', default: '3' }, tap: { type: 'boolean' }, golden: { type: 'boolean' } },
})
const counts = { total: 0, pass: 0, fail: 0 }
const skipped: string[] = []
let failedFiles = 0
/** The process group ids of running test files. */
const running = new Set<number>()
process.once('exit', () => running.forEach(end))
for (const name of ['SIGINT', 'SIGTERM'] as const) process.once(name, () => process.exit(1))

keepInMemory()
const { url, leave } = await startServer()
const env = { ...process.env, TEST_SERVER_URL: url, ...(values.golden && { UPDATE_GOLDEN: '1' }) }
const waiting = named.length > 0 ? named : allFiles().filter(file => !values.golden || usesGolden(file))
const runners = Array.from({ length: Number(values.jobs) }, async () => {
  for (let file = waiting.shift(); file !== undefined; file = waiting.shift()) await run(file)
})
await Promise.all(runners)
await leave()
for (const line of skipped) console.log(line)
console.log(`# { total: ${counts.total}, pass: ${counts.pass}, fail: ${counts.fail} }`)
process.exitCode = failedFiles === 0 ? 0 : 1

async function run(file: string): Promise<void> {
  const began = performance.now()
  const child = spawn(process.execPath, [file], {
    cwd: ROOT,
    env: { ...env, TAP_TIMEOUT: String(FILE_LIMIT_S) }, // tap reports the test that hangs
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true, // in its own process group, so that `end` can kill all of it
  })
  const { pid } = child
  if (pid === undefined) throw new Error(`no process for ${file}`)
  running.add(pid)
  const limit = setTimeout(end, (FILE_LIMIT_S + 10) * 1_000, pid)
  const ended = new Promise<number | null>(resolve => child.once('exit', resolve)).finally(() => end(pid))
  const [output, errors, code] = await Promise.all([text(child.stdout), text(child.stderr), ended])
  clearTimeout(limit)
  const summary = /^# \{ total: .*\}$/m.exec(output)?.[0] ?? ''
  for (const name of ['total', 'pass', 'fail'] as const)
    counts[name] += Number(summary.match(`${name}: (\\d+)`)?.[1] ?? 0)
  const isFine = code === 0 && summary !== ''
  if (!isFine) failedFiles++
  for (const [, title = ''] of output.matchAll(/^ *ok \d+ - (.* # SKIP.*)$/gm))
    skipped.push(`skipped - ${nameOf(file)}: ${title.slice(0, LINE_CHARS)}`)
  if (values.tap) console.log(output + errors)
  else if (!isFine) console.log(failuresOf(output) + errors)
  console.log(`${isFine ? 'ok' : 'not ok'} - ${file} # ${((performance.now() - began) / 1_000).toFixed(1)} s`)
}

/** Kills a test file and every process that it started. */
function end(pid: number): void {
  running.delete(pid)
  try {
    process.kill(-pid, 'SIGKILL')
  } catch {
    // The process group has already ended.
  }
}

/** Returns the name of a test file, for example `http/rates` for `build/test/http/rates.test.js`. */
function nameOf(file: string): string {
  return relative(join('build', 'test'), file).replace(/\.test\.js$/, '')
}

/** Returns the failed assertions in TAP output, each with the YAML block of its diagnostics. */
function failuresOf(output: string): string {
  const lines: string[] = []
  let left = 0
  for (const line of output.split('\n')) {
    if (/^\s*not ok .* # time=/.test(line))
      left = 1 // shows only one line of a test that contains failed assertions
    else if (/^\s*not ok /.test(line)) left = FAILURE_LINES
    else if (/^\s*(?:ok |# |\d+\.\.\d+)/.test(line)) left = 0
    if (left-- > 0) lines.push(line.slice(0, LINE_CHARS))
    if (/^\s*\.\.\.$/.test(line)) left = 0
  }
  return lines.join('\n')
}

function allFiles(): string[] {
  const names = readdirSync(join(ROOT, 'build', 'test'), { recursive: true, encoding: 'utf8' })
  const paths = names.filter(name => name.endsWith('.test.js')).map(name => join('build', 'test', name))
  return [...new Set([...FIRST.filter(path => paths.includes(path)), ...paths.sort()])]
}

function usesGolden(file: string): boolean {
  return readFileSync(join(ROOT, file), 'utf8').includes("/golden.js'")
}

/** Puts the files of the server and the tests into memory if enough is free and TMPDIR is not set. */
function keepInMemory(): void {
  if (process.env.TMPDIR || freeBytes('/dev/shm') < MEMORY_BYTES_MIN) return
  const folder = mkdtempSync('/dev/shm/agents-tests-')
  chmodSync(folder, 0o1777)
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }))
  process.env.TMPDIR = folder
}

function freeBytes(path: string): number {
  try {
    const { bavail, bsize } = statfsSync(path)
    return Math.min(bavail * bsize, freemem())
  } catch {
    return 0 // other systems have no /dev/shm
  }
}
