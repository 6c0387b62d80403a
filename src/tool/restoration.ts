import type { Kysely } from 'kysely'
import { type Caller, managesActions } from '../auth/caller.js'
import type { Tables } from '../db/tables.js'
import { type Fault, Forbidden, InvalidRequest, ResourceNotFound, VersionGone, VersionUnusable } from '../errors.js'
import type { KeyRing } from '../secrets/key-ring.js'
import { sameValue } from '../updates/field-table.js'
import { readPast } from '../updates/read.js'
import type { UpdateRequest, VersionedResource } from '../updates/resource.js'
import { noteFacts } from './definition-cache.js'
import { type ToolTypes, toolResource, toolThen } from './resource.js'
import { contentOf, requireManageable, type ToolDecision } from './rules.js'
import type { ToolState } from './snapshot.js'

interface ToolRestore extends UpdateRequest {
  fields: { version: number }
  strict: boolean
  ring: KeyRing
  /** Applies today's rules to a definition. */
  check(text: string, state: ToolState): Promise<{ definitionFaults: Fault[]; origins: ReadonlySet<string> }>
}

interface RestoreTypes extends Omit<ToolTypes, 'Request'> {
  Request: ToolRestore
  /** `left`: the fields that are not restored, because no caller can set them. */
  Decision: ToolDecision & { left: string[] }
}

/** Restores earlier versions of tools as new versions, without their secrets: with the rights and rules of an update. */
export const toolRestoration: VersionedResource<RestoreTypes> = {
  ...toolResource,
  act: 'restoration',
  isAlone: (_, { dryRun }) => dryRun,
  decide: async (db, state, request) => {
    requireManageable(state)
    const { version } = request.fields
    const then = await toolThen(db, state, await readPast(db, 'tool', state.id, version))
    const { name, description, passthrough_auth, oauth_config_id, definition_hash: hash, definition_text: text } = then
    const fields = { name, description, passthrough_auth, oauth_config_id }
    const update = {
      ...request,
      fields,
      definitionFaults: [] as Fault[],
      origins: new Set<string>() as ReadonlySet<string>,
    }
    // An unchanged definition is not checked: it stays even if rules became stricter.
    if (hash !== null && text !== undefined && hash !== state.definition_hash) {
      Object.assign(update, await request.check(text, state))
      Object.assign(fields, { definition: { text, hash } })
      noteFacts(hash, { origins: update.origins })
    }
    const decision = await toolResource.decide(db, state, update).catch(error => {
      const isUnlinkable =
        error instanceof InvalidRequest &&
        error.faults.every(({ loc, type }) => loc[1] === 'oauth_config_id' && type === 'not_found')
      throw isUnlinkable ? new VersionUnusable(version, [`OAuth configuration ${oauth_config_id}`]) : error
    })
    const wanted: Readonly<Record<string, unknown>> = { ...contentOf(then) }
    const left = Object.entries(contentOf(decision.after)).flatMap(([column, value]) => {
      return sameValue(value, wanted[column]) ? [] : [column === 'definition_hash' ? 'definition' : column]
    })
    if (request.strict && left.length > 0)
      throw new Forbidden(`You do not have the right to restore ${left.join(' and ')}.`)
    if (!sameValue(then.headers, state.headers)) left.push('custom_headers')
    return { ...decision, left, command: `restore --version ${version}` }
  },
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
