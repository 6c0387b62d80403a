import { sql } from 'kysely'
import { authenticate } from '../src/auth/authenticate.js'
import { hashToken } from '../src/auth/token.js'
import type { BatchRunner, RowStatement } from '../src/db/statements/row-statement.js'
import type { ServiceDatabase } from '../src/db/transaction.js'
import { personaResource } from '../src/persona/resource.js'
import { callerAndPersona, type PersonaState } from '../src/persona/state.js'
import { generateKey, parseKeyRing } from '../src/secrets/key-ring.js'
import { originsOf } from '../src/tool/definition/index.js'
import { cacheOrigins } from '../src/tool/definition-cache.js'
import { toolResource } from '../src/tool/resource.js'
import { callerAndTool, type ToolState } from '../src/tool/state.js'
import { NO_KEY, sha256 } from '../src/updates/audit.js'
import type { WorkBounds } from '../src/updates/resource.js'
import { updateOnce } from '../src/updates/update-once.js'
import type { CapturedStatement } from './pgbench.js'
import { agentBody, TOOL_DEFINITIONS, toolFields } from './requests.js'
import { agentFields, type World } from './world.js'

/** The statements that one request of each case sends, in their order, with the values of a real request. */
export interface Captured {
  agentUpdate: CapturedStatement[]
  /** The same for `BATCH_ROWS` agents at once. */
  agentUpdates: CapturedStatement[]
  agentUnchanged: CapturedStatement[]
  toolUpdate: CapturedStatement[][]
  caller: CapturedStatement[]
}

/** How many rows a statement of the controls in batches carries. */
export const BATCH_ROWS = 8

/**
 * Runs one request of each case here, over the service's own functions, and keeps what they send to the database. Ids and
 * versions become the variables `id`, `version` and `next`, so that pgbench can repeat them on other rows.
 */
export async function captureStatements(database: ServiceDatabase, world: World): Promise<Captured> {
  const { rows: definitions } = await sql<{ hash: string }>`select hash::text from tool_definition`.execute(database.db)
  const hashes = definitions.map(({ hash }) => hash)
  await cacheStoredOrigins(database)
  const [agentId = 0] = world.agentIds
  const [toolId = 0] = world.toolIds
  const description = agentFields(agentId).description
  await captureAgent(database, world, agentId, description)
  return {
    agentUnchanged: bound([await captureAgent(database, world, agentId, description)], hashes),
    agentUpdate: bound([await captureAgent(database, world, agentId, `captured ${Date.now()}`)], hashes),
    agentUpdates: bound(
      await Promise.all(
        world.agentIds.slice(1, 1 + BATCH_ROWS).map(id => captureAgent(database, world, id, `captured ${Date.now()}`)),
      ),
      hashes,
    ),
    toolUpdate: [
      await captureTool(database, world, toolId, 0),
      await captureTool(database, world, toolId, 1),
      await captureTool(database, world, toolId, 0),
      await captureTool(database, world, toolId, 1),
    ]
      .slice(2) // as those are stored that were stored before
      .map(asked => bound([asked], hashes)),
    caller: bound([await captureCaller(database, world)], hashes),
  }
}

async function captureAgent(database: ServiceDatabase, world: World, id: number, description: string) {
  return await capture(database, async recording => {
    const { caller, prefetched } = await authenticate(recording, hashToken(world.ownerToken), {
      statement: callerAndPersona,
      id,
    })
    const { remove_image: _, uploaded_image_id: __, ...fields } = agentBody(world, id, description)
    const request = {
      id,
      caller,
      actor: ACTOR,
      fields,
      masked: false,
      strict: false,
      ...UNCONDITIONAL,
    }
    await updateOnce(recording, personaResource, request, prefetched as PersonaState | null)
  })
}

async function captureTool(database: ServiceDatabase, world: World, id: number, edition: number) {
  const text = JSON.stringify(TOOL_DEFINITIONS[edition])
  const definition = { text, hash: sha256(text) }
  const origins = originsOf(TOOL_DEFINITIONS[edition])
  cacheOrigins(definition.hash, origins)
  return await capture(database, async recording => {
    const { caller, prefetched } = await authenticate(recording, hashToken(world.toolToken), {
      statement: callerAndTool,
      id,
    })
    const fields = { ...toolFields({}), definition }
    const vault = { ring: UNUSED_KEYS, deploymentKey: null }
    const request = {
      id,
      caller,
      actor: ACTOR,
      fields,
      origins,
      definitionFaults: [],
      vault,
      ...UNCONDITIONAL,
    }
    await updateOnce(recording, toolResource, request, prefetched as ToolState | null)
  })
}

/** What the process learns of each definition as it answers: without it the first update of a tool reads it under the lock. */
async function cacheStoredOrigins(database: ServiceDatabase): Promise<void> {
  const { rows } = await sql<{ hash: string; definition: object }>`
    select encode(hash, 'hex') as hash, content as definition from tool_definition`.execute(database.db)
  for (const { hash, definition } of rows) cacheOrigins(hash, originsOf(definition))
}

async function captureCaller(database: ServiceDatabase, world: World) {
  return await capture(database, async recording => {
    await authenticate(recording, hashToken(world.toolToken), undefined)
  })
}

const UNCONDITIONAL = {
  precondition: { kind: 'none' },
  authenticateAgain: (): never => {
    throw new Error('a captured update is not repeated')
  },
  callerNow: (): never => {
    throw new Error('a captured update is not decided under the lock')
  },
  preconditionRequired: false,
  dryRun: false,
  merges: false,
  minimal: false,
  key: NO_KEY,
  snapshotBytesMax: 2 ** 23,
  bounds: { rowLock: (_, work) => work(), expensive: (_, work) => work() } as WorkBounds,
} as const
const ACTOR = {
  id: null,
  name: 'alice@example.com',
  tokenId: 1,
  requestId: 'bench',
  clientAddress: '127.0.0.1',
  command: null,
}
// The captured update names no header, so nothing is sealed.
const UNUSED_KEYS = parseKeyRing(generateKey())

async function capture(database: ServiceDatabase, work: (recording: ServiceDatabase) => Promise<void>) {
  const asked: Asked[] = []
  const batched: BatchRunner['batched'] = async (statement, row, _executor, hooks) => {
    // What belongs together is put together by `RowStatement`; here any row goes with its own statement.
    asked.push({ statement: statement as unknown as Asked['statement'], row })
    return await statement.for(row).single(database.db, hooks)
  }
  await work(Object.assign(Object.create(database) as ServiceDatabase, { batched }))
  return asked
}

/** A statement and the row that it was asked for. */
interface Asked {
  statement: RowStatement<object, unknown>
  row: object
}

/** The statements of some requests of one kind, each with the rows of all. */
function bound(requests: readonly (readonly Asked[])[], definitions: readonly string[]): CapturedStatement[] {
  return (requests[0] ?? []).map(({ statement }, i) => {
    // Which definitions the service has cached depends on what it answered before; here it has all.
    const rows = requests.map(asked => ({ ...asked[i]?.row, cached_definitions: definitions }))
    const { sql: text, parameters } = statement.bind(rows)
    return { sql: text, values: [...parameters], variables: variablesOf(statement) }
  })
}

/** Which positions of one of the service's statements hold the resource's id and versions. */
function variablesOf({ parameterNames }: { parameterNames: readonly string[] }): Record<number, string> {
  const entries = parameterNames.flatMap((name, position) => {
    return name in VARIABLES ? [[position, VARIABLES[name]] as const] : []
  })
  return Object.fromEntries(entries) as Record<number, string>
}

const VARIABLES: Record<string, string> = {
  resource: 'id',
  id: 'id',
  resource_id: 'id',
  version: 'version',
  version_before: 'version',
  version_after: 'next',
}
