import { type Static, type TObject, Type } from '@sinclair/typebox'
import type { FastifyInstance, FastifyReply, FastifyRequest, RouteHandlerMethod } from 'fastify'
import type { RoutePolicy } from '../auth/authenticate.js'
import { InvalidRequest, Refused, ResourceNotFound } from '../errors.js'
import { addWarnings, JSON_TYPE, unknownFieldWarnings } from '../http/answer.js'
import { DryRun } from '../http/parameters.js'
import { commonOf, UpdateHeaders } from '../http/writes.js'
import type { PersonaContent } from '../persona/fields.js'
import { personaResource } from '../persona/resource.js'
import { decisionFor, requireEditable } from '../persona/rules.js'
import { PERSONA_READS } from '../persona/state.js'
import { toolResource } from '../tool/resource.js'
import { requireManageable } from '../tool/rules.js'
import { storeTogether } from '../updates/engine.js'
import { LIST_ITEMS_MAX } from '../updates/field-table.js'
import type { OperationOptions, ResourceTypes, UpdateRequest, VersionedResource } from '../updates/resource.js'
import { fault, unknownFields } from '../validation/faults.js'
import { pathId } from '../validation/parameters.js'
import { flag, freeForm, identifier, isInt4, list, text, uuid } from '../validation/vocabulary.js'
import { absent, requireKept } from './forms.js'

const ids = () => list(identifier(), { maxItems: LIST_ITEMS_MAX })
const ShareRequest = Type.Object({
  ...{ user_ids: absent(list(uuid(), { maxItems: LIST_ITEMS_MAX })), group_ids: absent(ids()) },
  ...{ is_public: absent(flag()), label_ids: absent(ids()) },
  ...{ user_shares: absent(list(Type.Unknown())), group_shares: absent(list(Type.Unknown())) },
  public_permission: absent(text()),
})
/** Fields with permission levels, which only the operator can set. Each is mapped to the field to send instead. */
const LEVELS = { user_shares: 'user_ids', group_shares: 'group_ids', public_permission: 'is_public' }

const AGENTS = { permission: 'admin', resource: 'persona', writes: true } as const
const AGENT = { ...AGENTS, lookup: PERSONA_READS.lookup }
const TOOLS = { permission: 'manage:actions', resource: 'tool', writes: true } as const

/** Registers the routes under `/api` that change agents or tools and do not exist outside `/api`. `update` is the handler of `update_persona`. */
export function registerChanges(today: FastifyInstance, options: OperationOptions, update: RouteHandlerMethod): void {
  patch('/persona/:persona_id/share', { ...AGENT, permission: 'basic' }, ShareRequest, async (request, reply, body) => {
    requireKept(body, LEVELS)
    const { user_ids: users, group_ids: groups, is_public, label_ids } = body
    return await updateBy(request, reply, { users, groups, is_public, label_ids })
  })
  patch('/admin/persona/:persona_id/featured', AGENT, Type.Object({ is_featured: flag() }), (request, reply, body) => {
    return updateBy(request, reply, { is_default_persona: body.is_featured })
  })
  patch('/admin/persona/:persona_id/listed', AGENT, Type.Object({ is_listed: flag() }), async (request, _, body) => {
    const { persona_id: id = 0 } = request.params as { persona_id?: number }
    return await changeAgents(request, [id], () => ({ is_visible: body.is_listed })) // `update_persona` cannot change `is_visible`
  })
  const Priorities = Type.Object({ display_priority_map: freeForm() })
  patch('/admin/agents/display-priorities', AGENTS, Priorities, async (request, _, { display_priority_map: map }) => {
    requirePriorities(map)
    return await changeAgents(request, Object.keys(map).map(Number), id => ({ display_priority: map[id] as number }))
  })
  const Status = Type.Object({ tool_ids: ids(), enabled: flag() })
  patch('/admin/tool/status', TOOLS, Status, async (request, _, { tool_ids, enabled }) => {
    const named = [...new Set(tool_ids)]
    await together(request, toolResource, named, state => {
      requireManageable(state)
      const changes = state.enabled === enabled ? [] : [{ field: 'enabled', from: state.enabled, to: enabled }]
      return { after: { ...state, enabled }, changes, definition: null, headers: null, notes: [] }
    })
    return { updated_count: named.length, tool_ids: named }
  })

  function patch<Body extends TObject>(
    path: string,
    policy: RoutePolicy,
    body: Body,
    change: (request: FastifyRequest, reply: FastifyReply, body: Static<Body>) => Promise<unknown>,
  ): void {
    const params = Type.Object(policy.lookup === undefined ? {} : { persona_id: pathId() })
    const operationId = path.slice(1).replaceAll(/\W+/g, '_')
    const schema = { operationId, params, querystring: Type.Object({ dry_run: DryRun }), headers: UpdateHeaders, body }
    today.patch(path, { config: { policy }, schema }, async (request, reply) => {
      const sent = request.body as Static<Body>
      addWarnings(reply, unknownFieldWarnings(unknownFields(body, sent)))
      const answer = await change(request, reply, sent)
      if (reply.sent || typeof answer === 'string') return answer ?? reply
      if ((request.query as { dry_run?: boolean }).dry_run) reply.header('dry-run', 'true')
      return reply.type(JSON_TYPE).send(JSON.stringify(answer))
    })
  }

  /** Changes `fields` of an agent with the handler `update`. Absent and null fields keep their stored values. */
  async function updateBy(request: FastifyRequest, reply: FastifyReply, fields: object): Promise<unknown> {
    const given = Object.entries(fields).filter(([, value]) => value !== undefined && value !== null)
    const query = { ...(request.query as object), update_mask: given.map(([name]) => name) }
    return await update.call(today, Object.assign(request, { query, body: Object.fromEntries(given) }), reply)
  }

  function changeAgents(request: FastifyRequest, ids: number[], fieldsOf: (id: number) => Partial<PersonaContent>) {
    return together(request, personaResource, ids, (state, { caller }) => {
      requireEditable(state, caller)
      return decisionFor(state, { ...state, ...fieldsOf(state.id) })
    })
  }

  /** Changes several resources of one kind in one transaction. Each changed resource gets a new version and an audit row. */
  async function together<T extends ResourceTypes>(
    request: FastifyRequest,
    resource: VersionedResource<T>,
    ids: readonly number[],
    decide: (state: T['State'], request: UpdateRequest) => T['Decision'],
  ): Promise<null> {
    const { kind } = resource
    const basis = commonOf(request, 'update', options)
    const sent = ['if-match', 'if-none-match', 'idempotency-key'].filter(name => request.headers[name] !== undefined)
    if (sent.length > 0) throw new InvalidRequest(sent.map(name => fault('extra_forbidden', ['header', name])))
    if (basis.preconditionRequired || basis.caller.token.requiresIfMatch)
      throw new Refused(
        'PRECONDITION_REQUIRED',
        'This operation does not support If-Match, which the operator requires for every update. Ask the operator to allow updates without If-Match.',
      )
    if (!ids.every(isInt4)) throw new ResourceNotFound(kind)
    const changing: VersionedResource<T> = {
      ...resource,
      decide: async (_, state, request) => {
        const isBeyond = request.caller.token.bound?.[kind].includes(state.id) === false
        if (isBeyond || !resource.isVisible(state, request.caller)) throw new ResourceNotFound(kind)
        return decide(state, request)
      },
    }
    const asked = { ...basis, kind, id: 0, fields: {}, key: null, minimal: true } as T['Request'] // `decide` needs no other properties
    await storeTogether({ database: options.database, resource: changing, request: asked }, ids)
    return null
  }
}

function requirePriorities(map: Readonly<Record<string, unknown>>): void {
  const isEntry = ([id, value]: [string, unknown]) =>
    /^[1-9]\d{0,9}$/.test(id) && Number.isInteger(value) && isInt4(Number(value))
  const entries = Object.entries(map)
  if (entries.length <= LIST_ITEMS_MAX && entries.every(isEntry)) return
  const msg = `Input should map at most ${LIST_ITEMS_MAX} agent ids to integers`
  throw new InvalidRequest([{ loc: ['body', 'display_priority_map'], msg, type: 'value_error' }])
}
