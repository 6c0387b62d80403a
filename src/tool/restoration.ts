import type { Kysely } from 'kysely'
import { type Caller, managesActions } from '../auth/caller.js'
import type { Tables } from '../db/tables.js'
import { type Fault, Forbidden, InvalidRequest, ResourceNotFound, VersionGone, VersionUnusable } from '../errors.js'
import { sameValue } from '../updates/field-table.js'
import { inSnapshot, readPast } from '../updates/past.js'
import type { Job, VersionedResource } from '../updates/resource.js'
import { definitionText, noteFacts } from './definition-cache.js'
import type { ToolContent } from './fields.js'
import { type Header, shownHeaders } from './headers.js'
import { type ToolTypes, toolResource } from './resource.js'
import { contentOf, type References, requireManageable, type ToolDecision, type ToolUpdate } from './rules.js'
import type { ToolState } from './snapshot.js'

/* Restores an earlier version of a tool as a new version, without its secrets. */

/** A past state of a tool: its columns, the text of its definition, and its redacted headers. */
export interface ToolThen {
  content: ToolContent
  text: string | null
  headers: readonly Header[]
}

/** A request to restore a version. `then` is the tool's state in that version, absent until it is prepared. */
export interface ToolRestore extends ToolUpdate {
  version: number
  strict: boolean
  then?: ToolThen
}

export interface RestoreDecision extends ToolDecision {
  /** Fields that are not restored, because no caller can set them. */
  left: string[]
}

export interface RestoreTypes extends ToolTypes {
  Request: ToolRestore
  Decision: RestoreDecision
}

/** Restores tools for callers with the rights of an update. */
export const toolRestoration: VersionedResource<RestoreTypes> = {
  ...toolResource,
  act: 'restoration',
  decide: decideRestoration,
}

/** Reads the state of a tool in a version. Throws `VersionNotFound`, and `VersionGone` even if only the definition is gone. */
export async function toolThen(db: Kysely<Tables>, state: ToolState, version: number): Promise<ToolThen> {
  const { values } = await readPast(db, 'tool', state.id, version)
  const { definition = state.definition_hash, custom_headers = shownHeaders(state.headers), ...columns } = values
  const hash = definition as string | null // audit rows store the hash
  const text = hash === null ? null : await definitionText(db, hash)
  if (text === undefined)
    throw new VersionGone('pruned', `The definition that tool ${state.id} had then is no longer kept.`)
  const content = { ...contentOf(state), ...columns, definition_hash: hash }
  return { content, text, headers: (custom_headers ?? []) as Header[] }
}

interface Checked {
  definitionFaults: Fault[]
  origins: ReadonlySet<string>
}

/** Turns a restoration into an update. `check` applies today's rules to the definition. Throws the reason for a refusal. */
export async function preparedRestoration(
  job: Job<RestoreTypes>,
  state: ToolState,
  check: (text: string, state: ToolState) => Promise<Checked>,
): Promise<ToolRestore> {
  const { request } = job
  requireManageable(state)
  const then = await inSnapshot(job, request.id, (trx, now) => toolThen(trx, now, request.version))
  const { text, content } = then
  const { name, description, passthrough_auth, oauth_config_id, definition_hash: hash } = content
  const fields = { name, description, passthrough_auth, oauth_config_id }
  if (text === null || hash === null) return { ...request, fields, then }
  const { definitionFaults, origins } = await check(text, state)
  noteFacts(hash, { origins })
  return { ...request, fields: { ...fields, definition: { text, hash } }, definitionFaults, origins, then }
}

function decideRestoration(state: ToolState, request: ToolRestore, references: References): RestoreDecision {
  const { strict, version, then } = request
  // An unchanged definition is not checked: it stays even if rules became stricter.
  const isSame = then === undefined || then.content.definition_hash === state.definition_hash
  const decision = decidedUsable(request, () => {
    return toolResource.decide(state, isSame ? { ...request, definitionFaults: [] } : request, references)
  })
  const wanted: Readonly<Record<string, unknown>> = { ...(then?.content ?? decision.content) }
  const left = Object.entries(decision.content).flatMap(([column, value]) => {
    return sameValue(value, wanted[column]) ? [] : [column === 'definition_hash' ? 'definition' : column]
  })
  if (strict && left.length > 0) throw new Forbidden(`You do not have the right to restore ${left.join(' and ')}.`)
  const keepsOthers = then !== undefined && !sameValue(then.headers, shownHeaders(state.headers))
  return {
    ...decision,
    left: keepsOthers ? [...left, 'custom_headers'] : left,
    command: `restore --version ${version}`,
  }
}

/** Reports an OAuth configuration that cannot be linked as an unusable version, not as an invalid request. */
function decidedUsable({ version, fields }: ToolRestore, decide: () => ToolDecision): ToolDecision {
  try {
    return decide()
  } catch (error) {
    const isUnlinkable =
      error instanceof InvalidRequest &&
      error.faults.every(({ loc, type }) => loc[1] === 'oauth_config_id' && type === 'not_found')
    throw isUnlinkable ? new VersionUnusable(version, [`OAuth configuration ${fields.oauth_config_id}`]) : error
  }
}

/** Throws that the tool was removed for managers of all tools, and "not found" for others. */
export async function refuseRemoved(db: Kysely<Tables>, id: number, caller: Caller): Promise<never> {
  const removal = managesActions(caller)
    ? await db
        .selectFrom('audit')
        .select('version_after')
        .where('resource_kind', '=', 'tool')
        .where('resource_id', '=', id)
        .where(({ eb, fn, val }) => eb(val('removed'), '=', fn.any('fields')))
        .limit(1)
        .executeTakeFirst()
    : undefined
  if (removal === undefined) throw new ResourceNotFound('tool')
  throw new VersionGone('deleted', `Tool ${id} was deleted, and the secrets of its headers with it: create it anew.`)
}
