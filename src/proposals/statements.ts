import { type Kysely, sql, type Transaction } from 'kysely'
import type { Caller } from '../auth/caller.js'
import { managedAs, personaAccess, viewerParameters, viewerWithValues } from '../auth/viewer.js'
import { instant } from '../db/statements/queries.js'
import type { ProposalState, ResourceKind, Tables } from '../db/tables.js'
import { Refused, ResourceNotFound, TRY_AGAIN, Unavailable } from '../errors.js'
import type { CheckedDefinition } from '../tool/rules.js'
import { CHANGES_READ_MAX } from '../updates/precondition.js'
import type { ProposedFields } from './kinds.js'

/** A proposal that the caller can see. `record` has a name and a version only if the caller can see the record. */
export interface ProposalRow {
  id: number
  kind: ResourceKind
  record: { id: number; name: string | null; version: number | null }
  base_version: number
  author: { id: string; email: string }
  message: string
  fields: string[]
  /** The proposed fields that changed after the base version. Empty if the proposal has ended; null if the caller cannot see the record. */
  conflicts: string[] | null
  state: ProposalState
  created_at: string
  closed_at: string | null
  closed_by: { id: string; email: string } | null
  reason: string | null
  /** True if the caller can see the record now. */
  is_seen: boolean
  /** True if the caller may update the record and therefore decide on the proposal. */
  may_decide: boolean
}

export interface AskedProposals {
  state?: ProposalState | undefined
  kind?: ResourceKind | undefined
  /** The id of the record that the proposals are for. */
  id?: number | undefined
  after?: number
  rows?: number
}

/**
 * Reads the caller's own proposals and the proposals that the caller may decide on, sorted by id. With `proposal`, reads only this proposal.
 * Otherwise, reads ended proposals of other authors only with `id`, because no index finds them without the id of their agent or tool.
 */
export async function readProposals(
  db: Kysely<Tables>,
  caller: Caller,
  { state, kind, id, after = 0, rows = 1 }: AskedProposals,
  proposal?: number,
): Promise<ProposalRow[]> {
  const viewer = viewerWithValues(viewerParameters(caller))
  const { persona: agents = null, tool: tools = null } = caller.token.bound ?? {}
  const person = (alias: string) =>
    sql`json_build_object('id', ${sql.ref(`${alias}.id`)}, 'email', ${sql.ref(`${alias}.email`)})`
  const from =
    id === undefined
      ? sql`author_id = ${viewer.user} union all select id from proposal where state = 'open'`
      : sql`resource_id = ${id}::integer and resource_kind in ('persona', 'tool')`
  const isLater = sql`r.resource_kind = q.resource_kind and r.resource_id = q.resource_id and r.version_after > q.base_version`
  const asked = [
    proposal === undefined ? sql`q.id in (select id from proposal where ${from})` : sql`q.id = ${proposal}::integer`,
    ...(state === undefined ? [] : [sql`q.state = ${state}`]),
    ...(kind === undefined ? [] : [sql`q.resource_kind = ${kind}`]),
  ]
  const found = await sql<ProposalRow>`
    select q.id, q.resource_kind as kind, q.state, ${person('a')} as author, q.message, q.base_version, proposed as fields,
      json_build_object('id', q.resource_id, 'name', case when is_seen then coalesce(p.name, t.name) end,
        'version', case when is_seen then coalesce(p.version, t.version) end) as record,
      -- If there were very many changes after the base version, or some were pruned, each field counts as changed.
      case when is_seen then array(select f from unnest(proposed) f where q.state = 'open' and newer > 0 and (
        newer > ${sql.lit(CHANGES_READ_MAX)} or not exists (select from audit r where ${isLater} and r.version_before = q.base_version)
        or exists (select from audit r where ${isLater} and f = any (r.fields))) order by 1) end as conflicts,
      ${instant(sql.ref('q.created_at'))} as created_at, ${instant(sql.ref('q.closed_at'))} as closed_at,
      case when c.id is not null then ${person('c')} end as closed_by, q.reason, is_seen, is_seen and may_update as may_decide
    from proposal q
    join user_account a on a.id = q.author_id
    left join user_account c on c.id = q.closed_by
    left join persona p on q.resource_kind = 'persona' and p.id = q.resource_id and not p.deleted
    left join tool t on q.resource_kind = 'tool' and t.id = q.resource_id
    cross join lateral (select array(select json_object_keys(q.fields)) as proposed, ${personaAccess(viewer.user)} as access,
      coalesce(p.version, t.version) - q.base_version as newer,
      case when t.id is not null then ${managedAs(viewer)} end as managed) r
    -- A new tool can have the id of a removed tool.
    cross join lateral (select p.id is not null and (${viewer.isAdmin} or access <> 'none') or t.id is not null
        and not exists (select from audit r where ${isLater} and 'removed' = any (r.fields)) as is_seen,
      managed is not null
        or p.id is not null and not p.builtin_persona and (${viewer.isAdmin} or access in ('owner', 'editor')) as may_update) s
    where (is_seen and may_update or q.author_id = ${viewer.user}) and q.id > ${after}::integer
      and ${sql.join(asked, sql` and `)}
      and coalesce(q.resource_id = any (case q.resource_kind when 'tool' then ${tools}::integer[] else ${agents} end), true)
    order by q.id limit ${rows}::integer`.execute(db)
  return found.rows
}

/** Reads one proposal that the caller can see. Throws `ResourceNotFound`. */
export async function readProposal(db: Kysely<Tables>, caller: Caller, id = 0): Promise<ProposalRow> {
  const [row] = await readProposals(db, caller, {}, id)
  if (row === undefined) throw new ResourceNotFound('proposal')
  return row
}

/** Reads the proposed values of a proposal. The caller's right to see the proposal must have been checked. */
export async function readFields(db: Kysely<Tables>, { id }: ProposalRow): Promise<ProposedFields> {
  return (await db.selectFrom('proposal').select('fields').where('id', '=', id).executeTakeFirstOrThrow()).fields
}

/** The limits on open proposals. `OF_BOTH_MAX` applies to the proposals of one author for one record. */
const [OF_AUTHOR_MAX, OF_BOTH_MAX, OF_RECORD_MAX, MIB_OF_RECORD_MAX] = [100, 5, 20, 64]

interface NewProposal {
  kind: ResourceKind
  id: number
  version: number
  message: string
  fields: ProposedFields
  definition: CheckedDefinition | null
}

/** Stores a proposal and returns its id. The transaction must have locked the record. Throws `Unavailable` if the caller's rights have changed. */
export async function insertProposal(trx: Transaction<Tables>, caller: Caller, proposal: NewProposal): Promise<number> {
  const { kind, id, version, message, fields, definition } = proposal
  const [text, { userId: author }] = [JSON.stringify(fields), caller]
  const bytes = Buffer.byteLength(text) + Buffer.byteLength(definition?.text ?? '')
  await sql`select pg_advisory_xact_lock(hashtext(${`proposals of ${author}`}))`.execute(trx)
  const hash = definition && Buffer.from(definition.hash, 'hex')
  if (definition !== null)
    await sql`
      insert into tool_definition (hash, content, size_bytes, function_names)
      values (${hash}, ${definition.text}::json, ${Buffer.byteLength(definition.text)}, ${definition.names})
      on conflict (hash) do update set size_bytes = excluded.size_bytes -- locks the row against pruning`.execute(trx)
  const { rows } = await sql<{ id: number }>`
    insert into proposal (resource_kind, resource_id, base_version, author_id, message, fields, definition_hash, size_bytes)
    select ${kind}, ${id}::integer, ${version}::integer, ${author}::uuid, ${message}, ${text}::json, ${hash}::bytea, ${bytes}::integer
    where ${viewerWithValues(viewerParameters(caller)).grantsStand} returning id`.execute(trx)
  if (rows[0] === undefined) throw rightsChanged()
  return rows[0].id
}

/** Throws `Refused` if the new proposal exceeds a limit. The maximum number for one record does not apply to callers who may update the record. */
export async function requireRoom(trx: Transaction<Tables>, { kind, record, author, may_decide }: ProposalRow) {
  const ofAuthor = sql`author_id = ${author.id}::uuid`
  const ofRecord = sql`(resource_kind = ${kind} and resource_id = ${record.id}::integer)`
  const { rows } = await sql<Record<'all' | 'own' | 'others' | 'mib', number>>`
    select count(*) filter (where ${ofAuthor}) as all, count(*) filter (where ${ofAuthor} and ${ofRecord}) as own,
      count(*) filter (where ${ofRecord}) as others, coalesce(sum(size_bytes) filter (where ${ofRecord}), 0) / ${2 ** 20}::float8 as mib
    from proposal where state = 'open' and (${ofAuthor} or ${ofRecord})`.execute(trx)
  const { all, own, others, mib } = rows[0] ?? { all: 0, own: 0, others: 0, mib: 0 }
  const ask = may_decide ? 'approve or reject some' : 'wait until some are decided'
  const full =
    Number(all) > OF_AUTHOR_MAX
      ? `You have ${OF_AUTHOR_MAX} open proposals, which is the maximum for one author: withdraw one.`
      : Number(own) > OF_BOTH_MAX
        ? `You have ${OF_BOTH_MAX} open proposals for this record, which is the maximum for one author: withdraw one.`
        : mib > MIB_OF_RECORD_MAX
          ? `With this proposal, the open proposals of this record would take more than ${MIB_OF_RECORD_MAX} MiB: ${ask}.`
          : Number(others) > OF_RECORD_MAX && !may_decide
            ? `This record has ${OF_RECORD_MAX} open proposals, which is the maximum for authors who cannot update the record: ${ask}.`
            : undefined
  if (full !== undefined) throw new Refused('PROPOSALS_FULL', full)
}

/** Returns the error for a caller whose rights have changed since they were read. */
export function rightsChanged(): Unavailable {
  return new Unavailable('overloaded', `Your rights were changed during this request. ${TRY_AGAIN}`, 'not_applied')
}
