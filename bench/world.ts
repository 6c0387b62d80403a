import type pg from 'pg'
import { mintToken } from '../src/auth/token.js'
import { encryptSecret } from '../src/secrets/cipher.js'
import { parseKeyRing } from '../src/secrets/key-ring.js'

/** The numbers of agents and other rows. Ids count from 1, so requests can be built without reading the database. */
export const AGENTS = 1_018
export const TOOLS = 214
const USERS = 1_000
const GROUPS = 20
const ALICE = '00000000-0000-4000-8000-000000000001'
const SYSTEM_PROMPT =
  'You answer questions about the handbook of the company. Cite the page. Be brief and friendly. '.repeat(6)

export interface World {
  /** The token of Alice, who owns every agent and may manage every custom tool. */
  token: string
  /** Alice's token with the `runtime` scope. Not stored in the database of a version before 3.0, which lacks the scope. */
  runtimeToken: string
  /** A well-formed token that was never issued. */
  unknownToken: string
}

/** Fills a migrated, empty database of this version or an earlier one. `keys` is the key ring that encrypts stored headers. */
export async function fillWorld(client: pg.Client, keys: string): Promise<World> {
  const { token, hash } = mintToken('person')
  const rows = (count: number) => `generate_series(1, ${count}) n`
  const user = (number: string) => `('00000000-0000-4000-8000-' || lpad(to_hex(${number}), 12, '0'))::uuid`
  await client.query(`
    insert into user_account (id, email, kind, permissions)
      select ${user('n')}, case n when 1 then 'alice@example.com' else 'user-' || n || '@example.com' end, 'person',
        case n when 1 then array['manage:actions'] else '{}' end from ${rows(USERS)};
    insert into user_group (name) select 'Group ' || n from ${rows(GROUPS)};
    insert into user_group_member (user_id, user_group_id) select ${user('n')}, 1 + n % ${GROUPS} from ${rows(USERS)};
    insert into label (name) select 'Label ' || n from ${rows(100)};
    insert into document_set (name, description, is_public)
      select 'Documents ' || n, 'What team ' || n || ' wrote', n % 2 = 0 from ${rows(1_000)};`)
  await client.query(
    `insert into tool_definition (hash, content, size_bytes) select sha256(convert_to(text, 'UTF8')), text::json, octet_length(text)
      from ${rows(100)}, replace($1::text, 'Orders', 'Orders ' || n) text`,
    [JSON.stringify(definitionOf(10))],
  )
  await client.query(`
    insert into tool (name, description, user_id, definition_hash)
      select 'Tool ' || n, 'Looks things up, number ' || n, ${user('1')}, known.hashes[1 + n % 100]
      from ${rows(TOOLS)}, (select array_agg(hash order by hash) hashes from tool_definition) known`)
  const ring = parseKeyRing(keys)
  const sealed = Array.from({ length: TOOLS }, (_, i) =>
    encryptSecret(ring, `key of tool ${i + 1}`, { toolId: i + 1, headerName: 'X-Api-Key' }),
  )
  await client.query(
    `insert into tool_header
      select n, 0, 'X-Api-Key', $1, nonce, ciphertext, sha256(convert_to(n::text, 'UTF8'))
      from unnest($2::bytea[], $3::bytea[]) with ordinality each (nonce, ciphertext, n)`,
    [ring.currentId, sealed.map(({ nonce }) => nonce), sealed.map(({ ciphertext }) => ciphertext)],
  )
  await client.query(
    `insert into persona (name, description, num_chunks, recency_bias, llm_filter_extraction, llm_relevance_filter,
        system_prompt, task_prompt, starter_messages, is_public, owner_id)
      select 'Agent ' || n, 'Answers questions, number ' || n, 10, 'auto', true, false, $1, 'Answer in two sentences.',
        '[{"name":"Holidays","message":"How many days of holiday do I have?"}]', n % 10 = 0, ${user('1')} from ${rows(AGENTS)}`,
    [SYSTEM_PROMPT],
  )
  await client.query(`
    insert into persona_tool select n, 1 + (n * 2 + k) % ${TOOLS} from ${rows(AGENTS)}, generate_series(0, 1) k;
    insert into persona_document_set select n, 1 + n % 1000 from ${rows(AGENTS)};
    insert into persona_label select n, 1 + n % 100 from ${rows(AGENTS)};
    insert into persona_user select n, ${user('3 + n * 5 % 998')}, 'viewer' from ${rows(AGENTS)};
    insert into persona_group select n, 1 + n % ${GROUPS}, 'editor' from ${rows(AGENTS)} where n % 2 = 0;`)
  await client.query('insert into token (hash, user_id, last_used_at) values ($1, $2, now())', [hash, ALICE])
  const runtime = mintToken('runtime')
  await client.query(
    `insert into token (hash, user_id, scopes, last_used_at) select $1, $2, '{runtime}', now()
      from pg_constraint where conname = 'token_scopes_known' and pg_get_constraintdef(oid) like '%runtime%'`,
    [runtime.hash, ALICE],
  )
  await client.query('vacuum (analyze)')
  return { token, runtimeToken: runtime.token, unknownToken: mintToken('person').token }
}

/** Fills the database of `floor.ts` with the same agents as `fillWorld`, and with Alice's token. */
export async function fillFloor(client: pg.Client, { token }: World): Promise<void> {
  await client.query(`
    create table floor_token (hash bytea primary key, user_id uuid not null);
    create table floor_agent (id integer primary key, version integer not null, content jsonb not null);
    create table floor_audit (agent_id integer, version integer, user_id uuid, content jsonb, at timestamptz default now(),
      primary key (agent_id, version));`)
  await client.query(`insert into floor_token values (sha256(convert_to($1, 'UTF8')), $2)`, [`Bearer ${token}`, ALICE])
  const bodies = Array.from({ length: AGENTS }, (_, i) => agentBody(i + 1, `Answers questions, number ${i + 1}`))
  await client.query(
    `insert into floor_agent select i, 1, body from json_array_elements($1) with ordinality e (body, i)`,
    [JSON.stringify(bodies)],
  )
  await client.query('vacuum (analyze)')
}

/** Returns the body of an agent update with two tools, one document set and one label. */
export function agentBody(id: number, description: string) {
  return {
    name: `Agent ${id}`,
    description,
    num_chunks: 10,
    is_public: id % 10 === 0,
    recency_bias: 'auto',
    llm_filter_extraction: true,
    llm_relevance_filter: false,
    system_prompt: SYSTEM_PROMPT,
    task_prompt: 'Answer in two sentences.',
    datetime_aware: true,
    starter_messages: [{ name: 'Holidays', message: 'How many days of holiday do I have?' }],
    tool_ids: [1 + ((id * 2) % TOOLS), 1 + ((id * 2 + 1) % TOOLS)].sort((a, b) => a - b),
    document_set_ids: [1 + (id % 1_000)],
    label_ids: [1 + (id % 100)],
    remove_image: false,
    user_file_ids: [],
  }
}

/** Returns a tool definition. All operations have parameters, and half of the operations have a request body. Adds `filler` to each description. */
export function definitionOf(operations: number, title = 'Orders', filler = '', name = 'orderOperation') {
  const parameter = (name: string, where: string, schema: object) => {
    return { name, in: where, required: where === 'path', description: `The ${name} of the order`, schema }
  }
  const properties = {
    state: { type: 'string', enum: ['open', 'paid', 'sent'] },
    note: { type: 'string', maxLength: 500, description: 'Shown on the invoice' },
  }
  const body = { content: { 'application/json': { schema: { type: 'object', required: ['state'], properties } } } }
  const operation = (i: number) => ({
    operationId: `${name}${i}`,
    summary: `Operation ${i} on an order`,
    description: `Says what it does. ${filler}`,
    parameters: [
      parameter('id', 'path', { type: 'string' }),
      parameter('expand', 'query', { type: 'array', items: { type: 'string' } }),
    ],
    ...(i % 4 === 1 || i % 4 === 2 ? { requestBody: body } : {}),
    responses: { '200': { description: 'The order as it is now' } },
  })
  const methods = ['get', 'put', 'post', 'delete']
  const paths = Array.from({ length: operations }, (_, i) => [
    `/orders/${i}/{id}`,
    { [methods[i % 4] ?? 'get']: operation(i) },
  ])
  return {
    openapi: '3.0.0',
    info: { title, version: '1.0.0' },
    servers: [{ url: 'https://orders.example.com/v1' }],
    paths: Object.fromEntries(paths),
  }
}
