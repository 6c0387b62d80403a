import { type Findings, type Place, placeUnder } from './findings.js'
import type { MisplacedReferences } from './misplaced.js'
import type { ReferenceChains, Resolved } from './reference-chains.js'
import { isObject } from './references.js'
import type { SchemaWalk } from './schemas.js'

/** The JSON body that an operation takes, after references were followed. */
export interface BodyInput {
  readonly value: Record<string, unknown>
  /** The chosen media type object; empty if it says nothing. */
  readonly media: Record<string, unknown>
  readonly place: Place
}

/** The rules for request bodies. */
export class BodyRules {
  private readonly bodies = new Map<object, BodyInput | undefined>()

  constructor(
    private readonly chains: ReferenceChains,
    private readonly misplaced: MisplacedReferences,
    private readonly mediaTypes: MediaTypes,
  ) {}

  /** What an operation takes as its body; undefined without one, and for one at fault. */
  read(body: unknown, place: Place, isShared: boolean, findings: Findings): BodyInput | undefined {
    if (body === undefined) return undefined
    if (!isObject(body)) {
      findings.faultOf('dict_type', place)
      return undefined
    }
    if (body.$ref === undefined && !isShared) return this.readFields({ value: body, place }, findings)
    const found = this.chains.follow({ value: body, place }, 'requestBody', findings)
    if (found === undefined) return undefined
    if (!this.bodies.has(found.value)) this.bodies.set(found.value, this.readFields(found, findings))
    return this.bodies.get(found.value)
  }

  /** Of several JSON media types `application/json` is used, else the first; only that one becomes input and is looked into. */
  private readFields(body: Resolved, findings: Findings): BodyInput | undefined {
    const { content } = body.value
    if (this.misplaced.report(content, placeUnder(body.place, 'content'), 'content', findings)) return undefined
    if (content !== undefined && !isObject(content)) {
      findings.faultOf('dict_type', body.place, 'content')
      return undefined
    }
    const name = jsonMediaType(content)
    if (content === undefined || name === undefined) {
      const msg = 'the body has no JSON media type such as application/json: a model sends JSON only'
      findings.fault('request_body_media_type_unsupported', msg, body.place, 'content')
      return undefined
    }
    const place = placeUnder(placeUnder(body.place, 'content'), name)
    const value = content[name]
    if (value === null) return { value: body.value, media: {}, place }
    if (!isObject(value)) {
      findings.faultOf('dict_type', place)
      return undefined
    }
    const media = this.mediaTypes.enter({ value, place }, findings)
    return media === undefined ? undefined : { value: body.value, media: media.value, place: media.place }
  }
}

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
