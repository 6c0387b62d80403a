import type { ResourceKind } from '../db/tables.js'

/** What `If-Match` asks for: nothing, any stored state, or one of the named strong tags (with their quotes). */
export type Precondition = { kind: 'none' } | { kind: 'any' } | { kind: 'tags'; tags: string[] }

/** The strong entity tag of one version, with its quotes: `"persona-12-7"` (DECISIONS section 8). */
export function entityTag(kind: ResourceKind, id: number, version: number): string {
  return `"${kind}-${id}-${version}"`
}

/** Whether a precondition lets a write of the state with this tag through. Without a precondition everything does. */
export function preconditionHolds(precondition: Precondition, currentTag: string): boolean {
  return precondition.kind !== 'tags' || precondition.tags.includes(currentTag)
}

/**
 * The newest version of this resource among the tags of a failed precondition, to tell what changed since then.
 * Undefined when no tag is one of this resource's.
 */
export function versionInTags(precondition: Precondition, kind: ResourceKind, id: number): number | undefined {
  if (precondition.kind !== 'tags') return undefined
  const versions = precondition.tags
    .map(tag => new RegExp(`^"${kind}-${id}-([0-9]{1,10})"$`).exec(tag)?.[1])
    .filter(text => text !== undefined)
    .map(Number)
  return versions.length === 0 ? undefined : Math.max(...versions)
}
