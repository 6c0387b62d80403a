import { hash } from 'node:crypto'
import type { ResourceKind } from '../db/tables.js'

/** The value of `If-Match` or `If-None-Match`. `none`: the header is absent. `any`: the value is `*`. `tags`: the entity tags, with their quotes. */
export type Precondition = { kind: 'none' } | { kind: 'any' } | { kind: 'tags'; tags: string[] }

/** Returns the strong entity tag of a version in quotes, for example `"persona-12-7"` (DECISIONS section 8). */
export function entityTag(kind: ResourceKind, id: number, version: number): string {
  return `"${kind}-${id}-${version}"`
}

/**
 * Returns the tag of a representation, which combines the tag of the version with a digest of the body, for example `"persona-12-7.5f0c3a91b2d4"`.
 * `If-Match` ignores the digest.
 */
export function representationTag(tag: string, shown: string): string {
  return `${tag.slice(0, -1)}.${hash('sha256', shown).slice(0, 12)}"`
}

/** Returns the strong tag of a body that is not a version of a resource, for example `"5f0c3a91b2d4"`. `texts` are the parts of the body. */
export function contentTag(...texts: readonly string[]): string {
  return `"${hash('sha256', texts.join('')).slice(0, 12)}"`
}

function versionTag(tag: string): string {
  return tag.replace(/\.[0-9a-f]{12}"$/, '"')
}

/** True if `If-Match` is absent or names the current state. */
export function preconditionHolds(precondition: Precondition, currentTag: string): boolean {
  return precondition.kind === 'none' || namesState(precondition, currentTag)
}

/** True if the header names the current state. An `If-None-Match` that names the current state forbids the write (RFC 9110, section 13.1.2). */
export function namesState(named: Precondition, currentTag: string): boolean {
  return named.kind === 'any' || (named.kind === 'tags' && named.tags.some(tag => versionTag(tag) === currentTag))
}

/** Returns the versions before `current` that the precondition names. */
export function versionsInTags(precondition: Precondition, kind: ResourceKind, id: number, current: number): number[] {
  if (precondition.kind !== 'tags') return []
  return precondition.tags
    .map(tag => new RegExp(`^"${kind}-${id}-([1-9][0-9]{0,9})"$`).exec(versionTag(tag))?.[1])
    .filter(text => text !== undefined)
    .map(Number)
    .filter(version => version < current)
}
