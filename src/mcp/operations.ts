import { isDeepStrictEqual } from 'node:util'
import type { CallToolResult, Tool } from '@modelcontextprotocol/server'
import { type Static, type TObject, type TSchema, Type } from '@sinclair/typebox'
import type { RoutePolicy } from '../auth/hook.js'
import type { Loc } from '../errors.js'
import { NAME_LENGTH_MAX } from '../http/pages.js'
import { REQUEST_FIELDS as AGENT_FIELDS } from '../persona/fields.js'
import { REQUEST_FIELDS as TOOL_FIELDS } from '../tool/fields.js'
import { entityTag } from '../updates/tag.js'
import { bodyCheck } from '../validation/body-check.js'
import { enumeration, freeForm, INT4_MAX, identifier, isJsonObject, nullable, text } from '../validation/vocabulary.js'
import { type Answer, type Body, type Call, faulty, refusal, refused, result, type ToolKind } from './answers.js'

/* The tools that a model calls. Each is a few requests to the operations, which have all rules. */

/** Sends a request of the caller to an operation. */
export type Ask = (
  method: 'GET' | 'PATCH' | 'POST' | 'PUT',
  url: string,
  sent?: { body?: object; headers?: Record<string, string> },
) => Promise<Answer>

/** A tool as `tools/list` shows it, with what it does. */
export interface Operation {
  tool: Tool
  /** The access that its requests take: it is listed for tokens that have it. */
  policy: RoutePolicy
  /** `forbidden`: paths of keys in the arguments that could change a prototype. */
  call(ask: Ask, args: unknown, forbidden: Loc[]): Promise<CallToolResult>
}

const KINDS = {
  agent: { resource: 'persona', read: '/persona', write: '/persona', method: 'PATCH', permission: 'basic' },
  tool: { resource: 'tool', read: '/tool', write: '/admin/tool/custom', method: 'PUT', permission: 'manage:actions' },
} as const

const VALIDATE = '/admin/tool/custom/validate'
const KIND = enumeration(['agent', 'tool'])
const ID = identifier({ minimum: 1, maximum: INT4_MAX })
/** Models call no object without named properties. The operations check what is in the document. */
const named = (properties: Record<string, object>, more = {}) => ({ type: 'object', properties, ...more })
const TEXT = { type: 'string' }
const CALL = named({ operationId: TEXT, summary: TEXT })
const DEFINITION = {
  description: 'An OpenAPI 3.x document, whole.',
  properties: {
    openapi: TEXT,
    info: named({ title: TEXT, version: TEXT }),
    servers: { type: 'array', items: named({ url: TEXT }) },
    paths: {
      type: 'object',
      additionalProperties: named({ get: CALL, post: CALL, put: CALL, patch: CALL, delete: CALL }),
    },
  },
}
const FIELDS = {
  agent: fieldsOf(AGENT_FIELDS),
  tool: fieldsOf(TOOL_FIELDS, { definition: nullable(freeForm(DEFINITION)) }),
}

function fieldsOf(rows: readonly (readonly [string, { request: TSchema }])[], shown: Record<string, TSchema> = {}) {
  const fields = Object.fromEntries(rows.map(([name, { request }]) => [name, shown[name] ?? request]))
  return Type.Partial(Type.Object(fields, { description: 'Only what changes.' })) as TObject
}

/** Makes a tool whose arguments are checked by its schema. */
function operation<Input extends TObject>(
  name: string,
  policy: RoutePolicy,
  description: string,
  input: Input,
  run: (ask: Ask, args: Static<Input>) => Promise<CallToolResult>,
): Operation {
  const check = bodyCheck(input)
  const { writes = false } = policy
  const annotations = { readOnlyHint: !writes, destructiveHint: writes, idempotentHint: true, openWorldHint: false }
  const required = [...(input.required ?? []), ...('etag' in input.properties ? ['etag'] : [])] // missing: see `tagOf`
  return {
    policy,
    tool: { name, description, inputSchema: shownSchema({ ...input, required }), annotations },
    async call(ask, args = {}, forbidden) {
      const verdict = check({ kind: 'value', value: args, forbidden }, { mask: undefined, strict: true })
      if ('value' in verdict) return await run(ask, verdict.value as Static<Input>) // as its schema says
      return refusal(...faulty(verdict.faults))
    },
  }
}

/** The schema as models read it: strict checks refuse unknown names, and names of schemas occur once in a list. */
function shownSchema(schema: object): Tool['inputSchema'] {
  return JSON.parse(JSON.stringify(schema), (key, node: unknown) => {
    if (key === '$id') return undefined
    const isClosed = typeof node === 'object' && node !== null && 'properties' in node && 'type' in node
    return isClosed ? { additionalProperties: false, ...node } : node
  })
}

function listed(kind: ToolKind): Operation {
  const { resource, read } = KINDS[kind]
  const input = Type.Object({
    name: Type.Optional(text({ maxLength: NAME_LENGTH_MAX })),
    after: Type.Optional(identifier({ minimum: 0, maximum: INT4_MAX })),
  })
  const description = `Lists ${kind}s with their etags, 50 at a time. name: exactly this; after: the \`next\` of the previous answer.`
  return operation(`list_${kind}s`, { permission: 'basic', resource }, description, input, async (ask, query) => {
    const answer = await ask('GET', read + queryOf(query))
    return answer.status === 200
      ? result({ [`${kind}s`]: answer.body }, { next: answer.next })
      : refused(answer, { kind })
  })
}

function shown(kind: ToolKind): Operation {
  const { resource, read } = KINDS[kind]
  const more = kind === 'agent' ? '; definitions of its tools are left out' : ''
  const description = `Reads one ${kind} and its etag${more}. Header values are masks: send one back to keep its value.`
  const input = Type.Object({ id: ID })
  return operation(`get_${kind}`, { permission: 'basic', resource }, description, input, async (ask, { id }) => {
    const answer = await ask('GET', `${read}/${id}`)
    if (answer.status !== 200) return refused(answer, { kind, id })
    return result({ etag: answer.etag, [kind]: brief(answer.body) }, answer)
  })
}

/** An agent without what its tools are made of. */
function brief(snapshot: Body | null): Body {
  const { tools, ...others } = snapshot ?? {}
  if (!Array.isArray(tools)) return { ...snapshot }
  return { ...others, tools: tools.map(({ definition: _, custom_headers: __, ...tool }: Body) => tool) }
}

function updating(kind: ToolKind, isPlan: boolean): Operation {
  const { resource, permission, read, write, method } = KINDS[kind]
  const description = isPlan
    ? `Tries an update of one ${kind} and answers the difference${kind === 'tool' ? ', also for models and agents' : ''}. Stores nothing.`
    : `Stores an update of one ${kind} if it is as the etag says. Takes what plan_${kind}_update takes: try that first.`
  const policy: RoutePolicy = { permission, resource, ...(!isPlan && { writes: true }) }
  const input = Type.Object({ id: ID, etag: Type.Optional(text()), fields: FIELDS[kind] })
  const name = isPlan ? `plan_${kind}_update` : `update_${kind}`
  return operation(name, policy, description, input, async (ask, { id, etag: sent, fields }) => {
    const [etag, first] = [tagOf(kind, id, sent), `Call get_${kind} with id ${id}, send the etag of its answer`]
    if (etag === undefined) return refusal(`${first}: ${UNSEEN}`)
    const call: Call = { kind, id, argument: 'fields', first: `${first} and apply your change to what it answers.` }
    const query = queryOf({ update_mask: kind === 'agent' ? Object.keys(fields).join() : undefined, dry_run: isPlan })
    // The schema of the arguments is strict itself; a definition may have operations that no function can be made of.
    const prefer = [...(kind === 'agent' ? ['handling=strict'] : []), ...(isPlan ? [] : ['return=minimal'])].join(', ')
    const before = isPlan ? await ask('GET', `${read}/${id}`) : undefined
    const answer = await ask(method, `${write}/${id}${query}`, {
      body: fields,
      headers: { 'if-match': etag, ...(prefer !== '' && { prefer }) },
    })
    if (answer.status >= 300) return refused(answer, call)
    if (before === undefined) return result({ id, etag: answer.etag }, answer)
    if (before.status !== 200) return refused(before, call)
    const stored = before.body ?? {}
    const asked = Object.entries(fields).filter(([name]) => name in stored) // the answer lacks fields that only reads have
    const planned = { ...stored, ...Object.fromEntries(asked), ...answer.body }
    const found = { id, etag: answer.etag, changes: changesOf(brief(stored), brief(planned)).flatMap(inParts) }
    if (kind === 'agent' || !fields.definition) return result(found, answer)
    const { body } = await ask('POST', `${VALIDATE}?tool_id=${id}`, { body: { definition: fields.definition } })
    return result({ ...found, impact: body?.impact }, answer)
  })
}

interface Change {
  field: string
  /** The part of a definition. */
  place?: string
  from: unknown
  to: unknown
}

/** The members that differ. What is absent is null. */
function changesOf(before: Body, after: Body): Change[] {
  return [...new Set([...Object.keys(before), ...Object.keys(after)])].flatMap(field => {
    const [from = null, to = null] = [before[field], after[field]]
    return isDeepStrictEqual(from, to) ? [] : [{ field, from, to }]
  })
}

/** A change of a definition as those of its members, and of each of its paths; another change as it is. */
function inParts({ field, from, to }: Change): Change[] {
  if (field !== 'definition' || !isJsonObject(from) || !isJsonObject(to)) return [{ field, from, to }]
  return changesOf(partsOf(from), partsOf(to)).map(change => ({ ...change, field, place: change.field }))
}

function partsOf({ paths, ...members }: Body): Body {
  const each = Object.entries(paths ?? {}).map(([path, item]) => [`paths.${path}`, item])
  return { ...members, ...Object.fromEntries(each) }
}

const UNSEEN = 'then nothing that you have not seen is overwritten.'

/** The etag of one record, with or without its quotes. The operations also take `*` and lists, which name versions that nobody has read. */
function tagOf(kind: ToolKind, id: number, etag = ''): string | undefined {
  const tag = etag.replace(/^"(.*)"$/, '$1')
  return tag.startsWith(`${KINDS[kind].resource}-${id}-`) && /^[\w.-]+$/.test(tag) ? `"${tag}"` : undefined
}

const validation = operation(
  'validate_definition',
  { permission: 'manage:actions', resource: 'tool' },
  'Checks a definition: every fault with its place, else its operations. tool_id: also what storing it there would change.',
  Type.Object({ definition: freeForm(DEFINITION), tool_id: Type.Optional(ID) }),
  async (ask, { definition, tool_id }) => {
    const answer = await ask('POST', VALIDATE + queryOf({ report: 'full', tool_id }), { body: { definition } })
    if (answer.status !== 200) return refused(answer, { kind: 'tool', id: tool_id })
    const { methods, ...more } = answer.body ?? {}
    const brief = (methods as Body[]).map(({ spec: _, ...method }) => method) // of a 200
    return result({ methods: brief, ...more })
  },
)

const history = operation(
  'history',
  { permission: 'basic' },
  'Who changed what of an agent, also a deleted one, or of a tool, newest first, and its etag. before: the `next` of the previous answer.',
  Type.Object({ kind: KIND, id: ID, before: Type.Optional(ID) }),
  async (ask, { kind, id, before }) => {
    const { resource, read } = KINDS[kind]
    const answer = await ask('GET', `${read}/${id}/history${queryOf({ before })}`)
    if (answer.status !== 200) return refused(answer, { kind, id })
    const [newest] = answer.body as unknown as { version: number }[] // the list of a 200
    const etag = before === undefined && newest ? { etag: entityTag(resource, id, newest.version) } : {}
    return result({ ...etag, entries: answer.body }, { next: answer.next })
  },
)

const restoration = operation(
  'restore',
  { permission: 'basic', writes: true },
  'Makes a new version with the content of an earlier one (see history) if it is as the etag says.',
  Type.Object({ kind: KIND, id: ID, version: ID, etag: Type.Optional(text()) }),
  async (ask, { kind, id, version, etag: sent }) => {
    const etag = tagOf(kind, id, sent)
    const first = `Call history with kind ${kind} and id ${id}, send the etag of its answer` // reads refuse a deleted agent
    if (etag === undefined) return refusal(`${first}: ${UNSEEN}`)
    const headers = { 'if-match': etag, prefer: 'return=minimal' }
    const answer = await ask('POST', `${KINDS[kind].write}/${id}/restore`, { body: { version }, headers })
    return answer.status < 300
      ? result({ id, etag: answer.etag }, answer)
      : refused(answer, { kind, id, first: `${first}.` })
  },
)

function queryOf(values: Record<string, string | number | boolean | undefined>): string {
  const sent = Object.entries(values).flatMap(([name, value]) => (value === undefined ? [] : [[name, String(value)]]))
  return sent.length === 0 ? '' : `?${new URLSearchParams(Object.fromEntries(sent))}`
}

const of = (kind: ToolKind) => [listed(kind), shown(kind), updating(kind, true), updating(kind, false)]

/** Every tool, in the order of the list. */
export const OPERATIONS: readonly Operation[] = [...of('agent'), ...of('tool'), validation, history, restoration]
