import type { Permission, ResourceKind, Scope, UserKind } from '../db/tables.js'

/** The properties of a request's bearer token, without the token itself. `expiresAt` is ISO 8601 in UTC; null if the token never expires. */
export interface CallerToken {
  id: number
  /** Null if the token has all rights of its user. */
  scopes: Scope[] | null
  /** The agents and tools that the token is bound to; null if it is not bound. A bound token can also see the tools of its agents. */
  bound: Record<ResourceKind, number[]> | null
  requiresIfMatch: boolean
  /** True if the token's scopes allow no direct changes. */
  readOnly: boolean
  expiresAt: string | null
}

/** An authenticated caller. `permission`: the user's highest permission within the scopes. `managedGroupIds`: empty if scopes allow only `basic`. */
export interface Caller {
  userId: string
  email: string
  kind: UserKind
  permission: Permission
  managedGroupIds: number[]
  /** All rights that decisions depend on, as one string. A write compares the string with the current rights. */
  grants: string
  token: CallerToken
}

/** Permissions in ascending order. Each permission includes the permissions before it (DECISIONS section 7). */
export const PERMISSIONS = ['basic', 'manage:actions', 'admin'] as const satisfies readonly Permission[]

/** The scopes of a token. A token with `read` or `runtime` can store nothing. A token with `propose` can store only proposals. */
export const SCOPES = ['read', 'runtime', 'propose', ...PERMISSIONS] as const satisfies readonly Scope[]

export function includesPermission(held: Permission, wanted: Permission): boolean {
  return PERMISSIONS.indexOf(held) >= PERMISSIONS.indexOf(wanted)
}

export function isAdmin(caller: Caller): boolean {
  return caller.permission === 'admin'
}

/** True if the caller may manage all custom tools. */
export function managesActions(caller: Caller): boolean {
  return includesPermission(caller.permission, 'manage:actions')
}
