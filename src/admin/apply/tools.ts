import { resolve } from 'node:path'
import { type Kysely, sql } from 'kysely'
import { OPERATOR, viewerWithValues } from '../../auth/viewer.js'
import { anyOf, val } from '../../db/statements/queries.js'
import type { Tables } from '../../db/tables.js'
import { checkDefinition, definitionChanges, functionNames, originsOf } from '../../definition/index.js'
import { type Fault, InvalidRequest, type Loc } from '../../errors.js'
import { decryptSecret, type HeaderPlace, KeyMissing, type SealedSecret, SecretCorrupt } from '../../secrets/cipher.js'
import type { KeyRing } from '../../secrets/key-ring.js'
import { shownMask } from '../../secrets/mask.js'
import { BLANK_TOOL, type ToolContent } from '../../tool/fields.js'
import { namesBeside } from '../../tool/function-names.js'
import { toolCreation } from '../../tool/life.js'
import { originsBeside, toolResource } from '../../tool/resource.js'
import {
  changedFields,
  decideTool,
  type References,
  type ToolDecision,
  type ToolUpdateFields,
} from '../../tool/rules.js'
import { type ToolState, toolState } from '../../tool/snapshot.js'
import { sha256 } from '../../updates/audit.js'
import { changeAsOperator } from '../../updates/engine.js'
import type { SectionName, ToolEntry } from '../document.js'
import { counted, Refusal } from '../refusal.js'
import { readSource } from '../source.js'
import { writtenText } from '../written-numbers.js'
import {
  type Catalogue,
  type Matched,
  type Outcome,
  type Plan,
  requireSameName,
  storedIds,
  storeInOrder,
} from './catalogue.js'
import { headerVariables, LIKE_PLACEHOLDER, PLACEHOLDER, PREFIX, placeholder } from './placeholders.js'

/** The context that tools need in addition to the document. */
export interface ToolSurroundings {
  ring: KeyRing
  /** The values of `${env:NAME}`. */
  env: Readonly<Record<string, string | undefined>>
  /** The folder for relative paths in `definition_file`; without it that field is refused. */
  baseDir?: string
}

/** Plans the changes of a document's tools. Faults are added to the catalogue. */
export async function planTools(db: Kysely<Tables>, catalogue: Catalogue, around: ToolSurroundings): Promise<Plan> {
  const matches = catalogue.entries('tools')
  const states = await readToolStates(db, storedIds(matches))
  const changed: { id: number; match: Matched; given: GivenTool; outcome: Outcome }[] = []
  const outcomes: Outcome[] = []
  for (const match of matches) {
    const id = Number(match.id)
    const state = states.get(id)
    const written = await givenTool(db, match, catalogue, around, state)
    const given = await keepingValues(db, state, written, around.ring)
    const decision = noteFaults(catalogue, match, () => decideAsOperator(state ?? blankTool(id), given, around.ring))
    const fields = decision?.changes ?? []
    const action = state === undefined ? 'created' : fields.length > 0 ? 'changed' : 'unchanged'
    const outcome: Outcome = { section: 'tools', id, name: match.name, action, fields }
    outcomes.push(outcome)
    if (action === 'unchanged') continue
    changed.push({ id, match, given: written, outcome })
    const notes = state === undefined ? [] : await changeNotes(db, state, given, around.ring)
    if (state !== undefined && given.functions) {
      notes.push(...(await namesBeside(db, { id, name: match.name }, given.functions)))
    }
    if (given.warnings) {
      notes.push(`${counted(given.warnings, 'warning')} about its definition: agentctl validate names them`)
    }
    const impact = await definitionImpact(db, state, given)
    if (impact.length > 0) outcome.impact = impact
    if (notes.length > 0) outcome.notes = notes
  }
  return {
    outcomes,
    async store(trx, actor) {
      await storeInOrder(trx, toolResource, changed, async ({ id, match, given, outcome }) => {
        const decide = async (state: ToolState) => {
          requireSameName(match, state.name)
          return decideAsOperator(state, await keepingValues(trx, state, given, around.ring), around.ring)
        }
        const resource = match.stored ? toolResource : toolCreation
        outcome.fields = (await changeAsOperator(trx, resource, id, decide, actor)).changes
      })
    },
  }
}

/** Replaces header values that are the stored ones with their masks, so that a document applied again changes nothing. */
async function keepingValues(
  db: Kysely<Tables>,
  state: ToolState | undefined,
  given: GivenTool,
  ring: KeyRing,
): Promise<GivenTool> {
  const { custom_headers: headers } = given.fields
  if (headers === undefined || state === undefined || state.headers.length === 0) return given
  const stored = await db
    .selectFrom('tool_header')
    .select(['tool_id as toolId', 'name as headerName', 'key_id as keyId', 'nonce', 'ciphertext', 'mask'])
    .where('tool_id', '=', state.id)
    .execute()
  const custom_headers = headers.map(({ key, value }) => {
    const own = stored.find(({ headerName }) => headerName.toLowerCase() === key.toLowerCase())
    const isSame = own !== undefined && openedValue(ring, own) === value
    return { key, value: isSame ? shownMask(own.mask.toString('hex')) : value }
  })
  return { ...given, fields: { ...given.fields, custom_headers } }
}

/** The stored value; undefined if the ring cannot decrypt it. */
function openedValue(ring: KeyRing, stored: SealedSecret & HeaderPlace): string | undefined {
  try {
    return decryptSecret(ring, stored, stored)
  } catch (error) {
    if (error instanceof KeyMissing || error instanceof SecretCorrupt) return undefined
    throw error
  }
}

/** The operator's request for one tool: fields of an update, and other columns. Absent ones stay unchanged. */
export interface GivenTool {
  fields: ToolUpdateFields
  columns: Partial<ToolContent>
  definitionFaults: Fault[]
  /** The number of warnings about the definition, and the operations that it defines. */
  warnings?: number
  operations?: string[]
  /** The names of the definition's functions. */
  functions?: string[]
}

/** Warnings about a change, such as secrets that will be sent to a new address. Throws as `decideAsOperator` does. */
export async function changeNotes(
  db: Kysely<Tables>,
  state: ToolState,
  given: GivenTool,
  ring: KeyRing,
): Promise<string[]> {
  const { needsOrigins, notes } = decideAsOperator(state, given, ring)
  if (!needsOrigins) return notes
  const origins = (text = '{}') => originsOf(JSON.parse(text))
  const stored = origins(await definitionText(db, state.definition_hash))
  const beside = originsBeside({ origins: origins(given.fields.definition?.text) }, stored)
  return decideAsOperator(state, given, ring, { oauthConfigLinkable: true, oauthConfigName: null, ...beside }).notes
}

/** Describes the effect of a new definition, or of other headers, on the model that calls the tool. For a first definition, lists its operations. */
export async function definitionImpact(
  db: Kysely<Tables>,
  state: ToolState | undefined,
  given: GivenTool,
): Promise<string[]> {
  const { definition, custom_headers } = given.fields
  const headerNamesBefore = state?.headers.map(({ name }) => name) ?? []
  const headerNames = custom_headers?.map(({ key }) => key) ?? headerNamesBefore
  const hash = definition?.hash ?? state?.definition_hash
  if (hash === state?.definition_hash && headerNames.join() === headerNamesBefore.join()) return []
  const stored = state && (await definitionText(db, state.definition_hash))
  if (stored === undefined) return given.operations ?? []
  const options = { headerNames, headerNamesBefore }
  const changes = definitionChanges(JSON.parse(stored), JSON.parse(definition?.text ?? stored), options)
  return changes.map(change => [change.operation, change.msg].filter(Boolean).join(': '))
}

/** Reads the text of a definition by its hash in hex; undefined if it is not stored. */
export async function definitionText(db: Kysely<Tables>, hash: string | null): Promise<string | undefined> {
  const { rows } = await sql<{ text: string }>`
    select content::text as text from tool_definition where hash = decode(${hash}, 'hex')`.execute(db)
  return rows[0]?.text
}

/** The stored definition if the document has the same values, in any form and order of YAML: it keeps its text and is not judged again. */
async function sameDefinition(db: Kysely<Tables>, state: ToolState | undefined, text: string) {
  const hash = state?.definition_hash ?? null
  if (hash === null) return undefined
  const stored = hash === sha256(text) ? text : await definitionText(db, hash)
  return stored !== undefined &&
    (stored === text || JSON.stringify(JSON.parse(stored)) === JSON.stringify(JSON.parse(text)))
    ? { text: stored, hash }
    : undefined
}

/** Applies the rules of the API to the operator's request, also to built-in tools. Throws `InvalidRequest`. */
export function decideAsOperator(
  state: ToolState,
  given: GivenTool,
  ring: KeyRing,
  references: References | null = null,
): ToolDecision {
  const { fields, columns, definitionFaults } = given
  const editable = { ...state, in_code_tool_id: null, mcp_server_id: null, managed_as: 'all' as const }
  const decision = decideTool(editable, { fields, definitionFaults, ring }, references)
  const { in_code_tool_id, mcp_server_id } = state
  const after = { ...decision.after, in_code_tool_id, mcp_server_id, ...columns }
  return { ...decision, after, changes: changedFields(state, after, decision.headers) }
}

/** The state of a tool before its creation. */
function blankTool(id: number): ToolState {
  return {
    ...BLANK_TOOL,
    id,
    version: 0,
    field_versions: {},
    secrets_generation: 0,
    headers: [],
    managed_as: 'all',
    definition_bytes: 0,
    oauth_config_name: null,
    recent: [],
  }
}

/** Adds a checked definition to `given`, or its faults. `at` is its place in the document; `text` is the text to store. */
export function giveDefinition(
  given: GivenTool,
  definition: unknown,
  headerNames: readonly string[],
  at: Loc,
  text?: string,
): undefined {
  const checked = checkDefinition(definition, { headerNames, at })
  if (!checked.ok) return void given.definitionFaults.push(...checked.faults)
  const stored = text ?? writtenText(definition)
  given.fields.definition = { text: stored, hash: sha256(stored) }
  given.warnings = checked.warnings.length
  given.functions = functionNames(checked.methods)
  given.operations = checked.methods.map(({ name, method, path }) => `${name}: ${method.toUpperCase()} ${path}`)
}

/** Reads the states of tools by id, as the operator sees them. */
export async function readToolStates(db: Kysely<Tables>, ids: readonly number[]): Promise<Map<number, ToolState>> {
  const rows = await db
    .selectFrom('tool as t')
    .select(toolState(viewerWithValues(OPERATOR)).as('state'))
    .where('t.id', '=', anyOf(val(ids)))
    .execute()
  return new Map(rows.map(({ state }) => [state.id, state]))
}

async function givenTool(
  db: Kysely<Tables>,
  match: Matched,
  catalogue: Catalogue,
  around: ToolSurroundings,
  state: ToolState | undefined,
): Promise<GivenTool> {
  const { loc } = match
  const entry = match.entry as ToolEntry // it passed the document's schema
  const given: GivenTool = { fields: {}, columns: {}, definitionFaults: [] }
  const take = (to: object, names: readonly (keyof ToolEntry)[]) => {
    for (const name of names) if (entry[name] !== undefined) Object.assign(to, { [name]: entry[name] })
  }
  take(given.fields, ['name', 'description', 'passthrough_auth'])
  take(given.columns, COLUMNS_AS_WRITTEN)
  if (entry.custom_headers !== undefined) given.fields.custom_headers = givenHeaders(match, catalogue, around, state)
  const refer = (to: object, column: string, section: SectionName, name: keyof ToolEntry) => {
    if (entry[name] === undefined) return
    const id = entry[name] === null ? null : catalogue.resolve(section, entry[name], [...loc, name])
    Object.assign(to, { [column]: id })
  }
  refer(given.fields, 'oauth_config_id', 'oauth_configs', 'oauth_config')
  refer(given.columns, 'mcp_server_id', 'mcp_servers', 'mcp_server')
  refer(given.columns, 'user_id', 'users', 'owner')
  await takeDefinition(db, given, match, around, state)
  return given
}

const COLUMNS_AS_WRITTEN = [
  'display_name',
  'in_code_tool_id',
  'enabled',
  'chat_selectable',
  'agent_creation_selectable',
  'default_enabled',
] as const

/**
 * The headers of a document with their secrets filled in. If the variable that an export wrote for a header is unset or empty, the stored
 * secret is kept: so an export applies to its own database without changes.
 */
function givenHeaders(match: Matched, catalogue: Catalogue, around: ToolSurroundings, state: ToolState | undefined) {
  const { custom_headers = [] } = match.entry as ToolEntry // it passed the document's schema
  const variables = headerVariables(
    Number(match.id),
    custom_headers.map(header => header.key),
  )
  return custom_headers.map(({ key, value: written }, index) => {
    const own = variables[index]
    const missing: string[] = []
    const value = written.replace(PLACEHOLDER, (_, name: string) => {
      const text = name === own || name.startsWith(PREFIX) ? around.env[name] : undefined
      if (!text) missing.push(name)
      return text ?? ''
    })
    const loc = [...match.loc, 'custom_headers', index, 'value']
    if (LIKE_PLACEHOLDER.test(written.replace(PLACEHOLDER, ''))) {
      catalogue.fault(
        loc,
        `a variable is written ${placeholder('NAME')}, with nothing else in the braces`,
        'variable_malformed',
      )
      return { key, value: 'unknown' }
    }
    if (missing.length === 0) return { key, value }
    const stored = state?.headers.find(header => header.name.toLowerCase() === key.toLowerCase())
    if (stored && written === placeholder(own ?? '')) return { key, value: shownMask(stored.mask) }
    const read = missing.filter(name => name === own || name.startsWith(PREFIX))
    const msg =
      read.length === missing.length
        ? `${missing.join(', ')} must be set in the environment and not be empty`
        : `${missing.filter(name => !read.includes(name)).join(', ')} is not read here: a name begins with ${PREFIX}, or is ${own} as export writes it`
    catalogue.fault(loc, msg, 'variable_missing')
    return { key, value: 'unknown' }
  })
}

async function takeDefinition(
  db: Kysely<Tables>,
  given: GivenTool,
  match: Matched,
  around: ToolSurroundings,
  state: ToolState | undefined,
): Promise<void> {
  const { loc, stored } = match
  const entry = match.entry as ToolEntry // it passed the document's schema
  const { definition, definition_file: file, in_code_tool_id = null, mcp_server = null } = entry
  const field = file === undefined ? 'definition' : 'definition_file'
  const note = (msg: string, type: string) => void given.definitionFaults.push({ loc: [...loc, field], msg, type })
  if (definition !== undefined && file !== undefined)
    return note('definition and definition_file exclude each other', 'definition_twice')
  if (definition === undefined && file === undefined) {
    const isNewCustom = stored === undefined && in_code_tool_id === null && mcp_server === null
    return isNewCustom ? note('a new custom tool needs a definition', 'missing') : undefined
  }
  if (file !== undefined && around.baseDir === undefined)
    return note('a file can be named only in a document that is one', 'definition_file')
  let value: unknown
  try {
    value = file === undefined ? definition : readSource(resolve(around.baseDir ?? '', file)).value
  } catch (error) {
    if (!(error instanceof Refusal)) throw error
    return note(error.message, 'definition_file')
  }
  const same = await sameDefinition(db, state, writtenText(value))
  if (same !== undefined) {
    given.fields.definition = same
    return
  }
  const headerNames = entry.custom_headers?.map(header => header.key) ?? state?.headers.map(header => header.name) ?? []
  return giveDefinition(given, value, headerNames, [...loc, field])
}

/** Runs a decision, and adds its faults to the catalogue at the entry's place. */
function noteFaults(catalogue: Catalogue, { loc }: Matched, decide: () => ToolDecision): ToolDecision | undefined {
  try {
    return decide()
  } catch (error) {
    if (error instanceof InvalidRequest) {
      catalogue.faults.push(...error.faults.map(fault => ({ ...fault, loc: inDocument(fault.loc, loc) })))
      return undefined
    }
    throw error
  }
}

function inDocument(loc: Loc, at: Loc): Loc {
  return loc[0] === 'body' ? [...at, ...loc.slice(1)] : loc
}
