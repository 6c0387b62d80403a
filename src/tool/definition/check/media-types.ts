import type { Findings } from './findings.js'
import type { MisplacedReferences } from './misplaced.js'
import type { ReferenceChains, Resolved } from './reference-chains.js'
import type { SchemaWalk } from './schemas.js'

/** The media types of bodies and parameters. */
export class MediaTypes {
  constructor(
    private readonly chains: ReferenceChains,
    private readonly misplaced: MisplacedReferences,
    private readonly schemas: SchemaWalk,
  ) {}

  /** Goes into the schema of a media type, which may itself be a reference (3.2). */
  enter(media: Resolved, findings: Findings): Resolved | undefined {
    if (this.misplaced.report(media.value, media.place, 'media type', findings)) return undefined
    const found = this.chains.follow(media, 'mediaType', findings)
    if (found === undefined) return undefined
    for (const key of ['schema', 'itemSchema']) {
      const schema = found.value[key]
      if (schema !== undefined && schema !== null) this.schemas.enter(schema, found.place, key, findings)
    }
    return found
  }
}

/** `application/json` or `...+json`, in any case, with or without parameters such as a charset. */
export function jsonMediaType(content: Record<string, unknown> | undefined): string | undefined {
  if (content === undefined) return undefined
  if (Object.hasOwn(content, 'application/json')) return 'application/json'
  let suffixed: string | undefined
  for (const name of Object.keys(content)) {
    if (!/json/i.test(name.slice(0, 256))) continue
    const essence = name.slice(0, 256).split(';', 1)[0]?.trim().toLowerCase()
    if (essence === 'application/json') return name
    if (suffixed === undefined && essence?.endsWith('+json')) suffixed = name
  }
  return suffixed
}
