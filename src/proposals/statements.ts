import { type Kysely, sql, type Transaction } from 'kysely'
import { managedAs, personaAccess } from '../auth/access.js'
import { type Caller, visibleAgents, visibleTools } from '../auth/caller.js'
import { type ViewerParameters, viewerParameters, viewerWithValues } from '../auth/viewer.js'
import { instant } from '../db/statements/queries.js'
import type { ProposalState, ResourceKind, Tables } from '../db/tables.js'
import { Refused } from '../errors.js'
import type { ProposedFields } from './kinds.js'

/** A proposal that the caller sees, with its record of now. */
export interface ProposalRow {
  id: number
  kind: ResourceKind
  record_id: number
  record_name: string
  record_version: number
  base_version: number
  author_id: string
  author: string
  message: string
  field_names: string[]
  /** The proposed fields that changed since the base. */
  conflicts: string[]
  state: ProposalState
  created_at: string
  closed_at: string | null
  closed_by: string | null
  closer: string | null
  reason: string | null
  /** True if the caller has the right to update the record. */
  may_decide: boolean
}

export interface AskedProposals {
  state?: ProposalState | undefined
  kind?: ResourceKind | undefined
  /** Of a record. */
  id?: number | undefined
  /** Of a proposal. */
  proposal?: number
  after?: number
  rows?: number
}

/** Reads the proposals of a caller, and those that they may decide: only of records that they see now, by id. */
export async function readProposals(
  db: Kysely<Tables>,
  caller: Caller,
  { state, kind, id, proposal, after = 0, rows = 1 }: AskedProposals,
): Promise<ProposalRow[]> {
  const viewer = viewerWithValues(viewerParameters(caller))
  const [agents, tools] = [visibleAgents(caller.token), visibleTools(caller.token)]
  const found = await sql<ProposalRow>`
    select q.id, q.resource_kind as kind, q.resource_id as record_id, coalesce(p.name, t.name) as record_name,
      coalesce(p.version, t.version) as record_version, q.base_version, q.author_id, a.email as author, q.message,
      array(select json_object_keys(q.fields)) as field_names, q.state, ${instant(sql.ref('q.created_at'))} as created_at,
      array(select c.field from jsonb_each_text(coalesce(p.field_versions, t.field_versions)) c (field, version)
        where c.version::integer > q.base_version and c.field = any (array(select json_object_keys(q.fields)))
        order by 1) as conflicts,
      ${instant(sql.ref('q.closed_at'))} as closed_at, q.closed_by, c.email as closer, q.reason, may_decide
    from proposal q
    join user_account a on a.id = q.author_id
    left join user_account c on c.id = q.closed_by
    left join persona p on q.resource_kind = 'persona' and p.id = q.resource_id and not p.deleted
    left join tool t on q.resource_kind = 'tool' and t.id = q.resource_id
    cross join lateral (select ${personaAccess(viewer.user)} as access,
      case when t.id is not null then ${managedAs(viewer)} end as managed) r
    cross join lateral (select t.id is not null or p.id is not null and (${viewer.isAdmin} or access <> 'none') as is_seen,
      managed is not null
        or p.id is not null and not p.builtin_persona and (${viewer.isAdmin} or access in ('owner', 'editor')) as may_decide) s
    where is_seen and (may_decide or q.author_id = ${viewer.user}) and q.id > ${after}::integer
      and coalesce(q.state = ${state ?? null}::text, true) and coalesce(q.resource_kind = ${kind ?? null}::text, true)
      and coalesce(q.resource_id = ${id ?? null}::integer, true) and coalesce(q.id = ${proposal ?? null}::integer, true)
      and coalesce(q.resource_id = any (case q.resource_kind when 'tool' then ${tools}::integer[] else ${agents} end), true)
      -- Another tool may have the id of one that was removed.
      and (t.id is null or not exists (select from audit r where r.resource_kind = 'tool' and r.resource_id = t.id
        and r.version_after > q.base_version and 'removed' = any (r.fields)))
    order by q.id limit ${rows}::integer`.execute(db)
  return found.rows
}

/** Reads the proposed fields. The caller of this function has found the proposal. */
export async function readFields(db: Kysely<Tables>, id: number): Promise<ProposedFields> {
  const row = await db.selectFrom('proposal').select('fields').where('id', '=', id).executeTakeFirst()
  return row?.fields ?? {}
}

/** Locks a proposal until the transaction ends. */
export async function lockProposal(trx: Kysely<Tables>, id: number): Promise<void> {
  await trx.selectFrom('proposal').select('id').where('id', '=', id).forUpdate().execute()
}

const OF_AUTHOR_MAX = 100
const OF_RECORD_MAX = 20
const BYTES_OF_RECORD_MAX = 64 * 2 ** 20

interface NewProposal {
  resource_kind: ResourceKind
  resource_id: number
  base_version: number
  author_id: string
  message: string
  fields: ProposedFields
  definition: { text: string; hash: string } | null
}

/**
 * Stores a proposal of a record that the transaction has locked, and returns its id; undefined if the author's rights have changed. Throws
 * `Refused` if there are too many.
 */
export async function insertProposal(
  trx: Transaction<Tables>,
  { fields, definition, ...row }: NewProposal,
  viewer: ViewerParameters,
): Promise<number | undefined> {
  const text = JSON.stringify(fields)
  const size_bytes = Buffer.byteLength(text) + Buffer.byteLength(definition?.text ?? '')
  await sql`select pg_advisory_xact_lock(hashtext(${`proposals of ${row.author_id}`}))`.execute(trx)
  await requireRoom(trx, row, size_bytes)
  const hash = definition && Buffer.from(definition.hash, 'hex')
  if (definition !== null)
    await sql`
      insert into tool_definition (hash, content, size_bytes)
      values (${hash}, ${definition.text}::json, ${Buffer.byteLength(definition.text)})
      on conflict (hash) do update set size_bytes = excluded.size_bytes -- locks the row against pruning`.execute(trx)
  const { rows } = await sql<{ id: number }>`
    insert into proposal (resource_kind, resource_id, base_version, author_id, message, fields, definition_hash, size_bytes)
    select ${row.resource_kind}, ${row.resource_id}::integer, ${row.base_version}::integer, ${row.author_id}::uuid,
      ${row.message}, ${text}::json, ${hash}::bytea, ${size_bytes}::integer
    where ${viewerWithValues(viewer).grantsStand} returning id`.execute(trx)
  return rows[0]?.id
}

async function requireRoom(
  trx: Transaction<Tables>,
  { resource_kind, resource_id, author_id }: Pick<NewProposal, 'resource_kind' | 'resource_id' | 'author_id'>,
  bytes: number,
): Promise<void> {
  const ofRecord = sql`resource_kind = ${resource_kind} and resource_id = ${resource_id}::integer`
  const open = await sql<{ of_author: number; of_record: number; bytes: number }>`
    select count(*) filter (where author_id = ${author_id}::uuid)::integer as of_author,
      count(*) filter (where ${ofRecord})::integer as of_record,
      coalesce(sum(size_bytes) filter (where ${ofRecord}), 0)::float8 as bytes
    from proposal where state = 'open' and (author_id = ${author_id}::uuid or ${ofRecord})`.execute(trx)
  const [found = { of_author: 0, of_record: 0, bytes: 0 }] = open.rows
  const what = resource_kind === 'persona' ? 'agent' : 'tool'
  const full = [
    ...(found.of_author >= OF_AUTHOR_MAX ? [`You have ${OF_AUTHOR_MAX} open proposals`] : []),
    ...(found.of_record >= OF_RECORD_MAX ? [`This ${what} has ${OF_RECORD_MAX} open proposals`] : []),
    ...(found.bytes + bytes > BYTES_OF_RECORD_MAX
      ? [`The open proposals of this ${what} would take more than ${BYTES_OF_RECORD_MAX} bytes`]
      : []),
  ]
  if (full[0] !== undefined) throw new Refused('PROPOSALS_FULL', `${full[0]}, which is the most. Wait for their end.`)
}
