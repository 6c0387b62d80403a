import { sql, type Transaction } from 'kysely'
import { UNKNOWN_ATTACHER } from '../auth/access.js'
import { type Caller, isAdmin, managesActions } from '../auth/caller.js'
import { OPERATOR } from '../auth/viewer.js'
import type { Database } from '../db/database.js'
import type { Tables } from '../db/tables.js'
import { inTransaction } from '../db/transaction.js'
import { Forbidden, InvalidRequest, Refused, VersionNotFound, VersionUnusable } from '../errors.js'
import type { Actor } from '../updates/audit.js'
import { sameValue } from '../updates/field-table.js'
import { inSnapshot, readPast } from '../updates/past.js'
import type { Job, Past, VersionedResource } from '../updates/resource.js'
import { changeAsOperator } from '../updates/write.js'
import {
  BLANK_AGENT,
  CONTENT_FIELDS,
  idsOf,
  isRelation,
  type PersonaContent,
  RELATIONS,
  REQUEST_FIELDS,
  type Relation,
} from './fields.js'
import { inWords, pastContent } from './past.js'
import { type PersonaTypes, personaResource } from './resource.js'
import {
  changedFields,
  contentOf,
  decidePersona,
  decisionFor,
  type PersonaDecision,
  type PersonaUpdate,
  type PersonaUpdateFields,
  type References,
  requireEditable,
  requireVersions,
} from './rules.js'
import type { PersonaState } from './state.js'

/* Restores an earlier version of an agent as a new version. */

/** A request to restore a version. `wanted` is the agent's content in that version, absent until it is prepared. */
export interface PersonaRestore extends PersonaUpdate {
  version: number
  wanted?: PersonaContent
}

export interface RestoreDecision extends PersonaDecision {
  /** Tools whose original attachers are restored, and the version that names them. */
  attachers?: { tools: readonly number[]; version: number }
  /** Fields that are not restored, because the caller cannot set them. */
  left: string[]
}

export interface RestoreTypes extends PersonaTypes {
  Request: PersonaRestore
  Decision: RestoreDecision
}

/** Restores agents, also deleted ones, for callers with the rights of an update. */
export const personaRestoration: VersionedResource<RestoreTypes> = {
  ...personaResource,
  act: 'restoration',
  decide: decideRestoration,
  asked: (state, request) => [
    ...personaResource.asked(state, request),
    { field: 'deleted', from: state.deleted, to: false },
  ],
  writeRest: async (trx, state, decision, viewer) => {
    await personaResource.writeRest(trx, state, decision, viewer)
    if (decision.attachers !== undefined) await restoreAttachers(trx, state.id, decision.attachers)
  },
  isVisible: (state, caller) =>
    personaResource.isVisible(state, caller) || (state.deleted && ownsOrAdministers(state, caller)),
  requireRights: requireRestorable,
  requireHistory: requireVersions,
}

function ownsOrAdministers({ access }: PersonaState, caller: Caller): boolean {
  return access === 'owner' || isAdmin(caller)
}

function requireRestorable(state: PersonaState, caller: Caller): void {
  if (state.deleted) requireVersions(state, caller)
  else requireEditable(state, caller)
}

/**
 * Turns a restoration into an update by reading the past content. Throws the reason for a refusal, `VersionUnusable` if something of then
 * is gone.
 */
export async function preparedRestoration(job: Job<RestoreTypes>, state: PersonaState): Promise<PersonaRestore> {
  const { request } = job
  const { id, version } = request
  requireRestorable(state, request.caller)
  const wanted = await inSnapshot(job, id, async (trx, now): Promise<PersonaContent> => {
    const { values } = await readRestorable(trx, now, version)
    return { ...contentOf(now), ...values }
  })
  const fields = REQUEST_FIELDS.flatMap(([name]) => {
    return name === 'remove_image' ? [] : [[name, isRelation(name) ? idsOf(wanted, name) : wanted[name]]]
  })
  return { ...request, wanted, masked: true, fields: Object.fromEntries(fields) as PersonaUpdateFields } // the values have their stored types
}

/** Reads a version of an agent to restore. Throws `VersionNotFound`, also if the agent was deleted in it, and `VersionGone`. */
async function readRestorable(trx: Transaction<Tables>, state: PersonaState, version: number): Promise<Past> {
  const past = await readPast(trx, 'persona', state.id, version)
  if ({ ...state, ...past.values }.deleted)
    throw new VersionNotFound(`In version ${version} agent ${state.id} was deleted: name an earlier one.`)
  return past
}

function decideRestoration(state: PersonaState, request: PersonaRestore, references: References): RestoreDecision {
  const { caller, strict, version, wanted = state } = request
  requireRestorable(state, caller)
  const fields = { ...request.fields }
  if (!ownsOrAdministers(state, caller) && !strict) {
    for (const [name, { changedBy }] of REQUEST_FIELDS) if (changedBy === 'owner') delete fields[name]
  }
  const base = state.deleted ? brought(state, caller) : state
  const decision = decidedUsable(version, fields, () => decidePersona(base, { ...request, fields }, references))
  const content = { ...decision.content, deleted: false }
  const left = CONTENT_FIELDS.filter(field => !sameValue(content[field], { ...wanted, deleted: false }[field]))
  if (strict && left.length > 0) throw new Forbidden(`You do not have the right to restore ${left.join(' and ')}.`)
  const { tool_ids: tools = [] } = decision.attached
  const keeps = tools.length > 0 && managesActions(caller)
  return {
    ...decision,
    ...{ content, left, changes: changedFields(state, content) },
    ...(keeps && { attachers: { tools: tools.map(Number), version } }),
    command: `restore --version ${version}${keeps ? ' --keep-attachers' : ''}`,
  }
}

/** The agent that a restoration brings back. Fields that only administrators set come back only with an administrator. */
function brought(state: PersonaState, caller: Caller): PersonaState {
  const reserved = isAdmin(caller) ? [] : REQUEST_FIELDS.filter(([, { changedBy }]) => changedBy === 'admin')
  const blank = Object.fromEntries(reserved.map(([name]) => [name, BLANK_AGENT[name as keyof PersonaContent]]))
  return { ...state, ...blank, deleted: false }
}

/** Reports ids that cannot be attached as an unusable version, not as an invalid request. */
function decidedUsable(version: number, fields: PersonaUpdateFields, decide: () => PersonaDecision): PersonaDecision {
  try {
    return decide()
  } catch (error) {
    if (!(error instanceof InvalidRequest)) throw error
    const faulty = (relation: Relation, isDisabled: boolean) =>
      error.faults.flatMap(({ loc: [, field, index], type }) => {
        const isMeant = field === relation && (type === 'tool_disabled') === isDisabled
        const id = isMeant && typeof index === 'number' ? fields[relation]?.[index] : undefined
        return id === undefined ? [] : [id]
      })
    const names = RELATIONS.flatMap(([relation]) => [
      ...inWords(relation, faulty(relation, false)),
      ...inWords(relation, faulty(relation, true)).map(name => `${name} (disabled)`),
    ])
    throw names.length > 0 ? new VersionUnusable(version, names) : error
  }
}

/** Patterns of the audit reason of restorations that kept attachers. */
const KEEPING = ['agentctl rollback%', 'agentctl agent restore%', 'restore % --keep-attachers']

/**
 * Restores who attached the tools: the user of the newest audit row up to that version that added the tool, except for rows of such
 * restorations. Otherwise a group manager could bring a tool that they attached themselves into their scope. If that row was pruned the
 * user is `UNKNOWN_ATTACHER`, whose tools are in no scope.
 */
async function restoreAttachers(
  trx: Transaction<Tables>,
  id: number,
  { tools, version }: NonNullable<RestoreDecision['attachers']>,
): Promise<void> {
  await sql`
    update persona_tool l set attached_by = case when a.is_known then a.actor_id else ${UNKNOWN_ATTACHER}::uuid end
    from unnest(${tools}::integer[]) tool left join lateral (
      select actor_id, true as is_known from audit
      where resource_kind = 'persona' and resource_id = ${id}::integer and version_after <= ${version}::integer
        and not coalesce(command, '') like any(${KEEPING}::text[])
        and difference::jsonb -> 'tool_ids' -> 'to' @> to_jsonb(tool)
        and not difference::jsonb -> 'tool_ids' -> 'from' @> to_jsonb(tool)
      order by version_after desc limit 1) a on true
    where l.persona_id = ${id}::integer and l.tool_id = tool`.execute(trx)
}

/**
 * Restores all fields of a version as the operator, without the limits of callers. `plan`: nothing is stored. Throws `VersionUnusable` and
 * the like.
 */
export async function restoreAsOperator(
  database: Pick<Database, 'db'>,
  id: number,
  version: number,
  { plan, actor }: { plan: boolean; actor: Actor },
) {
  return await inTransaction(database, { rollback: plan }, async trx => {
    const decide = async (state: PersonaState): Promise<RestoreDecision> => {
      if (state.builtin_persona) throw new Refused('BUILTIN_READ_ONLY', 'This agent is built in and cannot be updated.')
      const { content, left } = await pastContent(trx, state, await readRestorable(trx, state, version), OPERATOR)
      if (left.length > 0) throw new VersionUnusable(version, left)
      const tools = content.tool_ids.filter(tool => !state.tool_ids.includes(tool))
      const disabled = trx
        .selectFrom('tool')
        .select('id')
        .where('id', 'in', [0, ...tools])
        .where('enabled', '=', false)
      const names = (await disabled.orderBy('id').execute()).map(tool => `tool ${tool.id} (disabled)`)
      if (names.length > 0) throw new VersionUnusable(version, names)
      return { ...decisionFor(state, content), left: [], attachers: { tools, version } }
    }
    return await changeAsOperator(trx, personaRestoration, id, decide, actor)
  })
}
