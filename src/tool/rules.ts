import { type Caller, managesActions } from '../auth/caller.js'
import { type Fault, Forbidden, InvalidRequest, Refused, ToolOutOfScope, UnknownRedaction } from '../errors.js'
import { encryptSecret, type SealedSecret } from '../secrets/cipher.js'
import { fingerprint, holdsRedactionDigits, looksRedacted, redactionOf } from '../secrets/redaction.js'
import { requireDeploymentKey, secretUnavailable, type Vault } from '../secrets/vault.js'
import type { Change } from '../updates/audit.js'
import { sameValue } from '../updates/field-table.js'
import type { Past } from '../updates/past.js'
import type { Decision, UpdateRequest } from '../updates/resource.js'
import { BLANK_TOOL, COLUMNS, FIELDS, type ToolContent } from './fields.js'
import { type Header, headerFaults, headerNotes } from './headers.js'
import type { StoredHeader, ToolState } from './snapshot.js'

/** A definition that passed the check, as it will be stored: its JSON text and the SHA-256 of that text, in hex. */
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

/** What the rules need to know of an update of a tool. */
export interface ToolUpdateContent {
  fields: ToolUpdateFields
  /** What the check of the definition found; reported with the other faults of its stage. */
  definitionFaults: Fault[]
  vault: Vault
  /** Of a merge, what the fields that others changed since the version that it names were then. */
  base?: Past['values'] | undefined
}

/** A request to update a tool. */
export interface ToolUpdate extends UpdateRequest, ToolUpdateContent {
  fields: ToolUpdateFields
  /** Where calls by the definition that was sent go. */
  origins: ReadonlySet<string>
}

/** What the database says of what an update links and replaces. */
export interface References {
  /** Whether the OAuth configuration exists and the caller may link it. */
  oauthConfigLinkable: boolean
  /** Origins of the new definition. */
  givenOrigins: readonly string[]
  /** Those of the stored definition. */
  storedOrigins: readonly string[]
  /** Where callers' own authentication went when it last did; read only for a group manager who turns it on. */
  passedOrigins: readonly string[]
}

/** A header as it will be stored: taken over from a stored position, or sealed anew. */
export interface PlannedHeader {
  name: string
  fingerprint: string
  kept: number | null
  sealed: SealedSecret | null
}

/** The decision on a tool update that may be made. `headers` is null when the stored ones stay as they are. */
export interface ToolDecision extends Decision {
  content: ToolContent
  definition: CheckedDefinition | null
  headers: PlannedHeader[] | null
  linksOauthConfig: boolean
  /** Whether origins decide (secrets stay, or come) and are yet to be read. */
  needsOrigins: boolean
  /** What the caller should know: where secrets go now. */
  notes: string[]
}

/** Decides an update against one state, in the order of DECISIONS section 2. `references` null takes a new OAuth link for granted. */
export function decideTool(state: ToolState, update: ToolUpdateContent, references: References | null): ToolDecision {
  requireManageable(state)
  const { vault } = update
  const { fields, conflicts } = requestedFields(state, update)
  requireRules(state, { ...update, fields })
  const content = mergedContent(state, fields)
  const linksOauthConfig = content.oauth_config_id !== null && content.oauth_config_id !== state.oauth_config_id
  if (linksOauthConfig && references?.oauthConfigLinkable === false) {
    const msg = 'OAuth configuration not found, or not yours to link'
    throw new InvalidRequest([{ loc: ['body', 'oauth_config_id'], msg, type: 'not_found' }])
  }
  const staying = stayingSecrets(state, fields, content, references)
  const replacesDefinition = content.definition_hash !== state.definition_hash
  const passes = content.passthrough_auth && !state.passthrough_auth
  const sent = references === null ? [] : sentSecrets(state, references, { staying, passes, replacesDefinition })
  const headers = fields.custom_headers ? plannedHeaders(state, fields.custom_headers, vault) : null
  const changes = changedFields(state.isNew ? { ...state, ...BLANK_TOOL } : state, content, headers)
  // A request with definition and values says itself where they go.
  const givesValues = fields.definition === undefined && state.definition_hash !== null && headers?.some(isSealedAnew)
  const given = givesValues ? givenSecrets(references?.storedOrigins ?? []) : []
  const notes = [...sent, ...given, ...headerNotes(fields.custom_headers ?? [])]
  return {
    content,
    definition: replacesDefinition ? (fields.definition ?? null) : null,
    headers: changes.some(change => change.field === 'custom_headers') ? headers : null,
    changes,
    conflicts,
    linksOauthConfig,
    needsOrigins: references === null && (passes || (staying.length > 0 && replacesDefinition) || givesValues === true),
    notes,
  }
}

/** The fields to change and, of a merge onto `base`, those that both sides changed, each to something else. */
function requestedFields(state: ToolState, update: ToolUpdateContent) {
  const { fields, base } = update
  if (base === undefined) return { fields, conflicts: [] }
  const wanted: Past['values'] = askedValues(state, update)
  const stored: Past['values'] = auditedValues(state)
  const left: [string, unknown][] = []
  const conflicts: string[] = []
  for (const [name, value] of Object.entries(fields)) {
    if (!Object.hasOwn(base, name) || sameValue(stored[name], base[name])) left.push([name, value])
    else if (!sameValue(wanted[name], base[name]) && !sameValue(wanted[name], stored[name])) conflicts.push(name)
  }
  return { fields: Object.fromEntries(left) as ToolUpdateFields, conflicts } // each of them may be absent
}

/** The fields that the update names, as they are and as it asks for them, whatever rules and rights say. Throws `Unavailable` without its key. */
export function askedChanges(state: ToolState, update: ToolUpdateContent): Change[] {
  const asked: Record<string, unknown> = askedValues(state, update)
  const stored: Record<string, unknown> = auditedValues(state)
  const named = FIELD_NAMES.filter(field => asked[field] !== undefined)
  return named.map(field => ({ field, from: stored[field], to: asked[field] }))
}

/** The fields of an update as audit rows have them: the definition by its hash, header values by their redactions. */
function askedValues(state: ToolState, { fields, vault }: ToolUpdateContent) {
  const { definition, custom_headers: headers, ...columns } = fields
  const marks = headers?.map(({ key, value }) => ({ key, value: shownValue(state.id, key, value, vault) }))
  return { ...columns, definition: definition?.hash, custom_headers: marks }
}

function auditedValues(state: ToolState) {
  return { ...state, definition: state.definition_hash, custom_headers: shownHeaders(state.headers) }
}

function shownValue(id: number, name: string, value: string, vault: Vault): string {
  return looksRedacted(value) ? value : redactionOf(fingerprint(requireDeploymentKey(vault), id, name, value))
}

/** Built-in tools and tools of an MCP server are not custom tools; of the others, the caller manages some or all. */
export function requireManageable(state: ToolState): void {
  if (state.in_code_tool_id !== null || state.mcp_server_id !== null) {
    throw new Refused(
      'BUILTIN_READ_ONLY',
      'This tool is built in or belongs to an MCP server: only custom tools can be updated here.',
    )
  }
  if (state.managed_as === null) throw new ToolOutOfScope()
}

/** That the caller may read earlier versions: who may update it, and of a built-in tool with `manage:actions`. Throws `Forbidden`. */
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
  const fingerprints = state.headers.map(header => header.fingerprint)
  return headers.flatMap(({ key, value }, index) => {
    if (
      !(looksRedacted(value) || holdsRedactionDigits(value, fingerprints)) ||
      keptPosition(state, key, value) !== null
    )
      return []
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

/** The secrets that the caller does not give with the request and does not take away, in words. */
function stayingSecrets(
  state: ToolState,
  { custom_headers }: ToolUpdateFields,
  content: ToolContent,
  references: References | null,
): string[] {
  // A value in clear text is given for what the request makes of the tool, also where it is the stored one.
  const headersStay = custom_headers?.some(({ value }) => looksRedacted(value)) ?? state.headers.length > 0
  const { oauth_config_id: config, passthrough_auth: passes } = content
  // A group manager may link their own configuration to any tool, so they may move a tool with it.
  const isOwn = state.managed_as === 'group' && references?.oauthConfigLinkable === true
  return [
    ...(headersStay ? ['stored header values'] : []),
    ...(config !== null && config === state.oauth_config_id && !isOwn ? ['OAuth configuration'] : []),
    ...(passes && state.passthrough_auth ? [AUTHENTICATION] : []),
  ]
}

const AUTHENTICATION = "callers' own authentication"

/**
 * A secret stays with its origin (DECISIONS section 5): a group manager may send none to an origin that does not have it, in one step or in
 * several; others get the answered notes. Callers' own authentication may come back to where it was before.
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

/** Where values go that are given without the definition: somebody else may have changed its servers. */
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

/** What an update or the operator can change in a tool's own row. */
export function contentOf(state: ToolContent): ToolContent {
  const columns = COLUMNS.map(([name]) => [name, state[name]])
  return { ...Object.fromEntries(columns), definition_hash: state.definition_hash }
}

/** A redaction keeps the stored secret; so does the same value sent again, so that sending it twice changes nothing. */
function plannedHeaders(state: ToolState, headers: Header[], vault: Vault): PlannedHeader[] {
  return headers.map(({ key, value }) => {
    const byRedaction = keptPosition(state, key, value)
    if (byRedaction !== null) return keptHeader(state, key, byRedaction, vault)
    const mark = fingerprint(requireDeploymentKey(vault), state.id, key, value).toString('hex')
    const same = state.headers.findIndex(header => sameName(header, key) && header.fingerprint === mark)
    if (same >= 0 && vault.ring.keys.get(state.headers[same]?.key_id ?? '')) return keptHeader(state, key, same, vault)
    const sealed = encryptSecret(vault.ring, value, { toolId: state.id, headerName: key })
    return { name: key, fingerprint: mark, kept: null, sealed }
  })
}

function keptHeader(state: ToolState, name: string, position: number, vault: Vault): PlannedHeader {
  const stored = state.headers[position]
  if (stored === undefined || vault.ring.keys.get(stored.key_id) === undefined) throw secretUnavailable()
  return { name, fingerprint: stored.fingerprint, kept: position, sealed: null }
}

function keptPosition(state: ToolState, name: string, value: string): number | null {
  const position = state.headers.findIndex(header => sameName(header, name) && shownRedaction(header) === value)
  return position < 0 ? null : position
}

function sameName(header: StoredHeader, name: string): boolean {
  return header.name.toLowerCase() === name.toLowerCase()
}

/** The redaction that answers show for a stored header. */
export function shownRedaction(header: { fingerprint: string }): string {
  return redactionOf(Buffer.from(header.fingerprint, 'hex'))
}

/** Every field that differs, in the order of the table. `headers` is null where the stored ones stay. */
export function changedFields(state: ToolState, content: ToolContent, headers: PlannedHeader[] | null): Change[] {
  return FIELD_NAMES.flatMap((field): Change[] => {
    if (field === 'custom_headers') {
      const stay = headers === null || (!headers.some(isSealedAnew) && sameHeaders(state.headers, headers))
      return stay ? [] : [{ field, from: shownHeaders(state.headers), to: shownHeaders(headers) }]
    }
    const column = field === 'definition' ? 'definition_hash' : field
    return state[column] === content[column] ? [] : [{ field, from: state[column], to: content[column] }]
  })
}

const FIELD_NAMES = Object.keys(FIELDS) as (keyof typeof FIELDS)[] // the keys of this very table

/** Also of an unchanged value when the key of the stored one is gone: it must be stored again, or it stays lost. */
function isSealedAnew(header: PlannedHeader): boolean {
  return header.sealed !== null
}

/** By the whole fingerprint, not by the redaction, which is too short to tell that two secrets are the same. */
function sameHeaders(before: { name: string; fingerprint: string }[], after: typeof before): boolean {
  const marks = (list: typeof before) => JSON.stringify(list.map(header => [header.name, header.fingerprint]))
  return marks(before) === marks(after)
}

/** Headers as answers and audit rows show them: name and redaction. */
export function shownHeaders(headers: { name: string; fingerprint: string }[]): Header[] {
  return headers.map(header => ({ key: header.name, value: shownRedaction(header) }))
}
