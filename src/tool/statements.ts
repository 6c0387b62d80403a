import { type Kysely, type SqlBool, sql, type Transaction } from 'kysely'
import { managedTool, tokenWith, VIEWER_TYPES, type ViewerParameters, viewerOf } from '../auth/viewer.js'
import { bytesOf, named, on, queries } from '../db/statements/queries.js'
import { type Param, statement } from '../db/statements/statement.js'
import type { Tables } from '../db/tables.js'
import { pagesOf, type ReadPage } from '../updates/list.js'
import {
  AUDIT_TYPES,
  type AuditParameters,
  insertAudit,
  nextHash,
  nextVersion,
  type WriteParameters,
  writing,
} from '../updates/statements.js'
import { COLUMNS, type ToolColumn } from './fields.js'
import { hasNamesBeside } from './function-names.js'
import type { CheckedDefinition, PlannedHeader } from './rules.js'
import { ToolSummary } from './schema.js'

const tool = on<{ t: 'tool' }>()

/**
 * Reads an OAuth configuration if the viewer owns it or has `manage:actions` (DECISIONS section 6). With `locks`, locks the row, so that the owner
 * stays the same until the tool is written.
 */
export async function readLinkable(db: Kysely<Tables>, id: number, viewer: ViewerParameters, locks = false) {
  const config = db.selectFrom('oauth_config').select(['id', 'name']).where('id', '=', id)
  const linkable = config.$if(!viewer.manages_all, query => query.where('owner_id', '=', viewer.user))
  return await linkable.$if(locks, query => query.forShare()).executeTakeFirst()
}

interface ToolParameters {
  definition_hash: string | null
  /** The function names of a new definition. */
  names: readonly string[]
}

/** Stores a tool's columns and its audit row. Stores nothing if the tool is locked, or if its version or the caller's rights have changed. */
export const writeTool = writing<ToolColumn, ToolParameters, { version: number; has_names_beside: boolean }>(
  'tool_write',
  COLUMNS,
  { definition_hash: 'text', names: 'text[]' },
  (param, changed) => {
    const written = queries()
      .with(
        cte => cte('locked').materialized(),
        () => lockedTool(param),
      )
      .with('changed', db =>
        db
          .updateTable('tool as t')
          .from('locked')
          .set({
            ...changed,
            definition_hash: bytesOf(param('definition_hash')),
            ...nextVersion('t', param),
          })
          .whereRef('t.id', '=', 'locked.id')
          .returning(['t.audit_head as hash', 'locked.previous']),
      )
    return insertAudit(param, written).returning(named(hasNamesBeside(param), 'has_names_beside'))
  },
)

/** Removes a tool with its headers and adds an audit row. Removes nothing if the tool's version or the caller's rights have changed. */
export const removeTool = statement<
  ViewerParameters & AuditParameters & { id: number; version: number },
  { version: number }
>(
  'tool_remove',
  { ...VIEWER_TYPES, ...AUDIT_TYPES, id: 'integer', version: 'integer' },
  param => {
    const removed = queries()
      .with('changed', db =>
        db
          .deleteFrom('tool as t')
          .where('t.id', '=', param('id'))
          .where('t.version', '=', param('version'))
          .where(mayManage(param))
          .returning(({ ref }) => [
            't.id',
            't.audit_head as previous',
            nextHash(param, ref('t.audit_head')).as('hash'),
          ]),
      )
      .with('headers', db =>
        db.deleteFrom('tool_header as h').using('changed').whereRef('h.tool_id', '=', 'changed.id'),
      )
    return insertAudit(param, removed)
  },
  'writes',
)

/** SQL: locks the tool `t`. Selects no row if another transaction has the lock, or if the tool or the viewer's rights changed since the decision. */
function lockedTool(param: Param<WriteParameters>) {
  return queries()
    .selectFrom('tool as t')
    .select(['t.id', 't.audit_head as previous'])
    .where('t.id', '=', param('id'))
    .where('t.version', '=', param('version'))
    .where(mayManage(param))
    .forNoKeyUpdate('t')
    .skipLocked()
}

/** SQL: true if the viewer still manages the tool `t` and their token still has the same rights. */
function mayManage(param: Param<ViewerParameters>) {
  return sql<SqlBool>`exists (select from ${tokenWith(param)}, ${managedTool(viewerOf(param))})`
}

/**
 * Stores a definition if it is not stored yet. The insert is a separate statement, because it can wait for a concurrent request, and a statement that
 * has waited would check outdated rights. Without a transaction (`alone`), the commit need not wait for the disk, because the later commit of the
 * tool waits for both. Unreferenced definitions are pruned later.
 */
export const storeDefinition = statement<CheckedDefinition & { bytes: number; alone: boolean }, never>(
  'tool_definition_store',
  { hash: 'text', text: 'text', bytes: 'integer', names: 'text[]', alone: 'boolean' },
  param => {
    const content = tool.cast<string>(param('text'), 'json')
    const given = [
      bytesOf(param('hash')).as('hash'),
      content.as('content'),
      named(param('bytes'), 'size_bytes'),
      named(param('names'), 'function_names'),
    ] as const
    return queries()
      .insertInto('tool_definition')
      .columns(['hash', 'content', 'size_bytes', 'function_names'])
      .expression(
        queries()
          .selectNoFrom(given)
          .where(
            sql<SqlBool>`case when ${param('alone')} then set_config('synchronous_commit', 'off', true) = 'off' else true end`,
          ),
      )
      .onConflict(conflict => conflict.column('hash').doNothing())
  },
)

/** Replaces the headers of a tool. Kept values are not encrypted again. */
export async function writeHeaders(trx: Transaction<Tables>, id: number, headers: readonly PlannedHeader[]) {
  const stored = await trx.deleteFrom('tool_header').where('tool_id', '=', id).returningAll().execute()
  const rows = headers.map(({ name, mask, sealed }, position) => {
    const kept = stored.find(header => header.name.toLowerCase() === name.toLowerCase())
    const own = sealed && { key_id: sealed.keyId, nonce: sealed.nonce, ciphertext: sealed.ciphertext }
    const secret = own ?? kept
    if (secret === undefined) throw new Error(`the header ${name} of tool ${id} is no longer stored`)
    const { key_id, nonce, ciphertext } = secret
    return { tool_id: id, position, name, mask: Buffer.from(mask, 'hex'), key_id, nonce, ciphertext }
  })
  if (rows.length > 0) await trx.insertInto('tool_header').values(rows).execute()
}

const DISPLAY_NAME = on<{ r: 'tool' }>().fn.coalesce('r.display_name', 'r.name')
const readPage = pagesOf('tool', ToolSummary, 'user_id', { display_name: DISPLAY_NAME })

/** Reads a page of tools. A bound token sees only the tools that it is bound to (DECISIONS section 6). */
export const readToolPage: ReadPage = (db, { token }, asked) => readPage(db, asked, token.bound?.tool ?? null)
