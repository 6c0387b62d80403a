import { sql } from 'kysely'
import { usedBy } from '../auth/access.js'
import { statement } from '../db/statements/statement.js'
import type { ToolDecision } from './rules.js'
import { snapshotBytes } from './snapshot.js'
import type { ToolState } from './state.js'

/** What a smaller definition adds to an agent's answer is little beside what one may take: about it nobody is asked. */
const LARGE_DEFINITION_BYTES = 64 * 1024

/** So many agents that have the tool are looked at, and so many of their tools in all: then there may be more of them. */
const AGENTS_MAX = 1_000
const LINKS_MAX = 10_000

/**
 * Who makes a tool larger is told how many agents have no answer any more for it: those who own them did nothing. Asked only where
 * the definition is large and grew. `ask` runs the one statement, before or after the change is stored; what it leaves out is not said.
 */
export async function agentsBeyond(
  { id, definition_bytes }: Pick<ToolState, 'id' | 'definition_bytes'>,
  { definition, content }: Pick<ToolDecision, 'definition' | 'content'>,
  bytesMax: number | undefined,
  ask: (question: Question) => Promise<Beyond[]>,
): Promise<string[]> {
  const definitionBytes = Buffer.byteLength(definition?.text ?? '')
  if (bytesMax === undefined || definitionBytes < LARGE_DEFINITION_BYTES || definitionBytes <= definition_bytes)
    return []
  const bytes = definitionBytes + Buffer.byteLength(content.description ?? '')
  const [found] = await ask({ id, bytes, bytes_max: bytesMax })
  if (found === undefined || found.agents === 0) return []
  const { agents, all } = found
  const [count, have, are] = agents === 1 ? ['1 agent', 'has', 'is'] : [`${agents} agents`, 'have', 'are']
  return [
    `with this definition ${all ? '' : 'at least '}${count} that ${have} the tool ${are} beyond the ${bytesMax} bytes of one answer: ` +
      'until tool_ids names fewer or smaller tools, only updates that prefer return=minimal are answered',
  ]
}

/** A tool, what it takes in an answer with the new definition, and the most that the tools of one agent may take. */
interface Question {
  id: number
  bytes: number
  bytes_max: number
}

interface Beyond {
  agents: number
  /** Whether all that have the tool were looked at. */
  all: boolean
}

/** Each step is a look-up by a key for each row of the step before (`offset 0`): it reads no more than its limits say. */
export const readBeyond = statement<Question, Beyond>('agents_beyond', param => {
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
})
