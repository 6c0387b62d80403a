import type { ResourceKind } from '../db/tables.js'
import type { AnswerText } from './answer-text.js'

/** What `If-Match` or `If-None-Match` names: nothing, any stored state, or states by their tags (with their quotes). */
export type Precondition = { kind: 'none' } | { kind: 'any' } | { kind: 'tags'; tags: string[] }

/** The strong entity tag of one version, with its quotes: `"persona-12-7"` (DECISIONS section 8). */
export function entityTag(kind: ResourceKind, id: number, version: number): string {
  return `"${kind}-${id}-${version}"`
}

/** The tag of a representation: `"persona-12-7.5f0c3a91b2d4"`, with a digest of what is shown. In `If-Match` it means the version. */
export function representationTag(tag: string, shown: AnswerText): string {
  return `${tag.slice(0, -1)}.${shown.digest().slice(0, 12)}"`
}

/** The strong tag of an answer that is no version of a resource: `"5f0c3a91b2d4"`. */
export function contentTag(text: AnswerText): string {
  return `"${text.digest().slice(0, 12)}"`
}

function versionTag(tag: string): string {
  return tag.replace(/\.[0-9a-f]{12}"$/, '"')
}

/** Whether `If-Match` lets a write of the state with this tag through. Without the header every write passes. */
export function preconditionHolds(precondition: Precondition, currentTag: string): boolean {
  return precondition.kind === 'none' || namesState(precondition, currentTag)
}

/** Whether a header names the state with this tag: with `If-None-Match` it must not be written (RFC 9110, section 13.1.2). */
export function namesState(named: Precondition, currentTag: string): boolean {
  return named.kind === 'any' || (named.kind === 'tags' && named.tags.some(tag => versionTag(tag) === currentTag))
}

/** The versions of this resource before `current` that the tags of a precondition name. */
export function versionsInTags(precondition: Precondition, kind: ResourceKind, id: number, current: number): number[] {
  if (precondition.kind !== 'tags') return []
  return precondition.tags
    .map(tag => new RegExp(`^"${kind}-${id}-([1-9][0-9]{0,9})"$`).exec(versionTag(tag))?.[1])
    .filter(text => text !== undefined)
    .map(Number)
    .filter(version => version < current)
}
