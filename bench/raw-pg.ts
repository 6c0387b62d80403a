import pg from 'pg'
import { PLANNING_OPTIONS } from '../src/db/connection/session-settings.js'
import { TextArray } from '../src/db/statements/text-array.js'
import type { CapturedStatement, ControlRun, Rate, ScriptPart } from './pgbench.js'

/**
 * Stands in for pgbench where it is missing: runs the captured statements in a loop over plain pg connections, prepared by
 * name, and answers how many transactions it got done. Every client keeps to one row and repeats what the script says, without
 * its conditions: a number to see, not to compare.
 */
export async function rawLoop(url: string, parts: readonly ScriptPart[], options: ControlRun): Promise<Rate> {
  const statements = parts.filter(part => typeof part !== 'string').slice(0, 2)
  const clients = await Promise.all(Array.from({ length: options.connections }, () => connected(url)))
  const before = options.used(process.pid)
  const deadline = performance.now() + options.seconds * 1000
  const counts = await Promise.all(clients.map((client, i) => repeat(client, statements, options.set, i, deadline)))
  const after = options.used(process.pid)
  await Promise.all(clients.map(client => client.end()))
  const done = counts.reduce((sum, count) => sum + count, 0)
  const usedMs = before === null || after === null ? null : after - before
  return { perSecond: done / options.seconds, done, usedMs }
}

async function connected(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url, options: PLANNING_OPTIONS })
  await client.connect()
  return client
}

async function repeat(
  client: pg.Client,
  statements: readonly CapturedStatement[],
  { first = 1, step = 1, base = 0 }: Record<string, number>,
  number: number,
  deadline: number,
): Promise<number> {
  let count = 0
  for (; performance.now() < deadline; count++) {
    const variables: Record<string, number> = {
      id: first + step * number,
      version: base + count,
      next: base + count + 1,
    }
    for (const [index, { sql, values, variables: names }] of statements.entries()) {
      const bound = values.map((value, position) => {
        const variable = variables[names[position] ?? '']
        if (variable === undefined) return value
        return value instanceof TextArray ? new TextArray([variable]) : variable
      })
      await client.query({ name: `s${index}`, text: sql, values: bound })
    }
  }
  return count
}
