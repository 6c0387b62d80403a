import type pg from 'pg'
import { TextArray } from '../src/db/statements/text-array.js'
import { BATCH_ROWS, type Captured } from './captured.js'
import type { BenchDatabase } from './database.js'
import type { RequestSource } from './load.js'
import type { CapturedStatement, ScriptPart } from './pgbench.js'
import {
  agentsFor,
  agentUpdates,
  faultyAgents,
  faultyDefinitions,
  largeValidations,
  MANY_TOOLS,
  manyToolsUpdates,
  taggedUpdates,
  toolUpdates,
  unauthenticated,
  unchangedAgents,
  validations,
} from './requests.js'

/** A control over HTTP. Its number is comparable with a case's when it gets the same bytes. */
export interface HttpControl {
  /** Cases with the same key share one measurement a round. */
  key: string
  requests: RequestSource
  status: number
}

export interface DatabaseControl {
  key: string
  script: ScriptPart[]
  /** How many updates one run of the script makes; absent for one. */
  rows?: number
  /** Makes the rows ready for the script and answers the numbers that it starts with. */
  prepare(connections: number): Promise<Record<string, number>>
}

/** One kind of request, and what it is compared with in the same round. */
export interface Case {
  name: string
  requests: RequestSource
  status: number
  echo: HttpControl
  lookup?: HttpControl
  eleven?: HttpControl
  database?: DatabaseControl
  /** The same with several rows a statement. */
  batches?: DatabaseControl
}

/** All cases in the order of the table. */
export async function casesOf(bench: BenchDatabase, captured: Captured): Promise<Case[]> {
  const { world } = bench
  const { agentUpdate, agentUpdates: agentBatch, agentUnchanged, toolUpdate, caller } = captured
  const agents = agentUpdates(world)
  // Bodies of agent updates are alike: one measurement of echo and look-up serves all cases that send them.
  const beside = httpControls('agent', agents)
  const tools = toolUpdates(world)
  const callerOnly: DatabaseControl = { key: 'caller', script: caller, prepare: async () => ({}) }
  const validation = (name: string, requests: RequestSource): Case => ({
    name: `validation, ${name}`,
    requests,
    status: 200,
    ...httpControls(name, requests),
    database: callerOnly,
  })
  return [
    {
      name: 'agent update',
      requests: agents,
      status: 200,
      ...beside,
      eleven: { key: 'eleven', requests: agents, status: 200 },
      database: agentScript(bench, agentUpdate, 'changed'),
      batches: agentScript(bench, agentBatch, 'changed', BATCH_ROWS),
    },
    {
      name: 'agent update, return=minimal',
      requests: agentUpdates(world, { headers: { Prefer: 'return=minimal' } }),
      status: 204,
      ...beside,
    },
    {
      name: 'agent update, If-Match',
      requests: taggedUpdates(world, await versionsOf(bench, agentsFor(world, 'tagged'))),
      status: 200,
      ...beside,
    },
    {
      name: `agent update, ${MANY_TOOLS} tools`,
      requests: manyToolsUpdates(world),
      status: 200,
      ...beside,
    },
    {
      name: 'agent update, nothing changes',
      requests: unchangedAgents(world),
      status: 200,
      ...beside,
      database: agentScript(bench, agentUnchanged, 'same'),
    },
    {
      name: 'agent update, dry run',
      requests: agentUpdates(world, { query: '?dry_run=true' }),
      status: 200,
      ...beside,
      database: dryRunScript(bench, agentUpdate),
    },
    {
      name: 'tool update, 10 operations',
      requests: tools,
      status: 200,
      ...httpControls('tool', tools),
      database: toolScript(bench, toolUpdate),
    },
    validation('10 operations', validations(world, 10)),
    validation('300 operations', validations(world, 300)),
    validation('1 MB', largeValidations(world)),
    { name: '401, no token', requests: unauthenticated(world, 'missing'), status: 401, echo: beside.echo },
    { name: '401, malformed token', requests: unauthenticated(world, 'malformed'), status: 401, echo: beside.echo },
    {
      name: '401, unknown token',
      requests: unauthenticated(world, 'unknown'),
      status: 401,
      ...beside,
      database: unknownTokenScript(agentUpdate),
    },
    {
      name: '422, agent update',
      requests: faultyAgents(world),
      status: 422,
      ...beside,
      database: readScript(bench, agentUpdate),
    },
    {
      name: '422, validation',
      requests: faultyDefinitions(world),
      status: 422,
      ...httpControls('10 operations', validations(world, 10)),
      database: callerOnly,
    },
  ]
}

async function versionsOf({ client }: BenchDatabase, ids: readonly number[]): Promise<Map<number, number>> {
  const { rows } = await client.query<{ id: number; version: number }>(
    'select id, version from persona where id = any($1)',
    [ids],
  )
  return new Map(rows.map(({ id, version }) => [id, version]))
}

function httpControls(key: string, requests: RequestSource) {
  return {
    echo: { key: `echo: ${key}`, requests, status: 200 },
    lookup: { key: `lookup: ${key}`, requests, status: 200 },
  }
}

/** Each client of pgbench takes its own agents in turn; versions begin beyond all that were ever stored. */
function agentScript(
  bench: BenchDatabase,
  statements: CapturedStatement[],
  part: 'changed' | 'same',
  rows = 1,
): DatabaseControl {
  return cyclingScript(bench, 'persona', agentsFor(bench.world, part), part === 'changed', statements, rows)
}

function dryRunScript(bench: BenchDatabase, [read = NONE, write = NONE]: CapturedStatement[]): DatabaseControl {
  const script: ScriptPart[] = [read, '\\startpipeline', 'begin;', write, 'rollback;', '\\endpipeline']
  return cyclingScript(bench, 'persona', agentsFor(bench.world, 'changed'), false, script)
}

function readScript(bench: BenchDatabase, [read = NONE]: CapturedStatement[]): DatabaseControl {
  return cyclingScript(bench, 'persona', agentsFor(bench.world, 'same'), false, [read])
}

function toolScript(bench: BenchDatabase, [first = [], second = []]: CapturedStatement[][]): DatabaseControl {
  const script = ['\\if :n % 2', ...first, '\\else', ...second, '\\endif']
  return cyclingScript(bench, 'tool', bench.world.toolIds, true, script)
}

function unknownTokenScript([read = NONE]: CapturedStatement[]): DatabaseControl {
  const unknown = new TextArray([Buffer.alloc(32, 7)])
  // Of the values that are no variable the hash is the only one.
  const values = read.values.map((value, i) => (read.variables[i] === undefined ? unknown : value))
  return { key: 'unknown token', script: [{ ...read, values }], prepare: async () => ({ id: 1 }) }
}

const NONE: CapturedStatement = { sql: '', values: [], variables: {} }

/** More rows than this are not needed for clients that never meet, and each has to be made ready for each run. */
const SCRIPT_ROWS_MAX = 1024

/** pgbench knows a client's number, and keeps a client's variables from one transaction to the next. */
function cyclingScript(
  { client }: BenchDatabase,
  table: 'persona' | 'tool',
  allIds: readonly number[],
  writes: boolean,
  statements: readonly ScriptPart[],
  rows = 1,
): DatabaseControl {
  const ids = allIds.slice(0, SCRIPT_ROWS_MAX)
  const [first = 1, second = 2] = ids
  const moves = [
    '\\set at :client_id + :clients * (:n % :each)',
    '\\set id :first + :step * :at',
    ...Array.from({ length: rows }, (_, row) => `\\set id_${row} :first + :step * (:at * ${rows} + ${row})`),
    `\\set version :base${writes ? ' + :n / :each' : ''}`,
    '\\set next :version + 1',
    '\\set n :n + 1',
  ]
  return {
    key: `${table} ${writes} ${statements.length} ${ids[0]} ${rows}`,
    rows,
    script: [...moves, ...statements],
    prepare: async clients => {
      const each = Math.max(1, Math.floor(ids.length / clients / rows))
      return { first, step: second - first, clients, each, n: 0, base: await sameVersion(client, table, ids) }
    },
  }
}

/** Gives all rows one version, beyond those that they had, and answers it. */
async function sameVersion(client: pg.Client, table: 'persona' | 'tool', ids: readonly number[]): Promise<number> {
  const { rows } = await client.query<{ base: number }>(
    `with last as (select max(version) + 1 as base from ${table} where id = any($1)), moved as (
       update ${table} set version = base from last where id = any($1))
     select base from last`,
    [ids],
  )
  return rows[0]?.base ?? 0
}
