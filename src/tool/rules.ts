import { type Caller, managesActions } from '../auth/caller.js'
import { type Fault, Forbidden, InvalidRequest, Refused, UnknownRedaction } from '../errors.js'
import { encryptSecret, type SealedSecret } from '../secrets/cipher.js'
import type { KeyRing } from '../secrets/key-ring.js'
import { looksMasked, newMask, shownMask } from '../secrets/mask.js'
import { sameValue } from '../updates/field-table.js'
import type { Change, Decision, UpdateRequest } from '../updates/resource.js'
import { BLANK_TOOL, COLUMNS, FIELDS, type ToolContent } from './fields.js'
import { type Header, headerFaults, shownHeaders } from './headers.js'
import type { StoredHeader, ToolState } from './snapshot.js'

/** A definition as JSON text. `hash` is the SHA-256 of the text in hex, and `names` are the names of the functions. */
export interface CheckedDefinition {
  text: string
  hash: string
  names: readonly string[]
}

/** The fields of an update. `null` clears `oauth_config_id`; other fields cannot be `null`. */
export interface ToolUpdateFields {
  name?: string
  description?: string
  definition?: CheckedDefinition
  custom_headers?: Header[]
  passthrough_auth?: boolean
  oauth_config_id?: number | null
}

/** The part of an update that the rules check. */
export interface ToolUpdateContent {
  fields: ToolUpdateFields
  /** The origins of the requested definition's servers. */
  origins: ReadonlySet<string>
  /** The faults of the definition. They are reported together with the other faults of the request. */
  definitionFaults: Fault[]
  ring: KeyRing
  proposes?: boolean
}

export interface ToolUpdate extends UpdateRequest, ToolUpdateContent {
  fields: ToolUpdateFields
}

/** The stored data that a decision needs. */
export interface References {
  /** The name of the requested OAuth configuration. Undefined if the configuration does not exist or the caller may not link it. */
  linkable: string | undefined
  /** The origins of the stored definition's servers. Empty if the request cannot add or redirect secrets. */
  storedOrigins: ReadonlySet<string>
}

/** A header to store. `sealed` is null if the stored value is kept. */
export interface PlannedHeader extends StoredHeader {
  sealed: SealedSecret | null
}

/** The decision on an allowed update. `definition` and `headers` are null if they are not changed. */
export interface ToolDecision extends Decision {
  after: ToolState
  definition: CheckedDefinition | null
  headers: PlannedHeader[] | null
  /** Warnings for the caller, for example about new destinations of secrets. */
  notes: string[]
  /** True if this tool and another tool of the same agent have functions with the same name. Set when a new definition is stored. */
  hasNamesBeside?: boolean | undefined
}

/** Decides on an update in the order of DECISIONS section 2. Throws `Refused`, `Forbidden` and `InvalidRequest`. */
export function decideTool(state: ToolState, update: ToolUpdateContent, references: References): ToolDecision {
  requireManageable(state)
  requireRules(state, update)
  const { definition, custom_headers, ...columns } = update.fields
  const content = { ...contentOf(state), ...columns, definition_hash: definition?.hash ?? state.definition_hash }
  const { oauth_config_id: config } = content
  if (config !== null && config !== state.oauth_config_id && references.linkable === undefined) {
    const msg = 'There is no OAuth configuration with this id that you may link'
    throw new InvalidRequest([{ loc: ['body', 'oauth_config_id'], msg, type: 'not_found' }])
  }
  const notes = secretNotes(state, update, content, references)
  const headers = custom_headers ? plannedHeaders(state, custom_headers, update.ring) : null
  const changes = changedFields(state.name === '' ? { ...state, ...BLANK_TOOL } : state, content, headers)
  const isChanged = (field: string) => changes.some(change => change.field === field)
  const oauth_config_name = config === state.oauth_config_id ? state.oauth_config_name : (references.linkable ?? null)
  const text = definition && { definition_text: definition.text, definition_bytes: Buffer.byteLength(definition.text) }
  return {
    after: { ...state, ...content, headers: headers ?? state.headers, oauth_config_name, ...text },
    definition: isChanged('definition') ? (definition ?? null) : null,
    replaced: isChanged('definition') ? state.definition_hash : null,
    headers: isChanged('custom_headers') ? headers : null,
    changes,
    notes,
  }
}

/** Returns the fields that differ, in the order of `FIELDS`. `headers` is null if the stored headers are kept. */
export function changedFields(state: ToolState, content: ToolContent, headers: PlannedHeader[] | null): Change[] {
  const before = auditedValues(state, state.headers)
  const after = auditedValues(content, headers ?? state.headers)
  return FIELD_NAMES.flatMap(field => {
    const [from, to] = [before[field], after[field]]
    return sameValue(from, to) ? [] : [{ field, from, to }]
  })
}

/** Returns the fields as in audit rows: the definition as a hash, and headers with masks. */
export function auditedValues(content: ToolContent, headers: readonly StoredHeader[]): Record<string, unknown> {
  return { definition: content.definition_hash, custom_headers: shownHeaders(headers), ...content }
}

const FIELD_NAMES = Object.keys(FIELDS) as (keyof typeof FIELDS)[] // `FIELDS` has no other keys

/** Throws `Refused` for a built-in tool or a tool of an MCP server, and `Forbidden` if the caller does not manage the tool. */
export function requireManageable(state: ToolState): void {
  if (state.in_code_tool_id !== null || state.mcp_server_id !== null) {
    const origin = state.in_code_tool_id === null ? 'belongs to an MCP server' : 'is built in'
    throw new Refused('BUILTIN_READ_ONLY', `This tool ${origin}: only custom tools can be changed here.`)
  }
  if (state.managed_as === null) throw new Forbidden(OUT_OF_SCOPE, 'manage:actions')
}

/** The message names no agent or group, because the caller could be unable to see them. */
const OUT_OF_SCOPE =
  'A group manager may update only their own tools and tools that meet two conditions: all agents with the tool are shared with ' +
  "the manager's groups, and someone else attached the tool to one of these agents."

/** Requires the right to update the tool or, for a built-in or MCP tool, `manage:actions`. Throws `Forbidden`. */
export function requireHistory({ managed_as }: ToolState, caller: Caller): void {
  if (managed_as !== null || managesActions(caller)) return
  throw new Forbidden('You can see this tool but not its earlier versions. They require the right to manage the tool.')
}

function requireRules(state: ToolState, update: ToolUpdateContent): void {
  const { fields } = update
  const headers = fields.custom_headers ?? []
  const unknown = redactionFaults(state, headers)
  // The stored definition is accepted even if the rules have become stricter.
  const isStored = fields.definition?.hash === state.definition_hash
  const faults = [
    ...(isStored ? [] : update.definitionFaults),
    ...headerFaults(headers),
    ...unknown,
    ...(update.proposes ? secretFaults(headers) : []),
    ...passthroughFaults(state, fields),
  ]
  if (faults.length === 0) return
  throw faults.length === unknown.length ? new UnknownRedaction(faults) : new InvalidRequest(faults)
}

function redactionFaults(state: ToolState, headers: Header[]): Fault[] {
  const masks = state.headers.map(({ mask }) => mask)
  return headers.flatMap(({ key, value }, index) => {
    if (!looksMasked(value, masks) || headerOfMask(state, key, value) !== undefined) return []
    return {
      loc: ['body', 'custom_headers', index, 'value'],
      msg: 'This value looks like a mask, but it is not the current mask of a header with this name: send the secret itself, or read the tool again to get the current mask',
      type: 'mask_mismatch',
    }
  })
}

/** Other callers can read a proposal, so it must not contain secrets. */
function secretFaults(headers: Header[]): Fault[] {
  const msg =
    'A proposal cannot contain a secret: send the mask to keep the stored value, or set a new value with an update'
  return headers.flatMap(({ value }, index) =>
    looksMasked(value) ? [] : [{ loc: ['body', 'custom_headers', index, 'value'], msg, type: 'secret_in_proposal' }],
  )
}

function passthroughFaults(state: ToolState, fields: ToolUpdateFields): Fault[] {
  if (fields.passthrough_auth === undefined && fields.custom_headers === undefined) return []
  const names = fields.custom_headers?.map(header => header.key) ?? state.headers.map(header => header.name)
  const index = names.findIndex(name => name.toLowerCase() === 'authorization')
  if (index < 0 || !(fields.passthrough_auth ?? state.passthrough_auth)) return []
  const loc = fields.passthrough_auth ? ['body', 'passthrough_auth'] : ['body', 'custom_headers', index, 'key']
  return [
    {
      loc,
      msg: 'passthrough_auth cannot be combined with an Authorization header: turn passthrough_auth off or remove the header',
      type: 'passthrough_auth_conflict',
    },
  ]
}

/**
 * Returns warnings about new destinations of secrets. Throws `Forbidden` if a group manager turns `passthrough_auth` on, or adds an origin but
 * keeps stored secrets (DECISIONS section 6).
 */
function secretNotes(
  state: ToolState,
  { fields, origins: given }: ToolUpdateContent,
  content: ToolContent,
  { linkable, storedOrigins }: References,
): string[] {
  const { custom_headers: headers, oauth_config_id: config } = fields
  const isClear = ({ value }: Header) => !looksMasked(value) // the caller knows values that they send in clear text
  const staying = [
    ...((headers ? !headers.every(isClear) : state.headers.length > 0) ? ['stored header values'] : []),
    // An OAuth configuration does not count as kept if the request names it and the caller may link it.
    ...(content.oauth_config_id !== null &&
    content.oauth_config_id === state.oauth_config_id &&
    !(config && linkable !== undefined)
      ? ['OAuth configuration']
      : []),
    ...(content.passthrough_auth && state.passthrough_auth ? [AUTHENTICATION] : []),
  ]
  const turnsOn = content.passthrough_auth && !state.passthrough_auth
  const origins = [...(content.definition_hash === state.definition_hash ? storedOrigins : given)]
  const added = origins.filter(origin => !storedOrigins.has(origin))
  const isBeyond = staying.length > 0 && added.length > 0
  if (state.managed_as === 'group' && (turnsOn || isBeyond)) {
    const what = turnsOn ? 'turn passthrough_auth on' : `let it send the ${staying.join(' and the ')} to a new server`
    const advice = turnsOn ? '' : ' As a group manager, replace, remove or turn off these secrets in the same update.'
    throw new Forbidden(
      `Only the owner of this tool and callers with manage:actions may ${what}.${advice}`,
      'manage:actions',
    )
  }
  // If the request also contains a definition, the caller knows where the new header values are sent.
  const arriving = !fields.definition && headers?.some(isClear)
  return [
    ...noteOf('now also send the', staying, added),
    ...noteOf('now also send the', turnsOn ? [AUTHENTICATION] : [], origins),
    ...noteOf('send the', arriving ? ['new header values'] : [], origins),
  ]
}

const AUTHENTICATION = "callers' own authentication"
const ORIGINS_NAMED_MAX = 3
const ORIGIN_CHARACTERS_MAX = 100

function noteOf(verb: string, secrets: readonly string[], origins: readonly string[]): string[] {
  if (secrets.length === 0 || origins.length === 0) return []
  const named = origins.slice(0, ORIGINS_NAMED_MAX).map(origin => origin.slice(0, ORIGIN_CHARACTERS_MAX))
  const more = origins.length > named.length ? ` and ${origins.length - named.length} more` : ''
  return [`calls of this tool ${verb} ${secrets.join(' and the ')} to ${named.join(', ')}${more}`]
}

/** Returns only the properties of `ToolContent`. */
export function contentOf(state: ToolContent): ToolContent {
  const columns = COLUMNS.map(([name]) => [name, state[name]])
  return Object.fromEntries([...columns, ['definition_hash', state.definition_hash]])
}

/** A mask keeps the stored value. A value in clear text always gets a new mask. */
function plannedHeaders(state: ToolState, headers: Header[], ring: KeyRing): PlannedHeader[] {
  return headers.map(({ key: name, value }) => {
    const stored = headerOfMask(state, name, value)
    if (stored !== undefined) return { name, mask: stored.mask, sealed: null }
    return { name, mask: newMask(), sealed: encryptSecret(ring, value, { toolId: state.id, headerName: name }) }
  })
}

/** Returns the stored header with the name `key` if `value` is its mask. */
function headerOfMask(state: ToolState, key: string, value: string): StoredHeader | undefined {
  return state.headers.find(({ name, mask }) => name.toLowerCase() === key.toLowerCase() && shownMask(mask) === value)
}
