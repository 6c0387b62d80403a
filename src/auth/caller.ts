import type { Permission, Scope, UserKind } from '../db/tables.js'

/** The bearer token of a request, without the token. `expiresAt` is ISO 8601 in UTC, null when it never expires. */
export interface CallerToken {
  id: number
  personaIds: number[] | null
  toolIds: number[] | null
  requiresIfMatch: boolean
  /** Whether it stores nothing, whatever its user may do. */
  readOnly: boolean
  expiresAt: string | null
}

/** An authenticated caller. `permission` is what person, groups and scopes leave; `managedGroupIds` is empty below the tool scopes. */
export interface Caller {
  userId: string
  email: string
  kind: UserKind
  permission: Permission
  managedGroupIds: number[]
  /** Everything of this that decisions rest on, as one text: what is stored by them is stored only while it is the same. */
  grants: string
  token: CallerToken
}

/** The tools that a token may see, besides those of its agents; null where it is not bound. */
export function visibleTools({ personaIds, toolIds }: CallerToken): number[] | null {
  return personaIds === null && toolIds === null ? null : (toolIds ?? [])
}

/** The agents that a token may see; null where it is not bound. */
export function visibleAgents({ personaIds, toolIds }: CallerToken): number[] | null {
  return personaIds === null && toolIds === null ? null : (personaIds ?? [])
}

/** Permissions in rising order; each includes the ones before (DECISIONS section 7). */
export const PERMISSIONS = ['basic', 'manage:actions', 'admin'] as const satisfies readonly Permission[]

/** What a token can be narrowed to; `read` to requests that store nothing. */
export const SCOPES = ['read', ...PERMISSIONS] as const satisfies readonly Scope[]

/** Whether a held permission includes another. */
export function includesPermission(held: Permission, wanted: Permission): boolean {
  return PERMISSIONS.indexOf(held) >= PERMISSIONS.indexOf(wanted)
}

export function isAdmin(caller: Caller): boolean {
  return caller.permission === 'admin'
}

/** Whether the caller may manage every custom tool. */
export function managesActions(caller: Caller): boolean {
  return includesPermission(caller.permission, 'manage:actions')
}

/** Whether the caller may use the tool operations at all: by permission, or as the manager of a group. */
export function mayUseToolOperations(caller: Caller): boolean {
  return managesActions(caller) || caller.managedGroupIds.length > 0
}
