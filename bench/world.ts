import { createHash, randomBytes } from 'node:crypto'
import type pg from 'pg'
import { mintToken } from '../src/auth/token.js'
import { definitionOf } from './definitions.js'

/** How much of everything the made organisation holds. */
export interface WorldSize {
  agents: number
  tools: number
  users: number
  groups: number
}

export const SMALL: WorldSize = { agents: 1_000, tools: 200, users: 1_000, groups: 20 }
export const LARGE: WorldSize = { agents: 1_000_000, tools: 100_000, users: 100_000, groups: 2_000 }

const LABELS = 100
const DOCUMENT_SETS = 1_000
const CC_PAIRS = 50
/** How many people and groups the widely shared agent has at most, and how many versions its history holds. */
const WIDE = { users: 500, groups: 200, versions: 100 }
/** The rows that one statement of the generator makes at most. */
const CHUNK_ROWS = 50_000

/** A filled database, and how its numbers come about, so that requests can be made without reading it. */
export interface World {
  size: WorldSize
  /** The ids of Alice's agents, spread evenly over the table. */
  agentIds: number[]
  /** The ids of tools that requests update, attached to agents like all others. */
  toolIds: number[]
  /** An agent of Alice's with a long history that is shared with hundreds. */
  wideAgentId: number
  /** Alice owns agents and has no further permission. */
  ownerToken: string
  /** May manage every custom tool. */
  toolToken: string
}

/** What an agent of the made organisation has attached. */
export function attachedTo(agentId: number, size: WorldSize, tools = 2) {
  const tool = (offset: number) => ((agentId * 2 + offset) % size.tools) + 1
  return {
    tool_ids: Array.from({ length: tools }, (_, offset) => tool(offset)).sort((a, b) => a - b),
    document_set_ids: [(agentId % DOCUMENT_SETS) + 1],
    label_ids: [(agentId % LABELS) + 1],
  }
}

/** At most so many agents belong to Alice. */
const OWNED_AGENTS_MAX = 20_000
const UPDATED_TOOLS_MAX = 2_000

const ALICE = '00000000-0000-4000-8000-000000000001'
const TOOL_KEEPER = '00000000-0000-4000-8000-000000000002'

/**
 * Fills an empty, migrated database, and reports each step by a line; the rows are made inside the server. Foreign keys
 * are not checked meanwhile where the role may switch that off: the rows are right by construction.
 */
export async function fillWorld(client: pg.Client, size: WorldSize, keyId: string, progress: (line: string) => void) {
  await client.query('set session_replication_role = replica').catch(() => undefined)
  for (const step of steps(size, keyId)) {
    const start = performance.now()
    for (let from = 1; from <= step.rows; from += CHUNK_ROWS) {
      const to = Math.min(step.rows, from + CHUNK_ROWS - 1)
      await client.query(step.sql, [from, to, ...(step.values ?? [])])
      progress(`${step.name}: ${to.toLocaleString('en')} of ${step.rows.toLocaleString('en')}, ${seconds(start)} s`)
    }
  }
  await client.query('set session_replication_role = default').catch(() => undefined)
  progress('vacuum and statistics')
  await client.query('vacuum (analyze)')
}

/** The organisation of a filled database with new tokens for its two callers. */
export async function enterWorld(client: pg.Client, size: WorldSize): Promise<World> {
  const owned = Math.min(size.agents, OWNED_AGENTS_MAX)
  const updated = Math.min(size.tools, UPDATED_TOOLS_MAX)
  return {
    size,
    agentIds: Array.from({ length: owned }, (_, i) => 1 + i * (size.agents / owned)).slice(1),
    toolIds: Array.from({ length: updated }, (_, i) => 1 + i * (size.tools / updated)),
    wideAgentId: 1,
    ownerToken: await insertToken(client, ALICE, null),
    toolToken: await insertToken(client, TOOL_KEEPER, null),
  }
}

async function insertToken(client: pg.Client, user: string, scopes: string[] | null): Promise<string> {
  const { token, hash } = mintToken('person')
  await client.query('insert into token (hash, user_id, scopes, last_used_at) values ($1, $2, $3, now())', [
    hash,
    user,
    scopes,
  ])
  return token
}

interface Step {
  name: string
  rows: number
  /** Makes the rows numbered `$1` to `$2`. */
  sql: string
  values?: unknown[]
}

function steps(size: WorldSize, keyId: string): Step[] {
  const definitions = Math.min(100, size.tools)
  const ownedEvery = size.agents / Math.min(size.agents, OWNED_AGENTS_MAX)
  return [
    {
      name: 'users',
      rows: size.users,
      sql: `insert into user_account (id, email, kind, permissions)
        select ${userId('n')}, case n when 1 then 'alice@example.com' else 'user-' || n || '@example.com' end, 'person',
          case n when 2 then array['manage:actions'] else '{}' end from ${NUMBERS}`,
    },
    { name: 'groups', rows: size.groups, sql: `insert into user_group (name) select 'Group ' || n from ${NUMBERS}` },
    {
      name: 'members of groups',
      rows: size.users * 3,
      sql: `insert into user_group_member (user_id, user_group_id)
        select ${userId(`1 + n % ${size.users}`)}, 1 + (n * 7 + n / ${size.users}) % ${size.groups} from ${NUMBERS}
        on conflict do nothing`,
    },
    { name: 'labels', rows: LABELS, sql: `insert into label (name) select 'Label ' || n from ${NUMBERS}` },
    {
      name: 'connections',
      rows: CC_PAIRS,
      sql: `insert into cc_pair (name, source, access_type) select 'Connection ' || n, 'confluence', 'private' from ${NUMBERS}`,
    },
    {
      name: 'document sets',
      rows: DOCUMENT_SETS,
      sql: `insert into document_set (name, description, is_public)
        select 'Documents ' || n, 'What the people of team ' || n || ' wrote', n % 2 = 0 from ${NUMBERS}`,
    },
    {
      name: 'connections of document sets',
      rows: DOCUMENT_SETS * 2,
      sql: `insert into document_set_cc_pair
        select 1 + n / 2 % ${DOCUMENT_SETS}, 1 + n % ${CC_PAIRS} from ${NUMBERS} on conflict do nothing`,
    },
    {
      name: 'tool definitions',
      rows: definitions,
      sql: `insert into tool_definition (hash, content, size_bytes)
        select sha256(convert_to(text, 'UTF8')), text::json, octet_length(text)
        from ${NUMBERS}, replace($3::text, 'Orders', 'Orders ' || n) text`,
      values: [JSON.stringify(definitionOf(10))],
    },
    {
      name: 'tools',
      rows: size.tools,
      sql: `insert into tool (name, description, user_id, definition_hash)
        select 'Tool ' || n, 'Looks things up, number ' || n, ${userId(`1 + n % ${size.users}`)}, known.hashes[1 + n % ${definitions}]
        from ${NUMBERS}, (select array_agg(hash order by hash) hashes from tool_definition) known`,
    },
    {
      name: 'headers of tools',
      rows: size.tools,
      sql: `insert into tool_header (tool_id, position, name, key_id, nonce, ciphertext, fingerprint)
        select n, 0, 'X-Api-Key', $3, '\\x000102030405060708090a0b', decode(repeat('ab', 40), 'hex'),
          sha256(convert_to(n::text, 'UTF8')) from ${NUMBERS}`,
      values: [keyId],
    },
    {
      name: 'agents',
      rows: size.agents,
      sql: `insert into persona (name, description, num_chunks, recency_bias, llm_filter_extraction, llm_relevance_filter,
          system_prompt, task_prompt, starter_messages, is_public, owner_id)
        select 'Agent ' || n, 'Answers questions, number ' || n, 10, 'auto', true, false, $3, 'Answer in two sentences.',
          '[{"name":"Holidays","message":"How many days of holiday do I have?"}]', n % 10 = 0,
          case when (n - 1) % ${ownedEvery} = 0 then '${ALICE}'::uuid else ${userId(`3 + n % ${size.users - 2}`)} end from ${NUMBERS}`,
      values: [SYSTEM_PROMPT],
    },
    {
      name: 'tools of agents',
      rows: size.agents * 2,
      sql: `insert into persona_tool select (n + 1) / 2, 1 + ((n + 1) / 2 * 2 + n % 2) % ${size.tools} from ${NUMBERS}`,
    },
    {
      name: 'document sets of agents',
      rows: size.agents,
      sql: `insert into persona_document_set select n, 1 + n % ${DOCUMENT_SETS} from ${NUMBERS}`,
    },
    {
      name: 'labels of agents',
      rows: size.agents,
      sql: `insert into persona_label select n, 1 + n % ${LABELS} from ${NUMBERS}`,
    },
    {
      name: 'people of agents',
      rows: size.agents,
      sql: `insert into persona_user select n, ${userId(`3 + n * 5 % ${size.users - 2}`)}, 'viewer' from ${NUMBERS} where n > 1`,
    },
    {
      name: 'groups of agents',
      rows: size.agents,
      sql: `insert into persona_group select n, 1 + n % ${size.groups}, 'editor' from ${NUMBERS} where n > 1 and n % 2 = 0`,
    },
    {
      name: 'people of the widely shared agent',
      rows: Math.min(WIDE.users, size.users - 2),
      sql: `insert into persona_user select 1, ${userId('n + 2')}, 'viewer' from ${NUMBERS}`,
    },
    {
      name: 'groups of the widely shared agent',
      rows: Math.min(WIDE.groups, size.groups),
      sql: `insert into persona_group select 1, n, 'viewer' from ${NUMBERS}`,
    },
    {
      name: 'history of the widely shared agent',
      rows: WIDE.versions,
      sql: `with history as (
          insert into audit (resource_kind, resource_id, version_before, version_after, at, actor, request_id, client_address,
            fields, difference, difference_bytes, difference_hash, previous_hash, hash)
          select 'persona', 1, n, n + 1, now() - (${WIDE.versions} - n) * interval '1 minute', 'agentctl', 'bench', '127.0.0.1',
            '{description}', '{"description":{"from":"a","to":"b"}}', 37, $3, $3, $3 from ${NUMBERS} returning version_after)
        update persona set version = (select max(version_after) from history), audit_count = ${WIDE.versions}, audit_head = $3,
          field_versions = jsonb_build_object('description', (select max(version_after) from history)) where id = 1`,
      values: [createHash('sha256').update(randomBytes(32)).digest()],
    },
  ]
}

const SYSTEM_PROMPT =
  'You answer questions about the handbook of the company. Cite the page. Be brief and friendly. '.repeat(6)

const NUMBERS = 'generate_series($1::integer, $2::integer) n'

/** SQL: the id of the user with a number. */
function userId(number: string): string {
  return `('00000000-0000-4000-8000-' || lpad(to_hex(${number}), 12, '0'))::uuid`
}

function seconds(start: number): string {
  return ((performance.now() - start) / 1000).toFixed(1)
}

/** The scalar fields of every made agent, as a request sends them back. */
export function agentFields(id: number) {
  return {
    name: `Agent ${id}`,
    description: `Answers questions, number ${id}`,
    num_chunks: 10,
    is_public: id % 10 === 0,
    recency_bias: 'auto' as const,
    llm_filter_extraction: true,
    llm_relevance_filter: false,
    system_prompt: SYSTEM_PROMPT,
    task_prompt: 'Answer in two sentences.',
    datetime_aware: true,
    starter_messages: [{ name: 'Holidays', message: 'How many days of holiday do I have?' }],
  }
}
