import { hash as digest } from 'node:crypto'
import { resolve } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { type Kysely, sql } from 'kysely'
import { OPERATOR, viewerWithValues } from '../../auth/viewer.js'
import { anyOf, val } from '../../db/statements/queries.js'
import type { Tables } from '../../db/tables.js'
import {
  checkDefinition,
  definitionChanges,
  functionNames,
  type MethodRecord,
  originsOf,
} from '../../definition/index.js'
import { InvalidRequest, type Loc } from '../../errors.js'
import { openSecret } from '../../secrets/cipher.js'
import type { KeyRing } from '../../secrets/key-ring.js'
import { shownMask } from '../../secrets/mask.js'
import { storedDefinitions } from '../../tool/definition-cache.js'
import { BLANK_TOOL, COLUMNS, type ToolContent } from '../../tool/fields.js'
import { namesBeside } from '../../tool/function-names.js'
import { toolCreation } from '../../tool/life.js'
import { type ToolTypes, toolResource } from '../../tool/resource.js'
import { changedFields, decideTool, type ToolDecision, type ToolUpdateFields } from '../../tool/rules.js'
import { type ToolState, toolStates } from '../../tool/snapshot.js'
import { readStates } from '../../updates/statements.js'
import type { ToolEntry } from '../document.js'
import { sealedHeaders } from '../keys.js'
import { counted, Refusal } from '../refusal.js'
import { readSource } from '../source.js'
import { type Catalogue, type Matched, outcomeOf, type Plan, type Planned, storeInOrder } from './catalogue.js'
import { valueIn } from './words.js'

/** What `planTools` needs in addition to the document. */
export interface ToolSurroundings {
  ring: KeyRing
  /** The environment variables for `${env:NAME}` references. */
  env: Readonly<Record<string, string | undefined>>
  /** The folder for relative paths in `definition_file`. Default: the current folder. */
  baseDir?: string
}

/** The requested changes to one tool. The API's rules apply to `fields` but not to `columns`. Absent fields and columns stay unchanged. */
interface GivenTool {
  fields: ToolUpdateFields
  columns: Partial<ToolContent>
  methods?: MethodRecord[]
  warnings?: number
}

/** Plans the changes to the tools of a document. Adds faults to the catalogue. */
export async function planTools(db: Kysely<Tables>, catalogue: Catalogue, around: ToolSurroundings): Promise<Plan> {
  const matches = catalogue.entries('tools')
  const ids = val(matches.map(({ id }) => Number(id)))
  const states = await readStates(db, toolStates(viewerWithValues(OPERATOR)).where('t.id', '=', anyOf(ids)))
  const stored = new Map(states.map(state => [state.id, state]))
  const hashes = states.map(({ definition_hash: hash }) => hash)
  const definitions = await storedDefinitions(db, hashes)
  const planned: Planned<ToolTypes>[] = []
  for (const match of matches) {
    const id = Number(match.id)
    const before = stored.get(id) ?? blankTool(id)
    const text = definitions.get(before.definition_hash ?? '')?.text
    if (text !== undefined) before.definition_text = text
    const given = await givenTool(db, match, catalogue, around, before)
    const decision = decideAsOperator(before, given, around.ring, catalogue, match.loc)
    if (decision === undefined) continue // the catalogue has the faults
    const outcome = outcomeOf('tools', match, decision.changes)
    planned.push({ outcome, version: stored.get(id)?.version, decide: () => decision })
    if (outcome.action === 'unchanged') continue
    const notes = match.isNew ? [] : [...decision.notes]
    const { names = [] } = given.fields.definition ?? {}
    if (!match.isNew && names.length > 0) notes.push(...(await namesBeside(db, { id, name: match.name, names })))
    if (given.warnings) {
      notes.push(`the definition has ${counted(given.warnings, 'warning')}: for details, use agentctl validate`)
    }
    const impact = impactOf(before, given)
    Object.assign(outcome, notes.length > 0 && { notes }, impact.length > 0 && { impact })
  }
  return {
    outcomes: planned.map(({ outcome }) => outcome),
    store: (trx, actor) => storeInOrder(trx, [toolResource, toolCreation], planned, actor),
  }
}

/** The initial state of a new tool, for the comparison with its entry. */
function blankTool(id: number): ToolState {
  return { ...BLANK_TOOL, id, headers: [] as unknown[] } as ToolState
}

/** Applies the API's rules, but allows changes to built-in and MCP tools. If the change breaks a rule, adds faults and returns undefined. */
function decideAsOperator(
  state: ToolState,
  { fields, columns }: GivenTool,
  ring: KeyRing,
  catalogue: Catalogue,
  loc: Loc,
): ToolDecision | undefined {
  const editable = { ...state, in_code_tool_id: null, mcp_server_id: null, managed_as: 'all' as const }
  const origins = (text = '{}') => originsOf(JSON.parse(text))
  const update = { fields, origins: origins(fields.definition?.text), definitionFaults: [], ring }
  try {
    const decision = decideTool(editable, update, { linkable: '', storedOrigins: origins(state.definition_text) })
    const { in_code_tool_id, mcp_server_id } = state
    const after = { ...decision.after, in_code_tool_id, mcp_server_id, ...columns }
    return { ...decision, after, changes: changedFields(state, after, decision.headers) }
  } catch (error) {
    if (!(error instanceof InvalidRequest)) throw error
    const inDocument = (at: Loc) => (at[0] === 'body' ? [...loc, ...at.slice(1)] : at)
    catalogue.faults.push(...error.faults.map(fault => ({ ...fault, loc: inDocument(fault.loc) })))
    return undefined
  }
}

/** Describes how a new definition or new headers affect the model that calls the tool. For the first definition of a tool, lists the operations. */
function impactOf(before: ToolState, { fields: { definition, custom_headers }, methods = [] }: GivenTool): string[] {
  const { definition_text: stored, definition_hash: hash } = before
  const headerNamesBefore = before.headers.map(({ name }) => name)
  const headerNames = custom_headers?.map(({ key }) => key) ?? headerNamesBefore
  if ((definition?.hash ?? hash) === hash && isDeepStrictEqual(headerNames, headerNamesBefore)) return []
  if (stored === undefined) return methods.map(({ name, method, path }) => `${name}: ${method.toUpperCase()} ${path}`)
  const options = { headerNames, headerNamesBefore }
  const changes = definitionChanges(JSON.parse(stored), JSON.parse(definition?.text ?? stored), options)
  return changes.map(change => [change.operation, change.msg].filter(Boolean).join(': '))
}

/** The columns that the API's rules check. */
const RULED: ReadonlySet<string> = new Set(['name', 'description', 'passthrough_auth', 'oauth_config_id'])

async function givenTool(
  db: Kysely<Tables>,
  match: Matched,
  catalogue: Catalogue,
  around: ToolSurroundings,
  before: ToolState,
): Promise<GivenTool> {
  const all = COLUMNS.map(([name]) => [name, valueIn(match, name, catalogue)] as const)
  const values = all.filter(([, value]) => value !== undefined)
  const fields: ToolUpdateFields = Object.fromEntries(values.filter(([name]) => RULED.has(name)))
  const headers = await givenHeaders(db, match, catalogue, around, before)
  if (headers !== undefined) fields.custom_headers = headers
  const { definition, ...checked } = givenDefinition(match, catalogue, around, before)
  if (definition !== undefined) fields.definition = definition
  return { fields, columns: Object.fromEntries(values), ...checked }
}

/** Documents can refer only to environment variables with this prefix. */
const PREFIX = 'AGENTS_'

/** Returns a reference to an environment variable, for use in a document. */
export function placeholder(variable: string): string {
  return `\${env:${variable}}`
}

/**
 * Returns the headers of an entry with their secret values. If a value is missing or unchanged, returns the stored mask instead, so that applying
 * an export changes nothing.
 */
async function givenHeaders(
  db: Kysely<Tables>,
  match: Matched,
  catalogue: Catalogue,
  { ring, env }: ToolSurroundings,
  before: ToolState,
) {
  const { custom_headers } = match.entry as ToolEntry // the document has been checked
  if (custom_headers === undefined) return undefined
  const stored = before.headers.length > 0 ? await sealedHeaders(db, sql`tool_id = ${before.id}`) : []
  return custom_headers.map(({ key, value: written }, index) => {
    const loc = [...match.loc, 'custom_headers', index, 'value']
    const own = stored.find(({ headerName }) => headerName.toLowerCase() === key.toLowerCase())
    if (written === undefined && own === undefined) {
      catalogue.fault(loc, 'this header has no stored value: add a value', 'missing')
    }
    const value = written?.replace(/\$\{env:(\w+)\}/g, (_, name: string) => {
      const text = name.startsWith(PREFIX) ? env[name] : undefined
      const lack = name.startsWith(PREFIX)
        ? 'must be set and must not be empty'
        : `cannot be used: its name must begin with ${PREFIX}`
      if (!text) catalogue.fault(loc, `the environment variable ${name} ${lack}`, 'variable_missing')
      return text || 'unknown'
    })
    const stays = own !== undefined && (value === undefined || value === openSecret(ring, own).value)
    return { key, value: stays ? shownMask(own.mask.toString('hex')) : (value ?? 'unknown') }
  })
}

/** Returns the checked definition of an entry. Adds faults to the catalogue. */
function givenDefinition(
  { entry, isNew, loc }: Matched,
  catalogue: Catalogue,
  { baseDir = '.' }: ToolSurroundings,
  { definition_text: stored, definition_hash: hash, headers }: ToolState,
): Pick<GivenTool, 'methods' | 'warnings'> & Pick<ToolUpdateFields, 'definition'> {
  const { definition, definition_file: file, custom_headers, in_code_tool_id, mcp_server } = entry as ToolEntry
  const at = [...loc, file === undefined ? 'definition' : 'definition_file']
  let value: unknown = definition
  try {
    if (file !== undefined && definition !== undefined)
      throw new Refusal('give either definition or definition_file, not both')
    if (file !== undefined) value = readSource(resolve(baseDir, file)).value
  } catch (error) {
    if (!(error instanceof Refusal)) throw error
    catalogue.fault(at, error.message, 'definition_file')
    return {}
  }
  if (value === undefined) {
    if (isNew && !in_code_tool_id && !mcp_server) catalogue.fault(at, 'add definition or definition_file', 'missing')
    return {}
  }
  const text = JSON.stringify(value)
  if (hash !== null && stored !== undefined && JSON.stringify(JSON.parse(stored)) === text) {
    return { definition: { text: stored, hash, names: [] } } // an unchanged definition keeps its text and is not checked again
  }
  const headerNames = custom_headers?.map(({ key }) => key) ?? headers.map(({ name }) => name)
  const checked = checkDefinition(value, { headerNames, at })
  if (checked.ok) {
    const { methods, warnings } = checked
    return {
      definition: { text, hash: digest('sha256', text), names: functionNames(methods) },
      methods,
      warnings: warnings.length,
    }
  }
  catalogue.faults.push(...checked.faults)
  return {}
}
