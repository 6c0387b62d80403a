import { Type } from '@sinclair/typebox'
import type { FastifyInstance } from 'fastify'
import { InvalidRequest, ResourceNotFound } from '../errors.js'
import { answerRead } from '../http/answer.js'
import { registerHistory, registerList } from '../http/lists.js'
import { readOneResponses } from '../http/openapi.js'
import { IfNoneMatch, NO_PRECONDITION, PastVersion } from '../http/parameters.js'
import type { SchemaTypes } from '../http/validation.js'
import { historyOf } from '../updates/history.js'
import { answerPast, readResource } from '../updates/read.js'
import type { OperationOptions } from '../updates/resource.js'
import { pathId, queryChoice } from '../validation/parameters.js'
import { toolChanges } from './history.js'
import { toolResource } from './resource.js'
import { requireHistory } from './rules.js'
import { ToolRecord, ToolSummary } from './schema.js'
import { TOOL_LOOKUP, type ToolState } from './snapshot.js'
import { readToolPage } from './statements.js'
import { storedText } from './tool-use.js'
import type { BodyWorkers } from './worker/pool.js'

interface ReadToolOptions extends OperationOptions {
  workers: BodyWorkers
}

/** `GET /tool/{tool_id}`: answers the tool as an update does. Only its managers see the masks of headers. */
export function registerReadTool(app: FastifyInstance, { database, workers, ...limits }: ReadToolOptions): void {
  app.withTypeProvider<SchemaTypes>().get(
    '/tool/:tool_id',
    {
      exposeHeadRoute: true,
      config: { policy: { permission: 'basic', resource: 'tool', lookup: TOOL_LOOKUP } },
      schema: {
        operationId: 'read_tool',
        summary: 'Read Tool',
        description:
          'Answers a tool. Header values are masks for callers who may manage it, else `null`. Its `ETag` is what an update ' +
          'takes as `If-Match`. With `version` the tool as it was. With `view=functions` the functions that a ' +
          'model is given, each with the way its arguments are sent; `faults` where the stored definition is no longer accepted.',
        params: Type.Object({ tool_id: pathId() }),
        querystring: Type.Object({
          version: PastVersion,
          view: queryChoice(['functions'], '`functions`: the functions that a model is given, instead of the record.'),
        }),
        headers: Type.Object({ 'if-none-match': IfNoneMatch }),
        response: readOneResponses(ToolRecord, 'tool'),
      },
    },
    async (request, reply) => {
      const { tool_id: id } = request.params
      const prefetched = request.prefetched as ToolState | null // the route's lookup sets it
      if (id === undefined || prefetched === null) throw new ResourceNotFound('tool')
      const isPast = 'version' in request.query
      const ifNoneMatch = request.headers['if-none-match'] ?? NO_PRECONDITION
      if (request.query.view === 'functions') {
        if (isPast) throw new InvalidRequest([PRESENT_ONLY])
        const work = { headerNames: prefetched.headers.map(({ name }) => name) }
        const { caller, raw } = request
        const stored = storedText(database, prefetched)
        const snapshot = await workers.run('read_functions', { body: {}, caller, raw }, work, stored)
        return answerRead(reply, { kind: 'tool', id, version: prefetched.version, snapshot }, ifNoneMatch)
      }
      if (isPast) requireHistory(prefetched, request.caller)
      const job = { database, resource: toolResource, request: { caller: request.caller, ...limits } }
      const read = isPast ? await answerPast(job, id, request.query.version) : await readResource(job, prefetched)
      return answerRead(reply, { kind: 'tool', id, ...read }, ifNoneMatch)
    },
  )
}

/** `GET /tool/{tool_id}/history`: answers the changes of a tool to callers who may update it. */
export function registerReadToolHistory(app: FastifyInstance, { database, ...limits }: OperationOptions): void {
  registerHistory(app, {
    resource: 'tool',
    lookup: TOOL_LOOKUP,
    async read({ caller }, id, prefetched, asked) {
      requireHistory(prefetched as ToolState, caller) // the route's lookup sets it
      const job = { database, resource: toolResource, request: { caller, ...limits } }
      return await historyOf(job, id, asked, toolChanges)
    },
  })
}

const PRESENT_ONLY = {
  loc: ['query', 'view'],
  msg: 'view=functions shows the functions of now: leave version out',
  type: 'view_conflict',
}

/** `GET /tool`: lists the tools that the caller sees as short records, by pages. */
export function registerReadTools(app: FastifyInstance, options: OperationOptions): void {
  registerList(app, options, { resource: 'tool', title: 'tools', record: ToolSummary, read: readToolPage })
}
