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
 * The newest version of this resource before `current` among the tags of a failed precondition, to tell what changed
 * since then. Undefined when no tag is one of this resource's past.
 */
export function versionInTags(
  precondition: Precondition,
  kind: ResourceKind,
  id: number,
  current: number,
): number | undefined {
  if (precondition.kind !== 'tags') return undefined
  const versions = precondition.tags
    .map(tag => new RegExp(`^"${kind}-${id}-([1-9][0-9]{0,9})"$`).exec(tag)?.[1])
    .filter(text => text !== undefined)
    .map(Number)
    .filter(version => version < current)
  return versions.length === 0 ? undefined : Math.max(...versions)
}
