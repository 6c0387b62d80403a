import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { prepareValue } from '../src/db/connection/prepare-value.js'
import { PLANNING_OPTIONS } from '../src/db/connection/session-settings.js'
import { TextArray } from '../src/db/statements/text-array.js'

/** One statement with the values that a real request bound to it. */
export interface CapturedStatement {
  sql: string
  values: unknown[]
  /** Positions whose value is a variable of the script rather than what was captured. */
  variables: Record<number, string>
}

/** What pgbench repeats: lines of its own language and captured statements. */
export type ScriptPart = string | CapturedStatement

/** Whether Debian's pgbench is on this machine. */
export function hasPgbench(): boolean {
  return spawnSync('pgbench', ['--version']).status === 0
}

/** How a control of the database runs. */
export interface ControlRun {
  connections: number
  seconds: number
  /** Numbers that the script starts with. */
  set: Record<string, number>
  /** The processor time so far of all that takes part, in ms, the client with this id included; null where nobody says. */
  used: (clientPid: number) => number | null
}

/** How much a control got done, in the time that was measured. */
export interface Rate {
  perSecond: number
  done: number
  /** Processor time meanwhile, in ms. */
  usedMs: number | null
}

/** Before the measurement: sixteen sessions connect and plan the two large statements, 0.4 s of processor time in all. */
const WARM_UP_SECONDS = 1

/**
 * Runs a script of captured statements with pgbench, prepared. The measurement begins when its sessions are warm, as the
 * service's are, which live for minutes: at pgbench's first line of progress, and it ends with a later one.
 */
export async function pgbench(
  folder: string,
  url: string,
  parts: readonly ScriptPart[],
  options: ControlRun,
): Promise<Rate> {
  const { script, definitions } = scriptOf(parts)
  const file = join(folder, 'script.sql')
  writeFileSync(file, script)
  const variables = [...definitions, ...Object.entries(options.set)].flatMap(([name, value]) => [
    '-D',
    `${name}=${value}`,
  ])
  const seconds = Math.max(1, Math.round(options.seconds))
  // Its last second has no line of progress, or a short one.
  const clients = ['-c', String(options.connections), '-j', '2', '-T', String(WARM_UP_SECONDS + seconds + 1)]
  const given = ['-n', '-M', 'prepared', '-P', '1', '--progress-timestamp', ...clients, ...variables, '-f', file, url]
  const child = spawn('pgbench', given, {
    env: { ...process.env, PGOPTIONS: PLANNING_OPTIONS },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const kill = () => child.kill()
  process.once('exit', kill)
  try {
    return await measured(child, options, 1 + seconds)
  } finally {
    process.off('exit', kill)
  }
}

interface Progress {
  atSeconds: number
  usedMs: number | null
  /** Transactions since the line before. */
  done: number
}

/** What happened between the first and the last of so many lines of progress. */
async function measured(child: ChildProcess, { used }: ControlRun, lines: number): Promise<Rate> {
  const progress: Progress[] = []
  const said: string[] = []
  const read = (line: string) => {
    said.push(line)
    // progress: 1763806877.123 s, 2345.6 tps, lat 6.8 ms stddev 2.1, 0 failed
    const [, at, tps] = /^progress: ([\d.]+) s, ([\d.]+) tps/.exec(line) ?? []
    if (at === undefined || progress.length === lines) return
    const atSeconds = Number(at)
    const since = atSeconds - (progress.at(-1)?.atSeconds ?? atSeconds)
    progress.push({ atSeconds, usedMs: used(child.pid ?? 0), done: Number(tps) * since })
  }
  for (const stream of [child.stdout, child.stderr]) if (stream) createInterface(stream).on('line', read)
  const [code] = (await once(child, 'close')) as [number | null]
  const failed = /number of failed transactions: (\d+)/.exec(said.join('\n'))?.[1] ?? '0'
  const [first] = progress
  const last = progress.at(-1)
  if (code !== 0 || failed !== '0' || first === undefined || last === undefined || progress.length < lines)
    throw new Error(`pgbench failed (status ${code}):\n${said.join('\n')}`)
  const done = progress.slice(1).reduce((sum, line) => sum + line.done, 0)
  return {
    perSecond: done / (last.atSeconds - first.atSeconds),
    done,
    usedMs: first.usedMs === null || last.usedMs === null ? null : last.usedMs - first.usedMs,
  }
}

/** The script, and the values of its variables: pgbench takes texts only from its command line. */
export function scriptOf(parts: readonly ScriptPart[]) {
  const definitions: [string, string][] = []
  const lines = parts.map((part, index) => {
    if (typeof part === 'string') return part
    return `${withVariables(part, index, definitions).trim()};`
  })
  return { script: `${lines.join('\n')}\n`, definitions }
}

function withVariables(part: CapturedStatement, index: number, definitions: [string, string][]): string {
  part.values.forEach((value, i) => {
    const text = textOf(value)
    // What is not defined is sent as null.
    if (part.variables[i] === undefined && text !== null) definitions.push([`s${index}_${i + 1}`, text])
  })
  return withoutColons(part.sql).replaceAll(/\$(\d+)/g, (_, position: string) => {
    const variable = part.variables[Number(position) - 1]
    if (variable === undefined) return `:s${index}_${position}`
    const value = part.values[Number(position) - 1]
    return value instanceof TextArray ? listOf(variable, value.values.length) : `:${variable}`
  })
}

/** pgbench has numbers and texts, no lists. Of several rows each has its own id, and all have the same version. */
function listOf(variable: string, rows: number): string {
  const name = (row: number) => (rows > 1 && variable === 'id' ? `id_${row}` : variable)
  return `array[${Array.from({ length: rows }, (_, row) => `:${name(row)}::text`).join(', ')}]`
}

/** pgbench takes a colon inside a literal for a variable; written as an escape it is the same literal. */
function withoutColons(sql: string): string {
  return sql.replaceAll(/'[^']*'/g, literal =>
    literal.includes(':') ? `E${literal.replaceAll(':', '\\x3a')}` : literal,
  )
}

function textOf(value: unknown): string | null {
  if (value instanceof TextArray) return String(prepareValue(value.values))
  const prepared = prepareValue(value)
  return Buffer.isBuffer(prepared) ? `\\x${prepared.toString('hex')}` : prepared
}
