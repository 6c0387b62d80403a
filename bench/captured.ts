import type { CompiledQuery } from 'kysely'
import { authenticate, callerOnly } from '../src/auth/authenticate.js'
import { bearerTokenHash } from '../src/auth/token.js'
import type { BatchRunner } from '../src/db/statements/row-statement.js'
import type { ServiceDatabase } from '../src/db/transaction.js'
import { personaResource } from '../src/persona/resource.js'
import { callerAndPersona, type PersonaState } from '../src/persona/state.js'
import * as persona from '../src/persona/statements.js'
import { generateKey, parseKeyRing } from '../src/secrets/key-ring.js'
import { toolResource } from '../src/tool/resource.js'
import { callerAndTool, type ToolState } from '../src/tool/state.js'
import * as tool from '../src/tool/statements.js'
import { NO_KEY, sha256 } from '../src/updates/audit.js'
import { update } from '../src/updates/engine.js'
import type { CapturedStatement } from './pgbench.js'
import { agentBody, TOOL_DEFINITIONS, toolFields } from './requests.js'
import { agentFields, type World } from './world.js'

/** The statements that one request of each case sends, in their order, with the values of a real request. */
export interface Captured {
  agentUpdate: CapturedStatement[]
  agentUnchanged: CapturedStatement[]
  toolUpdate: CapturedStatement[][]
  caller: CapturedStatement[]
}

/**
 * Runs one request of each case here, over the service's own functions, and keeps what they send to the database. Ids and
 * versions become the variables `id`, `version` and `next`, so that pgbench can repeat them on other rows.
 */
export async function captureStatements(database: ServiceDatabase, world: World): Promise<Captured> {
  const [agentId = 0] = world.agentIds
  const [toolId = 0] = world.toolIds
  const description = agentFields(agentId).description
  await captureAgent(database, world, agentId, description)
  return {
    agentUnchanged: await captureAgent(database, world, agentId, description),
    agentUpdate: await captureAgent(database, world, agentId, 'captured 000000000001'),
    toolUpdate: [
      await captureTool(database, world, toolId, 0),
      await captureTool(database, world, toolId, 1),
      await captureTool(database, world, toolId, 0),
    ].slice(1),
    caller: await captureCaller(database, world),
  }
}

async function captureAgent(database: ServiceDatabase, world: World, id: number, description: string) {
  return await capture(database, async recording => {
    const { caller, prefetched } = await authenticate(recording, bearerTokenHash(`Bearer ${world.ownerToken}`), {
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
    await update(recording, personaResource, request, prefetched as PersonaState | null)
  })
}

async function captureTool(database: ServiceDatabase, world: World, id: number, edition: number) {
  const text = JSON.stringify(TOOL_DEFINITIONS[edition])
  const definition = { text, hash: sha256(text) }
  return await capture(database, async recording => {
    const { caller, prefetched } = await authenticate(recording, bearerTokenHash(`Bearer ${world.toolToken}`), {
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
      origins: new Set<string>(),
      definitionFaults: [],
      vault,
      ...UNCONDITIONAL,
    }
    await update(recording, toolResource, request, prefetched as ToolState | null)
  })
}

async function captureCaller(database: ServiceDatabase, world: World) {
  return await capture(database, async recording => {
    await authenticate(recording, bearerTokenHash(`Bearer ${world.toolToken}`), undefined)
  })
}

const UNCONDITIONAL = {
  precondition: { kind: 'none' },
  preconditionRequired: false,
  dryRun: false,
  key: NO_KEY,
  snapshotBytesMax: 2 ** 23,
  reserveMemory: () => {},
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
  const sent: CapturedStatement[] = []
  const executeQuery = async <R>(query: CompiledQuery<R>) => {
    sent.push({ sql: query.sql, values: [...query.parameters], variables: variablesOf(query.sql) })
    return await database.db.executeQuery(query)
  }
  const batched: BatchRunner['batched'] = async (statement, row) => {
    const { rows } = await executeQuery(statement.bind([row]))
    return rows[0]
  }
  // The functions under capture use nothing else of a database when nobody else is at work on the row.
  await work({ db: { executeQuery }, batched } as unknown as ServiceDatabase)
  return sent
}

/** Which positions of one of the service's statements hold the resource's id and versions. */
function variablesOf(sql: string): Record<number, string> {
  const names = known().find(statement => statement.sql === sql)?.parameterNames ?? []
  const entries = names.flatMap((name, position) => (name in VARIABLES ? [[position, VARIABLES[name]] as const] : []))
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

function known(): { sql: string; parameterNames: readonly string[] }[] {
  return [
    callerOnly,
    callerAndPersona,
    callerAndTool,
    persona.readSnapshot,
    persona.writeStatement([], []),
    tool.readRow,
    tool.writeStatement({ definition: true, headers: false }),
  ]
}
