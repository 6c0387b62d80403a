import type { Permission, UserKind } from '../db/tables.js'

/** The bearer token of a request, without the token. `expiresAt` is ISO 8601 in UTC, null when it never expires. */
export interface CallerToken {
  id: number
  personaIds: number[] | null
  toolIds: number[] | null
  requiresIfMatch: boolean
  expiresAt: string | null
}

/**
 * Who is calling, after authentication: a typed value that later functions require.
 * `permission` is the highest that person and token have together. `managedGroupIds` are the groups whose manager the
 * caller is, empty when the token's scopes do not reach the tool operations.
 */
export interface Caller {
  userId: string
  email: string
  kind: UserKind
  permission: Permission
  groupIds: number[]
  managedGroupIds: number[]
  token: CallerToken
}

const RANK: Record<Permission, number> = { basic: 1, 'manage:actions': 2, admin: 3 }

/** Whether a permission includes another: admin includes manage:actions includes basic (DECISIONS section 7). */
export function includesPermission(held: Permission, wanted: Permission): boolean {
  return RANK[held] >= RANK[wanted]
}

/** The highest of some permissions; every active user holds basic (DECISIONS section 6). */
export function highestPermission(permissions: readonly Permission[]): Permission {
  return permissions.reduce<Permission>((best, next) => (RANK[next] > RANK[best] ? next : best), 'basic')
}

/** What is left of a permission under a token's scopes; null scopes narrow nothing. */
export function narrowPermission(held: Permission, scopes: readonly Permission[] | null): Permission {
  if (scopes === null) return held
  const widest = highestPermission(scopes)
  return includesPermission(held, widest) ? widest : held
}

export function isAdmin(caller: Caller): boolean {
  return caller.permission === 'admin'
}

/** Whether the caller may manage every custom tool. */
export function managesActions(caller: Caller): boolean {
  return includesPermission(caller.permission, 'manage:actions')
}
