import { execFile, spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
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

const run = promisify(execFile)

/**
 * Runs a script of captured statements with pgbench, prepared, and answers how many transactions it got done.
 * `set` are numbers that the script starts with.
 */
export async function pgbench(
  folder: string,
  url: string,
  parts: readonly ScriptPart[],
  options: { connections: number; seconds: number; set: Record<string, number> },
): Promise<Rate> {
  const { script, definitions } = scriptOf(parts)
  const file = join(folder, 'script.sql')
  writeFileSync(file, script)
  const variables = [...definitions, ...Object.entries(options.set)].flatMap(([name, value]) => [
    '-D',
    `${name}=${value}`,
  ])
  const { connections, seconds } = options
  const clients = ['-c', String(connections), '-j', '2', '-T', String(Math.max(1, Math.round(seconds)))]
  const given = ['-n', '-M', 'prepared', ...clients, ...variables, '-f', file, url]
  const { stdout } = await run('pgbench', given, { env: { ...process.env, PGOPTIONS: PLANNING_OPTIONS } })
  const failed = /number of failed transactions: (\d+)/.exec(stdout)?.[1] ?? '0'
  const tps = /^tps = ([\d.]+)/m.exec(stdout)?.[1]
  const done = /transactions actually processed: (\d+)/.exec(stdout)?.[1]
  if (tps === undefined || done === undefined || failed !== '0') throw new Error(`pgbench failed:\n${stdout}`)
  return { perSecond: Number(tps), done: Number(done) }
}

/** How much a control got done. */
export interface Rate {
  perSecond: number
  done: number
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
