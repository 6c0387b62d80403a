import { type Expression, type SqlBool, sql } from 'kysely'
import { on } from '../db/statements/queries.js'
import type { Param, SqlTypes } from '../db/statements/statement.js'
import type { Viewer } from './access.js'
import { type Caller, isAdmin, managesActions } from './caller.js'

/** A viewer as the parameters of a statement. `user` is null for the operator. */
export interface ViewerParameters {
  user: string | null
  manages_all: boolean
  is_admin: boolean
  managed_groups: number[]
  /** The tools that the viewer's token can see; null for all. */
  tools: number[] | null
  /** The agents that the viewer's token can see; null for all. */
  agents: number[] | null
  /** The id of the viewer's token; null for the operator. */
  token: number | null
  /** The rights that the token had when it was read; null for the operator. */
  grants: string | null
}

export const VIEWER_TYPES: SqlTypes<ViewerParameters> = {
  user: 'uuid',
  manages_all: 'boolean',
  is_admin: 'boolean',
  managed_groups: 'integer[]',
  tools: 'integer[]',
  agents: 'integer[]',
  token: 'integer',
  grants: 'text',
}

/** The operator at the command line, who has all rights. */
export const OPERATOR: ViewerParameters = {
  user: null,
  manages_all: true,
  is_admin: true,
  managed_groups: [],
  tools: null,
  agents: null,
  token: null,
  grants: null,
}

export function viewerParameters(caller: Caller): ViewerParameters {
  return {
    user: caller.userId,
    manages_all: managesActions(caller),
    is_admin: isAdmin(caller),
    managed_groups: caller.managedGroupIds,
    tools: caller.token.bound?.tool ?? null,
    agents: caller.token.bound?.persona ?? null,
    token: caller.token.id,
    grants: caller.grants,
  }
}

/** SQL: the viewer from the parameters of a statement. */
export function viewerOf(param: Param<ViewerParameters>): Viewer {
  const [user, managesAll, managedGroups] = [param('user'), param('manages_all'), param('managed_groups')]
  return { user, managesAll, managedGroups, isAdmin: param('is_admin'), tools: param('tools'), agents: param('agents') }
}

/** SQL: the viewer with the values of `parameters`. `grantsStand`: true if the viewer's token still has the same rights. */
export function viewerWithValues(parameters: ViewerParameters): Viewer & { grantsStand: Expression<SqlBool> } {
  const { cast, val } = on()
  const value: Param<ViewerParameters> = name => cast(val(parameters[name]), sql.raw(VIEWER_TYPES[name]))
  return { ...viewerOf(value), grantsStand: grantsStand(value) }
}

/** SQL: true if the viewer's token still has the rights that the decision was based on. Always true for the operator. */
export function grantsStand(param: Param<ViewerParameters>): Expression<SqlBool> {
  return sql<SqlBool>`exists (select from ${tokenWith(param)})`
}

/** SQL: one row if `grantsStand` is true; otherwise none. */
export function tokenWith(param: Param<ViewerParameters>) {
  return sql`token_with(${param('token')}, ${param('grants')})`
}
