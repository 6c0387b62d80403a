import { sql, type Transaction } from 'kysely'
import { OPERATOR } from '../auth/viewer.js'
import type { Database, ResourceKind } from '../db/tables.js'
import { inTransaction, type ServiceDatabase } from '../db/transaction.js'
import { VersionGone, VersionNotFound } from '../errors.js'
import { type PersonaContent, RELATIONS } from '../persona/fields.js'
import { personaResource } from '../persona/resource.js'
import { attachedIds, contentOf } from '../persona/rules.js'
import type { PersonaState } from '../persona/state.js'
import { readReferences } from '../persona/statements.js'
import { parseExact } from '../schema/exact-json.js'
import type { Vault } from '../secrets/vault.js'
import { REQUEST_FIELDS } from '../tool/fields.js'
import { toolResource } from '../tool/resource.js'
import { shownHeaders } from '../tool/rules.js'
import type { ToolState } from '../tool/snapshot.js'
import type { Actor, Change } from '../updates/audit.js'
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

/** What a rollback did, or would do: the new version, what it set back, and what it left. */
export interface Rollback {
  /** As the agent or tool was called before. */
  name: string
  version: number
  changes: Change[]
  /** Fields that differ and are not set back: secrets are never rolled back. */
  left: string[]
  /** What the operator should know: `changeNotes`. */
  notes: string[]
}

export interface RollbackOptions {
  /** Only decide; nothing is stored. */
  plan?: boolean
  actor?: Actor
}

/**
 * Makes a new version of an agent with the content of an old one, with the same checks and audit row as any change.
 * Throws `Refusal` when the version is not kept, the agent is built in, or something that it referred to is gone.
 */
export async function rollbackPersona(
  database: Pick<ServiceDatabase, 'db'>,
  id: number,
  version: number,
  { plan = false, actor = operatorActor(ROLLBACK_COMMAND) }: RollbackOptions = {},
): Promise<Rollback> {
  return await inTransaction(database, { rollback: plan }, async trx => {
    const state = await lockState(trx, personaResource, id, OPERATOR)
    if (state === undefined) throw new Refusal(`there is no agent ${id}`)
    if (state.builtin_persona) throw new Refusal('this agent is built in')
    const content: PersonaContent = { ...contentOf(state), ...(await valuesThen(trx, 'persona', id, version)) }
    await requireReferences(trx, state, content)
    const result = await changePersona(trx, id, () => content, actor)
    const restored = content.tool_ids.filter(tool => !state.tool_ids.includes(tool))
    await restoreAttachers(trx, id, version, restored)
    return { name: state.name, ...result, left: [], notes: [] }
  })
}

/** What the fields that changed since a version were then. Throws `Refusal` where that is not kept. */
async function valuesThen(
  trx: Transaction<Database>,
  kind: ResourceKind,
  id: number,
  version: number,
): Promise<Past['values']> {
  try {
    return (await readPastOf(trx, kind, id, { version })).values
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

/** What the old content attaches must still be there, and tools be enabled, as for any update. */
async function requireReferences(
  trx: Transaction<Database>,
  state: PersonaState,
  content: PersonaContent,
): Promise<void> {
  const attached = attachedIds(state, content)
  const ids = Object.fromEntries(RELATIONS.map(([relation]) => [relation, attached[relation] ?? []])) as Required<
    typeof attached
  >
  const [row] = await readReferences.run(trx, { ...OPERATOR, ...ids })
  const gone = RELATIONS.flatMap(([relation]) => {
    const usable: (number | string)[] =
      relation === 'tool_ids'
        ? (row?.references.tool_ids ?? []).filter(tool => tool.enabled).map(tool => tool.id)
        : (row?.references[relation] ?? [])
    return ids[relation].filter(id => !usable.includes(id)).map(id => `${relation} ${id}`)
  })
  if (content.owner_id !== null && content.owner_id !== state.owner_id) {
    const owner = await trx
      .selectFrom('user_account')
      .select('id')
      .where('id', '=', content.owner_id)
      .executeTakeFirst()
    if (owner === undefined) gone.push(`owner ${content.owner_id}`)
  }
  if (gone.length > 0) throw new Refusal(`what that version refers to is gone or disabled: ${gone.join(', ')}`)
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
): Promise<Rollback> {
  return await inTransaction(database, { rollback: plan }, async trx => {
    const state = await lockState(trx, toolResource, id, OPERATOR)
    if (state === undefined) throw new Refusal(`there is no tool ${id}`)
    const { custom_headers = null, ...values } = await valuesThen(trx, 'tool', id, version)
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
