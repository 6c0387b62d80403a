import { type RawBuilder, sql } from 'kysely'
import type { RowTypes } from '../db/statements/row-statement.js'
import type { Param } from '../db/statements/statement.js'
import type { Viewer } from './access.js'
import { type Caller, isAdmin, managesActions, visibleTools } from './caller.js'
import { standsAsBefore } from './standing.js'

/** The viewer of a resource, as parameters of a statement. `user` is null for the operator at the command line. */
export interface ViewerParameters {
  user: string | null
  manages_all: boolean
  is_admin: boolean
  managed_groups: number[]
  /** The tools that the viewer's token may see; null: all. */
  tools: number[] | null
  /** The token by which the viewer calls, and how it stood then; null where nothing rests on a token. */
  token: number | null
  standing: string | null
}

export const VIEWER_TYPES: RowTypes<ViewerParameters> = {
  user: 'uuid',
  manages_all: 'boolean',
  is_admin: 'boolean',
  managed_groups: 'integer[]',
  tools: 'integer[]',
  token: 'integer',
  standing: 'text',
}

/** The viewer that may do everything: the operator at the command line. */
export const OPERATOR: ViewerParameters = {
  user: null,
  manages_all: true,
  is_admin: true,
  managed_groups: [],
  tools: null,
  token: null,
  standing: null,
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
    standing: caller.standing,
  }
}

function viewerWith(value: Param<ViewerParameters>): Viewer & { isAdmin: RawBuilder<unknown> } {
  const [user, managesAll, managedGroups] = [value('user'), value('manages_all'), value('managed_groups')]
  return { user, managesAll, managedGroups, tools: value('tools'), isAdmin: value('is_admin') }
}

/** SQL: the viewer of a statement whose parameters get their types where they stand. */
export function viewerOf(param: Param<ViewerParameters>) {
  return viewerWith(name => sql`${param(name)}::${sql.raw(String(VIEWER_TYPES[name]))}`)
}

/** SQL: the viewer of a row statement, whose values have their types. */
export function viewerOfRow(param: Param<ViewerParameters>) {
  return viewerWith(param)
}

/** SQL: the viewer of a query that is built for these values, and whether they still stand as the decision took them to. */
export function viewerWithValues(parameters: ViewerParameters): Viewer & { stands: RawBuilder<boolean> } {
  const value: Param<ViewerParameters> = name => sql`${parameters[name]}::${sql.raw(String(VIEWER_TYPES[name]))}`
  return { ...viewerWith(value), stands: viewerStands(value) }
}

/** SQL: whether the viewer of a row statement still stands as the decision took them to. */
export function viewerStands(param: Param<ViewerParameters>): RawBuilder<boolean> {
  return standsAsBefore(param('token'), param('standing'))
}
