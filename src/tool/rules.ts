import { type Caller, managesActions } from '../auth/caller.js'
import { type Fault, Forbidden, InvalidRequest, Refused, ToolOutOfScope, UnknownRedaction } from '../errors.js'
import { encryptSecret, type SealedSecret } from '../secrets/cipher.js'
import type { KeyRing } from '../secrets/key-ring.js'
import { looksMasked, newMask, shownMask } from '../secrets/mask.js'
import type { Change } from '../updates/audit.js'
import type { Decision, UpdateRequest } from '../updates/resource.js'
import { BLANK_TOOL, COLUMNS, FIELDS, type ToolContent } from './fields.js'
import { type Header, headerFaults, shownHeaders } from './headers.js'
import type { StoredHeader, ToolState } from './snapshot.js'

/** A definition that passed the check: its JSON text and the text's SHA-256 in hex. */
export interface CheckedDefinition {
  text: string
  hash: string
}

/** The fields that an update names. Only `oauth_config_id` may be `null`, which clears it. */
export interface ToolUpdateFields {
  name?: string
  description?: string
  definition?: CheckedDefinition
  custom_headers?: Header[]
  passthrough_auth?: boolean
  oauth_config_id?: number | null
}

/** The part of an update that the rules need. */
export interface ToolUpdateContent {
  fields: ToolUpdateFields
  /** Faults of the definition, reported with the other faults of their stage. */
  definitionFaults: Fault[]
  ring: KeyRing
}

export interface ToolUpdate extends UpdateRequest, ToolUpdateContent {
  fields: ToolUpdateFields
  /** The origins that calls by the request's definition go to. */
  origins: ReadonlySet<string>
}

/** Facts from the database that a decision needs. */
export interface References {
  /** True if the OAuth configuration exists and the caller may link it. */
  oauthConfigLinkable: boolean
  oauthConfigName: string | null
  givenOrigins: readonly string[]
  storedOrigins: readonly string[]
  /** Origins that callers' credentials were last sent to; read only if a group manager turns passthrough on. */
  passedOrigins: readonly string[]
}

/** A header to store: kept from a stored position, or sealed anew. */
export interface PlannedHeader {
  name: string
  mask: string
  kept: number | null
  sealed: SealedSecret | null
}

/** The decision on an allowed update. `headers` is null if the stored ones stay. */
export interface ToolDecision extends Decision {
  after: ToolState
  definition: CheckedDefinition | null
  headers: PlannedHeader[] | null
  linksOauthConfig: boolean
  /** True if the decision depends on origins (secrets stay or arrive) that are not read yet. */
  needsOrigins: boolean
  /** Warnings for the caller about where secrets are now sent. */
  notes: string[]
}

/** Decides an update of a state, in the order of DECISIONS section 2. With `references` null, a new OAuth link is assumed to be allowed. */
export function decideTool(state: ToolState, update: ToolUpdateContent, references: References | null): ToolDecision {
  requireManageable(state)
  const { fields } = update
  requireRules(state, update)
  const content = mergedContent(state, fields)
  const linksOauthConfig = content.oauth_config_id !== null && content.oauth_config_id !== state.oauth_config_id
  if (linksOauthConfig && references?.oauthConfigLinkable === false) {
    const msg = 'OAuth configuration not found, or you may not link it'
    throw new InvalidRequest([{ loc: ['body', 'oauth_config_id'], msg, type: 'not_found' }])
  }
  const staying = stayingSecrets(state, fields, content, references)
  const replacesDefinition = content.definition_hash !== state.definition_hash
  const passes = content.passthrough_auth && !state.passthrough_auth
  const sent = references === null ? [] : sentSecrets(state, references, { staying, passes, replacesDefinition })
  const headers = fields.custom_headers ? plannedHeaders(state, fields.custom_headers, update.ring) : null
  const changes = changedFields(state.name === '' ? { ...state, ...BLANK_TOOL } : state, content, headers)
  // A request that has both definition and values needs no note: the caller sees where the values go.
  const givesValues = fields.definition === undefined && state.definition_hash !== null && headers?.some(isSealedAnew)
  const given = givesValues ? givenSecrets(references?.storedOrigins ?? []) : []
  const notes = [...sent, ...given]
  const { oauth_config_id: config } = content
  const isKept = config === state.oauth_config_id
  const replacing = replacesDefinition ? fields.definition?.text : undefined
  return {
    after: {
      ...state,
      ...content,
      headers: headers ?? state.headers,
      oauth_config_name:
        config === null ? null : isKept ? state.oauth_config_name : (references?.oauthConfigName ?? null),
      ...(replacing !== undefined && { definition_text: replacing, definition_bytes: Buffer.byteLength(replacing) }),
    },
    definition: replacesDefinition ? (fields.definition ?? null) : null,
    headers: changes.some(change => change.field === 'custom_headers') ? headers : null,
    changes,
    linksOauthConfig,
    needsOrigins: references === null && (passes || (staying.length > 0 && replacesDefinition) || givesValues === true),
    notes,
  }
}

/** Requires a custom tool (not built in, not of an MCP server) that the caller manages. */
export function requireManageable(state: ToolState): void {
  if (state.in_code_tool_id !== null || state.mcp_server_id !== null) {
    throw new Refused(
      'BUILTIN_READ_ONLY',
      'This tool is built in or belongs to an MCP server: only custom tools can be updated here.',
    )
  }
  if (state.managed_as === null) throw new ToolOutOfScope()
}

/** Requires the right to read earlier versions: the right to update, or `manage:actions` for a built-in tool. Throws `Forbidden`. */
export function requireHistory({ managed_as }: ToolState, caller: Caller): void {
  if (managed_as !== null || managesActions(caller)) return
  throw new Forbidden('You can see this tool but not its earlier versions: that takes the right to update it.')
}

function requireRules(state: ToolState, update: ToolUpdateContent): void {
  const { fields } = update
  const headers = fields.custom_headers ?? []
  const unknown = redactionFaults(state, headers)
  const faults = [
    ...update.definitionFaults,
    ...headerFaults(headers, ['body', 'custom_headers']),
    ...unknown,
    ...passthroughFaults(state, fields),
  ]
  if (faults.length === 0) return
  throw faults.length === unknown.length ? new UnknownRedaction(faults) : new InvalidRequest(faults)
}

function redactionFaults(state: ToolState, headers: Header[]): Fault[] {
  const masks = state.headers.map(({ mask }) => mask)
  return headers.flatMap(({ key, value }, index) => {
    if (!looksMasked(value, masks) || keptPosition(state, key, value) !== null) return []
    return {
      loc: ['body', 'custom_headers', index, 'value'],
      msg: 'This value has the shape of a mask but is not the mask of the stored header of this name; send the secret itself or, if the header was changed since it was read, read the tool again',
      type: 'mask_mismatch',
    }
  })
}

function passthroughFaults(state: ToolState, fields: ToolUpdateFields): Fault[] {
  if (fields.passthrough_auth === undefined && fields.custom_headers === undefined) return []
  const names = fields.custom_headers?.map(header => header.key) ?? state.headers.map(header => header.name)
  const index = names.findIndex(name => name.toLowerCase() === 'authorization')
  if (index < 0 || !(fields.passthrough_auth ?? state.passthrough_auth)) return []
  const loc = fields.passthrough_auth ? ['body', 'passthrough_auth'] : ['body', 'custom_headers', index, 'key']
  return [
    { loc, msg: 'passthrough_auth and an Authorization header exclude each other', type: 'passthrough_auth_conflict' },
  ]
}

/** Returns, in words, the secrets that stay: the request neither gives nor removes them. */
function stayingSecrets(
  state: ToolState,
  { custom_headers }: ToolUpdateFields,
  content: ToolContent,
  references: References | null,
): string[] {
  // A value in clear text counts as given by the caller, even if it equals the stored one.
  const headersStay = custom_headers?.some(({ value }) => looksMasked(value)) ?? state.headers.length > 0
  const { oauth_config_id: config, passthrough_auth: passes } = content
  // A group manager's own OAuth configuration may move with a tool, because they may link it to any tool.
  const isOwn = state.managed_as === 'group' && references?.oauthConfigLinkable === true
  return [
    ...(headersStay ? ['stored header values'] : []),
    ...(config !== null && config === state.oauth_config_id && !isOwn ? ['OAuth configuration'] : []),
    ...(passes && state.passthrough_auth ? [AUTHENTICATION] : []),
  ]
}

const AUTHENTICATION = "callers' own authentication"

/**
 * Keeps each secret at its origins (DECISIONS section 5). A group manager must not send one to a new origin, in one step or several; other
 * managers get the returned notes. Callers' credentials may be sent again to their previous origins.
 */
function sentSecrets(
  state: ToolState,
  { givenOrigins, storedOrigins, passedOrigins }: References,
  { staying, passes, replacesDefinition }: { staying: string[]; passes: boolean; replacesDefinition: boolean },
): string[] {
  const origins = replacesDefinition ? givenOrigins : storedOrigins
  const without = (had: readonly string[]) => origins.filter(origin => !had.includes(origin))
  const isGroups = state.managed_as === 'group'
  const sent = [
    { secrets: staying, origins: without(storedOrigins) },
    { secrets: passes ? [AUTHENTICATION] : [], origins: isGroups ? without(passedOrigins) : origins },
  ].filter(({ secrets, origins }) => secrets.length > 0 && origins.length > 0)
  const [refused] = sent
  if (isGroups && refused !== undefined) {
    throw new Forbidden(
      `A manager through groups cannot send the ${refused.secrets.join(' and the ')} of a tool to ${shortened(refused.origins)}. ` +
        'Send new values, or take them away, in the same update.',
      'manage:actions',
    )
  }
  return sent.map(({ secrets, origins }) => {
    return `calls of this tool now also take the ${secrets.join(' and the ')} to ${shortened(origins)}`
  })
}

/** Returns the note about values given without a definition, because somebody else may have changed its servers. */
function givenSecrets(origins: readonly string[]): string[] {
  return origins.length === 0 ? [] : [`calls of this tool take the new header values to ${shortened(origins)}`]
}

const ORIGINS_NAMED_MAX = 3
const ORIGIN_CHARACTERS_MAX = 100

function shortened(origins: readonly string[]): string {
  const named = origins.slice(0, ORIGINS_NAMED_MAX).map(origin => origin.slice(0, ORIGIN_CHARACTERS_MAX))
  const more = origins.length - named.length
  return `${named.join(', ')}${more > 0 ? ` and ${more} more` : ''}`
}

function mergedContent(state: ToolState, fields: ToolUpdateFields): ToolContent {
  const { definition, custom_headers: _, ...columns } = fields
  return { ...contentOf(state), ...columns, definition_hash: definition?.hash ?? state.definition_hash }
}

/** Returns only the content of a tool's own row. */
export function contentOf(state: ToolContent): ToolContent {
  const columns = COLUMNS.map(([name]) => [name, state[name]])
  return { ...Object.fromEntries(columns), definition_hash: state.definition_hash }
}

/** A mask keeps the stored value, which is not decrypted. Clear text is encrypted under a new mask, even if it is the stored value. */
function plannedHeaders(state: ToolState, headers: Header[], ring: KeyRing): PlannedHeader[] {
  return headers.map(({ key, value }) => {
    const kept = keptPosition(state, key, value)
    const stored = kept === null ? undefined : state.headers[kept]
    if (stored !== undefined) return { name: key, mask: stored.mask, kept, sealed: null }
    const sealed = encryptSecret(ring, value, { toolId: state.id, headerName: key })
    return { name: key, mask: newMask(), kept: null, sealed }
  })
}

function keptPosition(state: ToolState, name: string, value: string): number | null {
  const position = state.headers.findIndex(header => sameName(header, name) && shownMask(header.mask) === value)
  return position < 0 ? null : position
}

function sameName(header: StoredHeader, name: string): boolean {
  return header.name.toLowerCase() === name.toLowerCase()
}

/** Returns the fields that differ, in the order of the table. `headers` is null if the stored ones stay. */
export function changedFields(state: ToolState, content: ToolContent, headers: PlannedHeader[] | null): Change[] {
  return FIELD_NAMES.flatMap((field): Change[] => {
    if (field === 'custom_headers') {
      const stay = headers === null || sameHeaders(state.headers, headers)
      return stay ? [] : [{ field, from: shownHeaders(state.headers), to: shownHeaders(headers) }]
    }
    const column = field === 'definition' ? 'definition_hash' : field
    return state[column] === content[column] ? [] : [{ field, from: state[column], to: content[column] }]
  })
}

const FIELD_NAMES = Object.keys(FIELDS) as (keyof typeof FIELDS)[] // these are the table's own keys

/** True if the value is given in clear text. */
function isSealedAnew(header: PlannedHeader): boolean {
  return header.sealed !== null
}

function sameHeaders(before: { name: string; mask: string }[], after: typeof before): boolean {
  const masks = (list: typeof before) => JSON.stringify(list.map(({ name, mask }) => [name, mask]))
  return masks(before) === masks(after)
}
