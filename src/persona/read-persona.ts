import { Type } from '@sinclair/typebox'
import { TypeCompiler } from '@sinclair/typebox/compiler'
import type { FastifyInstance } from 'fastify'
import type { ViewerParameters } from '../auth/viewer.js'
import type { Executor } from '../db/statements/statement.js'
import { ResourceNotFound } from '../errors.js'
import { answerRead, editLink } from '../http/answer.js'
import { registerHistory } from '../http/history.js'
import { registerList } from '../http/pages.js'
import { asOf, IfNoneMatch, NO_PRECONDITION, ReadQuery } from '../http/parameters.js'
import { readOneResponses } from '../http/resource-routes.js'
import type { SchemaTypes } from '../http/validation.js'
import { AnswerText } from '../updates/answer-text.js'
import { historyOf } from '../updates/history.js'
import type { Past } from '../updates/past.js'
import { readResource, wholeState } from '../updates/read.js'
import { readPast } from '../updates/read-past.js'
import type { OperationOptions } from '../updates/resource.js'
import { pathId } from '../validation/parameters.js'
import { idsOf, isRelation, type PersonaContent, REQUEST_FIELDS } from './fields.js'
import { personaChanges } from './history.js'
import { pastContent } from './past.js'
import { personaResource } from './resource.js'
import { requireVersions } from './rules.js'
import { PersonaRecord, PersonaSummary, PersonaUpsertRequest, personaFieldsUpdate, READ_FIELDS } from './schema.js'
import { PERSONA_LOOKUP, type PersonaState } from './state.js'
import { readPersonaPage } from './statements.js'

/** `GET /persona/{persona_id}`: answers the agent as an update does, with the fields that updates leave out. */
export function registerReadPersona(app: FastifyInstance, { database, ...limits }: OperationOptions): void {
  app.withTypeProvider<SchemaTypes>().get(
    '/persona/:persona_id',
    {
      exposeHeadRoute: true,
      config: {
        policy: { permission: 'basic', resource: 'persona', lookup: PERSONA_LOOKUP },
      },
      schema: {
        operationId: 'read_persona',
        summary: 'Read Persona',
        description:
          'Answers an agent that the caller sees. Its `ETag` is what an update takes as `If-Match`. With `version` or `at` the agent ' +
          'as it was, with its tools as they were then. With `view=update` what an update takes, to be sent back with edits to ' +
          'the address that `Link` with `rel="edit"` names.',
        params: Type.Object({ persona_id: pathId() }),
        querystring: Type.Object(ReadQuery),
        headers: Type.Object({ 'if-none-match': IfNoneMatch }),
        response: readOneResponses([PersonaRecord, personaFieldsUpdate(PersonaUpsertRequest)], 'agent'),
      },
    },
    async (request, reply) => {
      const { persona_id: id } = request.params
      const prefetched = request.prefetched as PersonaState | null // the route's lookup sets it
      if (id === undefined || prefetched === null) throw new ResourceNotFound('persona')
      // Checked before anything else is read, so that response time does not reveal a hidden agent.
      if (!personaResource.isVisible(prefetched, request.caller)) throw new ResourceNotFound('persona')
      const earlier = asOf(request.query)
      const isUpdateView = request.query.view === 'update'
      const job = { database, resource: personaResource, request: { caller: request.caller, ...limits } }
      const readNow = async () => {
        if (!isUpdateView)
          return await readResource(job, prefetched, ({ snapshot }, state) => snapshot.with(readFields(state)))
        const state = await wholeState(job, prefetched)
        return { version: state.version, snapshot: editable(state) }
      }
      const read =
        earlier === undefined
          ? await readNow()
          : await readPast(job, id, earlier, isUpdateView ? showEditable : showRecord)
      return answerRead(reply, { kind: 'persona', id, ...read }, request.headers['if-none-match'] ?? NO_PRECONDITION)

      function editable(content: PersonaContent): AnswerText {
        const { text, mask } = updateView(content)
        reply.header('link', editLink(String(id), mask))
        return new AnswerText([text])
      }

      async function showEditable(executor: Executor, state: PersonaState, past: Past, viewer: ViewerParameters) {
        const { content, notes } = await pastContent(executor, state, past, viewer)
        return { text: editable(content), notes }
      }
    },
  )
}

const showRecord: typeof personaResource.pastSnapshot = async (executor, state, past, ...limits) => {
  const { text, notes } = await personaResource.pastSnapshot(executor, state, past, ...limits)
  return { text: text.with(readFields({ ...state, ...past.values })), notes }
}

function readFields(content: PersonaContent): object {
  return Object.fromEntries(READ_FIELDS.map(([name]) => [name, content[name]]))
}

/** `GET /persona`: lists the agents that the caller sees as short records, by pages. */
export function registerReadPersonas(app: FastifyInstance, options: OperationOptions): void {
  registerList(app, options, { resource: 'persona', title: 'agents', record: PersonaSummary, read: readPersonaPage })
}

/** `GET /persona/{persona_id}/history`: answers the changes of an agent to callers who may edit it. */
export function registerReadPersonaHistory(app: FastifyInstance, { database, ...limits }: OperationOptions): void {
  const resource = { ...personaResource, requireHistory: requireVersions }
  registerHistory(app, {
    resource: 'persona',
    lookup: PERSONA_LOOKUP,
    async read({ caller }, id, prefetched, asked) {
      requireVersions(prefetched as PersonaState, caller) // the route's lookup sets it
      const job = { database, resource, request: { caller, ...limits } }
      const { page, shown: changes } = await historyOf(job, id, asked, personaChanges)
      return { page, changes }
    },
  })
}

const required = new Set<string>(PersonaUpsertRequest.required)

const FIELDS_OF_UPDATE = REQUEST_FIELDS.flatMap(([name]) => {
  return name === 'remove_image' ? [] : [{ name, takes: TypeCompiler.Compile(PersonaUpsertRequest.properties[name]) }]
})

/** Returns an update body that changes nothing, and its mask if a stored value would not be accepted. */
function updateView(content: PersonaContent): { text: string; mask: string[] | undefined } {
  const values = FIELDS_OF_UPDATE.map(({ name, takes }) => {
    const value = isRelation(name) ? idsOf(content, name) : content[name]
    return { name, value, isTaken: takes.Check(value) }
  })
  const taken = values.filter(({ isTaken }) => isTaken)
  const isWhole = values.every(({ name, isTaken }) => isTaken || !required.has(name))
  const text = JSON.stringify(Object.fromEntries(taken.map(({ name, value }) => [name, value])))
  return { text, mask: isWhole ? undefined : taken.map(({ name }) => name) }
}
