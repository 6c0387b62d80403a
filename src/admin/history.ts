import type { Kysely, Transaction } from 'kysely'
import { UNKNOWN_ATTACHER } from '../auth/access.js'
import { OPERATOR } from '../auth/viewer.js'
import type { Database } from '../db/database.js'
import type { ResourceKind, Tables } from '../db/tables.js'
import { inTransaction } from '../db/transaction.js'
import { VersionUnusable } from '../errors.js'
import { personaChanges } from '../persona/history.js'
import { personaResource } from '../persona/resource.js'
import { decisionFor } from '../persona/rules.js'
import type { PersonaState } from '../persona/state.js'
import type { KeyRing } from '../secrets/key-ring.js'
import { REQUEST_FIELDS } from '../tool/fields.js'
import { toolChanges } from '../tool/history.js'
import { toolResource, toolThen } from '../tool/resource.js'
import { contentOf } from '../tool/rules.js'
import type { ToolState } from '../tool/snapshot.js'
import type { Actor } from '../updates/audit.js'
import { changeAsOperator } from '../updates/engine.js'
import { sameValue } from '../updates/field-table.js'
import { entryOf, type HistoryRow, readHistory } from '../updates/history.js'
import { inOneSnapshot, readPast } from '../updates/read.js'
import { changeNotes, decideAsOperator, definitionImpact, type GivenTool, giveDefinition } from './apply/tools.js'
import { changesInWords, readReferences } from './apply/words.js'
import { operatorActor } from './operator.js'
import { Refusal } from './refusal.js'
import { deletionOf, NOUN } from './resources.js'

/**
 * The listed versions of an agent or tool, newest first. Versions from `kept_from` on can be restored. `deleted` has time and author of a
 * deletion. Throws `Refusal` if the id never existed.
 */
export async function listHistory(db: Kysely<Tables>, kind: ResourceKind, id: number, limit = 100) {
  return await inOneSnapshot({ db }, async trx => {
    const first = await readHistory(trx, kind, id, { limit }, true)
    const { current, keptFrom, removed } = first
    if (current === undefined) throw new Refusal(`there is no ${NOUN[kind]} ${id}`)
    const { rows } = first
    let { hasMore } = first
    while (hasMore && rows.length < limit) {
      const page = await readHistory(trx, kind, id, { limit: limit - rows.length, before: rows.at(-1)?.version }, true)
      rows.push(...page.rows)
      hasMore = page.hasMore
    }
    const changes = await changesOf(trx, kind, id, rows)
    const versions = rows.map((row, index) => entryOf(row, first, changes[index]))
    const deleted = await deletionOf(trx, kind, id)
    return {
      kind,
      id,
      current,
      kept_from: Math.max(keptFrom, removed + 1),
      ...(deleted && { deleted }),
      versions,
      hasMore,
    }
  })
}

async function changesOf(trx: Transaction<Tables>, kind: ResourceKind, id: number, rows: readonly HistoryRow[]) {
  if (kind === 'tool') {
    const state = await toolResource.read(trx, id, OPERATOR)
    const removed = { id, headers: [], managed_as: 'all' as const, oauth_config_id: null }
    return (await toolChanges(trx, state ?? removed, rows, OPERATOR)).changes
  }
  const state = await personaResource.read(trx, id, OPERATOR)
  return state === undefined ? [] : await personaChanges(trx, state, rows, OPERATOR)
}

/** `plan`: only decide, store nothing. */
interface Options {
  plan?: boolean
  actor?: Actor
}

/**
 * Restores an old version of an agent as a new version, with the checks and audit row of any change. `left` names fields that were not
 * restored. Throws `Refusal` if the version is not kept, the agent is built in, or a referenced row is gone.
 */
export async function restorePersona(
  database: Pick<Database, 'db'>,
  id: number,
  version: number,
  { plan = false, actor = operatorActor('agentctl agent restore') }: Options = {},
) {
  const result = await inTransaction(database, { rollback: plan }, trx => {
    const decide = async (state: PersonaState) => {
      const values = await readPast(trx, 'persona', id, version)
      const past = await personaResource.past(trx, state, values, OPERATOR)
      if (past.notes.length > 0) throw new VersionUnusable(version, past.notes)
      return { ...decisionFor(state, past.state), attacher: UNKNOWN_ATTACHER }
    }
    return changeAsOperator(trx, personaResource, id, decide, actor)
  })
  const changes = changesInWords(result.changes, await readReferences(database.db))
  return { ...result, changes, impact: [], left: [] as string[], notes: [] as string[] }
}

/**
 * Restores an old version of a tool as a new version. The definition keeps its exact text and is checked again. Secrets are not restored:
 * the headers stay as they are. Throws `Refusal`, or `InvalidRequest` if it breaks a current rule.
 */
export async function restoreTool(
  database: Pick<Database, 'db'>,
  ring: KeyRing,
  id: number,
  version: number,
  { plan = false, actor = operatorActor() }: Options = {},
) {
  return await inTransaction(database, { rollback: plan }, async trx => {
    let left: string[] = []
    let notes: string[] = []
    let impact: string[] = []
    const decide = async (state: ToolState) => {
      const then = await toolThen(trx, state, await readPast(trx, 'tool', id, version))
      left = sameValue(then.headers, state.headers) ? [] : ['custom_headers']
      const given = await givenByHistory(trx, state, then)
      notes = await changeNotes(trx, state, given, ring)
      impact = await definitionImpact(trx, state, given)
      return decideAsOperator(state, given, ring)
    }
    const deleted = await deletionOf(trx, 'tool', id)
    if (deleted) throw new Refusal(`tool ${id} was ${deleted}, with its secrets: make it anew with agentctl apply`)
    const result = await changeAsOperator(trx, toolResource, id, decide, actor)
    const changes = changesInWords(result.changes, await readReferences(trx))
    return { ...result, changes, impact, left, notes }
  })
}

const PLAIN_FIELDS: ReadonlySet<string> = new Set(REQUEST_FIELDS.map(([name]) => name))

async function givenByHistory(trx: Transaction<Tables>, state: ToolState, then: ToolState) {
  const { definition_text: text } = then
  const content = contentOf(then)
  const given: GivenTool = { fields: {}, columns: {}, definitionFaults: [] }
  const { definition_hash: hash, ...columns } = content
  for (const [field, value] of Object.entries(columns)) {
    Object.assign(PLAIN_FIELDS.has(field) ? given.fields : given.columns, { [field]: value })
  }
  if (hash !== state.definition_hash && hash !== null && text !== undefined) {
    const headerNames = state.headers.map(header => header.name)
    // Stores the original text, not the parsed value: even the form of numbers must not change.
    giveDefinition(given, JSON.parse(text), headerNames, ['body', 'definition'], text)
  }
  const id = content.oauth_config_id
  const isGone =
    id !== null && !(await trx.selectFrom('oauth_config').select('id').where('id', '=', id).executeTakeFirst())
  if (isGone) throw new VersionUnusable(state.version, [`OAuth configuration ${id}`])
  return given
}
