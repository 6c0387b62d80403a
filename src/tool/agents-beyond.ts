import { sql } from 'kysely'
import { usedBy } from '../auth/access.js'
import type { Caller } from '../auth/caller.js'
import { statement } from '../db/statements/statement.js'
import type { ServiceDatabase } from '../db/transaction.js'
import type { ToolDecision } from './rules.js'
import { snapshotBytes } from './snapshot.js'
import type { ToolState } from './state.js'

/** What a smaller definition adds to an agent's answer is little beside what one may take: about it nobody is asked. */
const LARGE_DEFINITION_BYTES = 64 * 1024

/** So many agents that have the tool are looked at, and so many of their tools in all: then there may be more of them. */
const AGENTS_MAX = 1_000
const LINKS_MAX = 10_000

/** An update that was made, or tried. */
interface Made {
  caller: Caller
  dryRun: boolean
  /** The most that the tools of one agent may take. */
  snapshotBytesMax: number
}

/**
 * Who makes a tool larger is told how many agents have no answer any more for it: those who own them did nothing. Asked only where
 * the definition is large and grew, after the update, in a statement of its own; where that fails nothing is said.
 */
export async function agentsBeyond(
  database: ServiceDatabase,
  { caller, dryRun, snapshotBytesMax: bytesMax }: Made,
  { id, definition_bytes }: Pick<ToolState, 'id' | 'definition_bytes'>,
  { definition, content }: Pick<ToolDecision, 'definition' | 'content'>,
): Promise<string[]> {
  const definitionBytes = Buffer.byteLength(definition?.text ?? '')
  if (definitionBytes < LARGE_DEFINITION_BYTES || definitionBytes <= definition_bytes) return []
  const bytes = definitionBytes + Buffer.byteLength(content.description ?? '')
  const ask = () => readBeyond.run(database.db, { id, bytes, bytes_max: bytesMax })
  const [found] = await database.singleStatementQueue.run(String(caller.token.id), ask).catch(() => [])
  if (found === undefined || found.agents === 0) return []
  const { agents, all } = found
  const count = `${all ? '' : 'at least '}${agents} agent${agents === 1 ? '' : 's'}`
  const are = dryRun ? 'would be' : agents === 1 ? 'is' : 'are'
  return [
    `${count} with this tool ${are} beyond the ${bytesMax} bytes of one answer: until tool_ids names fewer or ` +
      'smaller tools, only updates that prefer return=minimal are answered',
  ]
}

interface Beyond {
  agents: number
  /** Whether all that have the tool were looked at. */
  all: boolean
}

/** Each step is a look-up by a key for each row of the step before (`offset 0`): it reads no more than its limits say. */
export const readBeyond = statement<{ id: number; bytes: number; bytes_max: number }, Beyond>(
  'agents_beyond',
  param => {
    return sql`
    with link as materialized (
      select a.id as persona_id, l.tool_id
      from (select ${param('id')}::integer as id) t cross join lateral (select a.id from ${usedBy(AGENTS_MAX)}) a
        cross join lateral (select tool_id from persona_tool where persona_id = a.id offset 0) l
      limit ${sql.lit(LINKS_MAX)}
    )
    select count(*)::integer as agents, (select count(*) from link) < ${sql.lit(LINKS_MAX)} and not exists (
        select from persona_tool where tool_id = ${param('id')}::integer offset ${sql.lit(AGENTS_MAX)}) as all
    from (
      select persona_id
      from link cross join lateral (
        select case when t.id = ${param('id')}::integer then ${param('bytes')}::integer else ${snapshotBytes} end as bytes
        from tool t left join tool_definition d on d.hash = t.definition_hash where t.id = link.tool_id offset 0) shown
      group by persona_id
      having sum(shown.bytes) > ${param('bytes_max')}::integer) beyond`
  },
)
