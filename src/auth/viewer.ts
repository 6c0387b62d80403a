import { type Expression, type SqlBool, sql } from 'kysely'
import { on } from '../db/statements/queries.js'
import type { Param, SqlTypes } from '../db/statements/statement.js'
import type { Viewer } from './access.js'
import { type Caller, isAdmin, managesActions, visibleTools } from './caller.js'
import { grantsAsBefore } from './grants.js'

/** The viewer of a resource, as parameters of a statement. `user` is null for the operator at the command line. */
export interface ViewerParameters {
  user: string | null
  manages_all: boolean
  is_admin: boolean
  managed_groups: number[]
  /** The tools that the viewer's token may see; null: all. */
  tools: number[] | null
  /** The token by which the viewer calls, and what it granted then; null where nothing rests on a token. */
  token: number | null
  grants: string | null
}

export const VIEWER_TYPES: SqlTypes<ViewerParameters> = {
  user: 'uuid',
  manages_all: 'boolean',
  is_admin: 'boolean',
  managed_groups: 'integer[]',
  tools: 'integer[]',
  token: 'integer',
  grants: 'text',
}

/** The viewer that may do everything: the operator at the command line. */
export const OPERATOR: ViewerParameters = {
  user: null,
  manages_all: true,
  is_admin: true,
  managed_groups: [],
  tools: null,
  token: null,
  grants: null,
}

/** A caller as the statements' parameters name them. */
export function viewerParameters(caller: Caller): ViewerParameters {
  return {
    user: caller.userId,
    manages_all: managesActions(caller),
    is_admin: isAdmin(caller),
    managed_groups: caller.managedGroupIds,
    tools: visibleTools(caller.token),
    token: caller.token.id,
    grants: caller.grants,
  }
}

/** SQL: the viewer of a statement. */
export function viewerOf(param: Param<ViewerParameters>): Viewer & { isAdmin: Expression<SqlBool> } {
  const [user, managesAll, managedGroups] = [param('user'), param('manages_all'), param('managed_groups')]
  return { user, managesAll, managedGroups, tools: param('tools'), isAdmin: param('is_admin') }
}

/** SQL: the viewer of a query that is built for these values, and whether their token still grants what it did. */
export function viewerWithValues(parameters: ViewerParameters): Viewer & { grantsStand: Expression<SqlBool> } {
  const { cast, val } = on()
  const value: Param<ViewerParameters> = name => cast(val(parameters[name]), sql.raw(VIEWER_TYPES[name]))
  return { ...viewerOf(value), grantsStand: grantsStand(value) }
}

/** SQL: whether the viewer's token still grants what it did when the decision was made. */
export function grantsStand(param: Param<ViewerParameters>): Expression<SqlBool> {
  return grantsAsBefore(param('token'), param('grants'))
}
