import { type Kysely, sql, type Transaction } from 'kysely'
import { OPERATOR } from '../../auth/viewer.js'
import { databaseTimeMs } from '../../db/clock.js'
import type { Database } from '../../db/tables.js'
import { BLANK_AGENT } from '../../persona/fields.js'
import { toolResource } from '../../tool/resource.js'
import { recordAccess } from '../../updates/access-events.js'
import { type Actor, auditEntry } from '../../updates/audit.js'
import { auditColumns } from '../../updates/audit-rows.js'
import { lockState } from '../../updates/write.js'
import { type OrganisationDocument, SECTIONS, type SectionName } from '../document.js'
import { type Catalogue, type StoredRow, TABLES } from './catalogue.js'
import { changePersona } from './personas.js'
import { ACCESS_KIND } from './reference-sections.js'
import type { Outcome } from './report.js'
import type { Plan } from './step.js'

/**
 * Decides what becomes of rows that no entry names, in the lists that the document has. Without `prune` they are only reported.
 *
 * With it: agents are deleted as the service deletes them (marked, and taken out of every relation), users are deactivated, as
 * the audit trail and what they own refer to them; everything else is removed, unless something that stays refers to it.
 */
export async function planPruning(
  db: Kysely<Database>,
  catalogue: Catalogue,
  document: OrganisationDocument,
  prune: boolean,
): Promise<Plan> {
  const lists = SECTIONS.filter(section => document[section] !== undefined).reverse()
  const candidates = lists.flatMap(section =>
    catalogue
      .unnamed(section)
      .filter(row => row.deleted !== true && !(section === 'users' && prune && row.active === false))
      .map(row => ({ section, row, outcome: outcomeOf(section, row, prune) })),
  )
  const outcomes = candidates.map(candidate => candidate.outcome)
  if (!prune) return { outcomes, steps: [] }
  const going = new Map(
    lists.map(section => [section, new Set(candidates.filter(c => c.section === section).map(c => c.row.id))]),
  )
  for (const { section, row, outcome } of candidates) {
    const user = section === 'agents' || section === 'users' ? undefined : await usedBy(db, section, row, going)
    if (user === undefined) continue
    Object.assign(outcome, { action: 'kept', reason: `still used by ${user}` })
    going.get(section)?.delete(row.id)
  }
  return {
    outcomes,
    steps: candidates
      .filter(({ outcome }) => outcome.action === 'removed')
      .map(({ section, row }) => ({
        rows: 1,
        people: section === 'users',
        run: (trx, actor) => removeRow(trx, section, row, actor),
      })),
  }
}

function outcomeOf(section: SectionName, row: StoredRow, prune: boolean): Outcome {
  const name = String(row[TABLES[section].named])
  return { section, id: row.id, name, action: prune ? 'removed' : 'only_here', fields: [] }
}

interface Use {
  table: keyof Database
  column: string
  /** The user: its list, and the column of its id in the table. */
  by: SectionName
  byColumn: string
}

/** Where rows of a list are referred to by rows that would go on living. Shares and memberships go with the row. */
const USES: Partial<Record<SectionName, readonly Use[]>> = {
  groups: [
    { table: 'persona_group', column: 'user_group_id', by: 'agents', byColumn: 'persona_id' },
    { table: 'document_set_group', column: 'user_group_id', by: 'document_sets', byColumn: 'document_set_id' },
  ],
  labels: [{ table: 'persona_label', column: 'label_id', by: 'agents', byColumn: 'persona_id' }],
  oauth_configs: [{ table: 'tool', column: 'oauth_config_id', by: 'tools', byColumn: 'id' }],
  mcp_servers: [{ table: 'tool', column: 'mcp_server_id', by: 'tools', byColumn: 'id' }],
  cc_pairs: [{ table: 'document_set_cc_pair', column: 'cc_pair_id', by: 'document_sets', byColumn: 'document_set_id' }],
  federated_connectors: [
    {
      table: 'document_set_federated_connector',
      column: 'federated_connector_id',
      by: 'document_sets',
      byColumn: 'document_set_id',
    },
  ],
  document_sets: [{ table: 'persona_document_set', column: 'document_set_id', by: 'agents', byColumn: 'persona_id' }],
  user_files: [{ table: 'persona_user_file', column: 'user_file_id', by: 'agents', byColumn: 'persona_id' }],
  tools: [{ table: 'persona_tool', column: 'tool_id', by: 'agents', byColumn: 'persona_id' }],
}

async function usedBy(
  db: Kysely<Database>,
  section: SectionName,
  row: StoredRow,
  going: ReadonlyMap<SectionName, ReadonlySet<number | string>>,
): Promise<string | undefined> {
  for (const { table, column, by, byColumn } of USES[section] ?? []) {
    const { rows } = await sql<{ id: number }>`
      select ${sql.ref(byColumn)} as id from ${sql.table(table)} where ${sql.ref(column)} = ${row.id} order by 1`.execute(
      db,
    )
    const user = rows.find(({ id }) => !going.get(by)?.has(id))
    if (user) return `${by} ${user.id}`
  }
  return undefined
}

const LINKS: Partial<Record<SectionName, readonly [keyof Database, string][]>> = {
  groups: [['user_group_member', 'user_group_id']],
  document_sets: [
    ['document_set_user', 'document_set_id'],
    ['document_set_group', 'document_set_id'],
    ['document_set_cc_pair', 'document_set_id'],
    ['document_set_federated_connector', 'document_set_id'],
  ],
  tools: [['tool_header', 'tool_id']],
}

/** Removes one row as pruning does: an agent is marked deleted, a user deactivated, what belongs to any other row goes with it. */
export async function removeRow(
  trx: Transaction<Database>,
  section: SectionName,
  row: Pick<StoredRow, 'id'>,
  actor: Actor,
): Promise<void> {
  if (section === 'agents') {
    const { tool_ids, document_set_ids, label_ids, user_file_ids, users, groups } = BLANK_AGENT
    const nothing = { tool_ids, document_set_ids, label_ids, user_file_ids, users, groups }
    await changePersona(trx, Number(row.id), state => ({ ...state, ...nothing, deleted: true }), actor)
    return
  }
  if (section === 'users') {
    await trx.updateTable('user_account').set({ active: false }).where('id', '=', String(row.id)).execute()
    await recordAccess(trx, actor, [{ kind: 'user', subject: String(row.id), action: 'deactivated' }])
    return
  }
  if (section === 'tools') await auditRemoval(trx, Number(row.id), actor)
  for (const [table, column] of LINKS[section] ?? []) {
    await sql`delete from ${sql.table(table)} where ${sql.ref(column)} = ${row.id}`.execute(trx)
  }
  await sql`delete from ${sql.table(TABLES[section].table)} where id = ${row.id}`.execute(trx)
  const kind = ACCESS_KIND[section]
  if (kind !== undefined) await recordAccess(trx, actor, [{ kind, subject: String(row.id), action: 'removed' }])
}

/** The last row of a tool's chain says that it was removed: `audit verify` knows by it why the tool is not there. */
async function auditRemoval(trx: Transaction<Database>, id: number, actor: Actor): Promise<void> {
  const state = await lockState(trx, toolResource, id, OPERATOR)
  if (state === undefined) return
  const changes = [
    { field: 'definition', from: state.definition_hash, to: null },
    { field: 'removed', from: false, to: true },
  ]
  const content = { definitionBefore: state.definition_hash, contentHash: null }
  const entry = auditEntry({ kind: 'tool', ...state }, changes, actor, databaseTimeMs(state), content)
  await trx.insertInto('audit').values(auditColumns(entry)).execute()
}
