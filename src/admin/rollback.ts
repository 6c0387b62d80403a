import { sql, type Transaction } from 'kysely'
import { OPERATOR } from '../auth/viewer.js'
import type { Database, ResourceKind } from '../db/tables.js'
import { inTransaction, type ServiceDatabase } from '../db/transaction.js'
import { VersionGone, VersionNotFound } from '../errors.js'
import { pastContent } from '../persona/past.js'
import { personaResource } from '../persona/resource.js'
import { parseExact } from '../schema/exact-json.js'
import type { Vault } from '../secrets/vault.js'
import { REQUEST_FIELDS } from '../tool/fields.js'
import { toolResource } from '../tool/resource.js'
import { shownHeaders } from '../tool/rules.js'
import type { ToolState } from '../tool/snapshot.js'
import type { Actor } from '../updates/audit.js'
import { type Past, readPastOf } from '../updates/past.js'
import { lockState } from '../updates/write.js'
import { changePersona } from './apply/personas.js'
import {
  changeNotes,
  changeTool,
  checkedDefinition,
  decideAsOperator,
  definitionTexts,
  type GivenTool,
} from './apply/tools.js'
import { operatorActor } from './operator.js'
import { Refusal } from './refusal.js'

export interface RollbackOptions {
  /** Only decide; nothing is stored. */
  plan?: boolean
  actor?: Actor
}

/**
 * Makes a new version of an agent with the content of an old one, with the same checks and audit row as any change.
 * Answers the new version, the changes, the fields that `left` names as not set back, and what the operator should know.
 * Throws `Refusal` when the version is not kept, the agent is built in, or something that it referred to is gone.
 */
export async function rollbackPersona(
  database: Pick<ServiceDatabase, 'db'>,
  id: number,
  version: number,
  { plan = false, actor = operatorActor(ROLLBACK_COMMAND) }: RollbackOptions = {},
) {
  return await inTransaction(database, { rollback: plan }, async trx => {
    const state = await lockState(trx, personaResource, id, OPERATOR)
    if (state === undefined) throw new Refusal(`there is no agent ${id}`)
    if (state.builtin_persona) throw new Refusal('this agent is built in')
    const { content, notes } = await pastContent(trx, state, await readThen(trx, 'persona', id, version))
    const restored = content.tool_ids.filter(tool => !state.tool_ids.includes(tool))
    const { rows } = await sql<{ id: number }>`
      select id from tool where id = any(${restored}::integer[]) and not enabled order by id`.execute(trx)
    const gone = [...notes, ...rows.map(tool => `disabled: tool ${tool.id}`)]
    if (gone.length > 0) throw new Refusal(`what that version refers to is not usable now: ${gone.join('; ')}`)
    const result = await changePersona(trx, id, () => content, actor)
    await restoreAttachers(trx, id, version, restored)
    return { name: state.name, ...result, left: [] as string[], notes: [] as string[] }
  })
}

/** An earlier version. Throws `Refusal` where it is not kept. */
async function readThen(trx: Transaction<Database>, kind: ResourceKind, id: number, version: number): Promise<Past> {
  try {
    return await readPastOf(trx, kind, id, { version })
  } catch (error) {
    if (error instanceof VersionGone || error instanceof VersionNotFound) throw new Refusal(error.message)
    throw error
  }
}

/** How the rows of rollbacks begin to say what made them. */
const ROLLBACK_COMMAND = 'agentctl rollback'

/**
 * A tool that comes back is attached by whom it was then: the newest row up to that version that attached it, other than a
 * rollback, says so. Otherwise a group manager would get into the scope what they attached themselves.
 */
async function restoreAttachers(
  trx: Transaction<Database>,
  id: number,
  version: number,
  restored: readonly number[],
): Promise<void> {
  await sql`
    update persona_tool l set attached_by = (
      select a.actor_id from audit a
      where a.resource_kind = 'persona' and a.resource_id = ${id}::integer and a.version_after <= ${version}::integer
        and not coalesce(a.command, '') like ${`${ROLLBACK_COMMAND}%`}
        and a.difference::jsonb -> 'tool_ids' -> 'to' @> to_jsonb(l.tool_id)
        and not a.difference::jsonb -> 'tool_ids' -> 'from' @> to_jsonb(l.tool_id)
      order by a.version_after desc limit 1)
    where l.persona_id = ${id}::integer and l.tool_id = any(${restored}::integer[])`.execute(trx)
}

/**
 * Makes a new version of a tool with the content of an old one; the definition comes back text for text and is checked again.
 * Secrets are not rolled back: the headers stay as they are now. Throws `Refusal`, `InvalidRequest` when it breaks a rule of today.
 */
export async function rollbackTool(
  database: Pick<ServiceDatabase, 'db'>,
  vault: Vault,
  id: number,
  version: number,
  { plan = false, actor = operatorActor() }: RollbackOptions = {},
) {
  return await inTransaction(database, { rollback: plan }, async trx => {
    const state = await lockState(trx, toolResource, id, OPERATOR)
    if (state === undefined) throw new Refusal(`there is no tool ${id}`)
    const { custom_headers = null, ...values } = (await readThen(trx, 'tool', id, version)).values
    const headersDiffer =
      JSON.stringify(custom_headers ?? shownHeaders(state.headers)) !== JSON.stringify(shownHeaders(state.headers))
    const given = await givenByHistory(trx, state, values)
    const notes = await changeNotes(trx, state, given, vault)
    const result = await changeTool(trx, id, now => decideAsOperator(now, given, vault), actor)
    return { name: state.name, ...result, left: headersDiffer ? ['custom_headers'] : [], notes }
  })
}

const PLAIN_FIELDS: ReadonlySet<string> = new Set(REQUEST_FIELDS.map(([name]) => name))

async function givenByHistory(
  trx: Transaction<Database>,
  state: ToolState,
  values: Past['values'],
): Promise<GivenTool> {
  const given: GivenTool = { fields: {}, columns: {}, definitionFaults: [] }
  for (const [field, value] of Object.entries(values)) {
    if (field === 'definition') await giveDefinition(trx, state, given, value)
    else Object.assign(PLAIN_FIELDS.has(field) ? given.fields : given.columns, { [field]: value })
  }
  const id = given.fields.oauth_config_id ?? null
  const isGone =
    id !== null && !(await trx.selectFrom('oauth_config').select('id').where('id', '=', id).executeTakeFirst())
  if (isGone) throw new Refusal(`what that version refers to is gone: oauth_config_id ${id}`)
  return given
}

async function giveDefinition(
  trx: Transaction<Database>,
  state: ToolState,
  given: GivenTool,
  hash: unknown,
): Promise<void> {
  if (hash === state.definition_hash) return
  const text = (await definitionTexts(trx, [hash])).get(String(hash))
  if (text === undefined) throw new Refusal('the definition of that version is no longer kept, or it had none')
  const headerNames = state.headers.map(header => header.name)
  const checked = checkedDefinition(parseExact(text), headerNames, ['body', 'definition'])
  if ('faults' in checked) given.definitionFaults.push(...checked.faults)
  // The stored text, not the one that was checked: nothing about it may change, not even how a number is written.
  else given.fields.definition = { text, hash: String(hash) }
}
