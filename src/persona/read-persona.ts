import { Type } from '@sinclair/typebox'
import type { FastifyInstance } from 'fastify'
import { type RawBuilder, sql } from 'kysely'
import { personaAccess } from '../auth/access.js'
import { type Caller, isAdmin } from '../auth/caller.js'
import { pageRows } from '../db/statements/page-rows.js'
import { type Executor, isOnly, statement } from '../db/statements/statement.js'
import type { ServiceDatabase } from '../db/transaction.js'
import { ResourceNotFound } from '../errors.js'
import { answerRead, editLink } from '../http/answer.js'
import { editHeader, errorResponses, readOneHeaders } from '../http/openapi.js'
import { type AskedPage, PAGE_RECORDS_MAX, type PageRow, registerList } from '../http/pages.js'
import { asOf, IfNoneMatch, NO_PRECONDITION, ReadQuery } from '../http/parameters.js'
import type { SchemaTypes } from '../http/validation.js'
import { compileBody, HTTPValidationError } from '../schema/faults.js'
import { pathId } from '../schema/parameters.js'
import { reference } from '../schema/vocabulary.js'
import { AnswerText } from '../updates/answer-text.js'
import type { Past } from '../updates/past.js'
import { readPast, readResource, wholeState } from '../updates/read.js'
import type { ReadRequest, WorkBounds } from '../updates/resource.js'
import { jsonRow } from '../updates/statements.js'
import { idsOf, isRelation, type PersonaContent, REQUEST_FIELDS } from './fields.js'
import { pastContent } from './past.js'
import { personaResource } from './resource.js'
import { PersonaSnapshot, PersonaSummary, PersonaUpsertRequest, personaFieldsUpdate } from './schema.js'
import { callerAndPersona, type PersonaState } from './state.js'

/** `GET /persona/{persona_id}`: the agent as an update answers it, for everybody who sees it. */
export function registerReadPersona(
  app: FastifyInstance,
  database: ServiceDatabase,
  limits: Omit<ReadRequest, 'caller'>,
): void {
  app.withTypeProvider<SchemaTypes>().get(
    '/persona/:persona_id',
    {
      exposeHeadRoute: true,
      config: {
        policy: {
          permission: 'basic',
          resource: 'persona',
          lookup: { parameter: 'persona_id', statement: callerAndPersona },
        },
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
        response: {
          200: {
            anyOf: [reference(PersonaSnapshot), reference(personaFieldsUpdate(PersonaUpsertRequest))],
            description: 'The agent as it is now; with `view=update` the body of an update that changes nothing.',
            headers: { ...readOneHeaders, ...editHeader },
          },
          304: { description: 'The agent is still what the caller has.', type: 'null', headers: readOneHeaders },
          422: { ...reference(HTTPValidationError), description: 'Every fault of the request.' },
          ...errorResponses(400, 401, 403, 404, 409, 410, 429, 500, 503),
        },
      },
    },
    async (request, reply) => {
      const { persona_id: id } = request.params
      const prefetched = request.prefetched as PersonaState | null // this route's lookup reads it
      if (id === undefined || prefetched === null) throw new ResourceNotFound('persona')
      // Before more is read: the time of an answer must not tell that there is something.
      if (!personaResource.isVisible(prefetched, request.caller)) throw new ResourceNotFound('persona')
      const earlier = asOf(request.query)
      const isUpdateView = request.query.view === 'update'
      const reader = { caller: request.caller, ...limits }
      const readNow = async () => {
        if (!isUpdateView) return await readResource(database, personaResource, prefetched, reader)
        const state = await wholeState(database, personaResource, prefetched, reader)
        return { version: state.version, snapshot: editable(state) }
      }
      const read =
        earlier === undefined
          ? await readNow()
          : await readPast(database, personaResource, id, earlier, reader, isUpdateView ? showEditable : undefined)
      return answerRead(reply, { kind: 'persona', id, ...read }, request.headers['if-none-match'] ?? NO_PRECONDITION)

      function editable(content: PersonaContent): AnswerText {
        const { text, mask } = updateView(content)
        reply.header('link', editLink(String(id), mask))
        return new AnswerText([text])
      }

      async function showEditable(executor: Executor, state: PersonaState, past: Past) {
        const { content, notes } = await pastContent(executor, state, past)
        return { text: editable(content), notes }
      }
    },
  )
}

/** `GET /persona`: the agents that the caller sees, as small records, a page at a time. */
export function registerReadPersonas(app: FastifyInstance, database: ServiceDatabase, bounds: WorkBounds): void {
  registerList(app, database, bounds, {
    resource: 'persona',
    title: 'agents',
    record: PersonaSummary,
    read: readPersonaPage,
  })
}

const required = new Set<string>(PersonaUpsertRequest.required)

const FIELDS_OF_UPDATE = REQUEST_FIELDS.flatMap(([name]) => {
  return name === 'remove_image' ? [] : [{ name, takes: compileBody(PersonaUpsertRequest.properties[name]) }]
})

/**
 * The body of an update that changes nothing of a stored agent, as JSON text, and the mask that it goes with where it is no whole
 * update: a field that no update takes, as a prompt that is null, is left out.
 */
function updateView(content: PersonaContent): { text: string; mask: string[] | undefined } {
  const values = FIELDS_OF_UPDATE.map(({ name, takes }) => {
    const value = isRelation(name) ? idsOf(content, name) : content[name]
    return { name, value, isTaken: takes.check(value) }
  })
  const taken = values.filter(({ isTaken }) => isTaken)
  const isWhole = values.every(({ name, isTaken }) => isTaken || !required.has(name))
  const text = JSON.stringify(Object.fromEntries(taken.map(({ name, value }) => [name, value])))
  return { text, mask: isWhole ? undefined : taken.map(({ name }) => name) }
}

/*
 * Lists of agents, a page at a time in the order of their ids, each page by indexes. What a caller may see comes from four places, of
 * which each gives the first rows of the page; of a name, each agent that has it is asked.
 */

interface Parameters {
  user: string
  sees_all: boolean
  after: number
  rows: number
  name: string
  ids: readonly number[]
}

/** Which agents are looked at: all of an administrator, those that a token is bound to, those of a name, else those that one sees. */
const SCOPES = ['all', 'all of a name', 'bound', 'bound of a name', 'seen', 'seen of a name'] as const
type Scope = (typeof SCOPES)[number]

/** A constant, so that the planner knows that a page is short. */
const MOST = sql.lit(PAGE_RECORDS_MAX + 1)

/** Each candidate is read by its key: `offset 0` keeps the planner from reading the agents in their order until it meets them. */
const BY_ID = sql`candidate cross join lateral (select * from persona where id = candidate.id offset 0) p`

const OWNER = jsonRow(sql`select u.id, u.email from user_account u where u.id = p.owner_id`)
const RECORD = sql`${jsonRow(sql`
      select p.id, p.name, p.description, ${OWNER} as owner, p.is_public, p.is_visible, p.is_default_persona,
        p.builtin_persona, format('"persona-%s-%s"', p.id, p.version) as etag`)}::text`

/** The statement of each scope. */
export const personaPages = Object.fromEntries(SCOPES.map(scope => [scope, pageOf(scope)])) as Record<
  Scope,
  ReturnType<typeof pageOf>
>

/** Reads so many agents behind an id that the caller sees and the token is not bound away from. */
export async function readPersonaPage(
  database: ServiceDatabase,
  caller: Caller,
  { name }: AskedPage,
  after: number,
  rows: number,
): Promise<PageRow[]> {
  const ids = caller.token.personaIds
  const scope: 'all' | 'bound' | 'seen' = ids !== null ? 'bound' : isAdmin(caller) ? 'all' : 'seen'
  const parameters = { user: caller.userId, sees_all: isAdmin(caller), after, rows, name: name ?? '', ids: ids ?? [] }
  return await personaPages[name === undefined ? scope : (`${scope} of a name` as const)].run(database.db, parameters)
}

function pageOf(scope: Scope) {
  return statement<Parameters, PageRow>(`persona_page(${scope})`, param => {
    const user = sql`${param('user')}::uuid`
    const name = sql`${param('name')}::text`
    const behind = (id: RawBuilder<unknown>) => sql`${id} > ${param('after')}::integer`
    const seen = sql`(${param('sees_all')}::boolean or ${personaAccess(user)} <> 'none')`
    const isSeen = scope === 'seen'
    const first = isSeen ? sql`with candidate as materialized (${candidates(user, behind)})` : sql``
    const conditions = [
      sql`${behind(sql`p.id`)} and not p.deleted`,
      ...(scope.endsWith('name') ? [isOnly(sql`p.name`, name)] : []),
      ...(scope.startsWith('bound') ? [sql`p.id = any(${param('ids')}::integer[])`] : []),
      ...(scope.startsWith('all') || isSeen ? [] : [seen]),
    ]
    const order = scope.endsWith('name') ? sql`p.name, p.id` : sql`p.id`
    const found = sql`
      select p.* from ${isSeen ? BY_ID : sql`persona p`}
      where ${sql.join(conditions, sql` and `)} order by ${order} limit ${MOST}`
    return sql`${first}${pageRows(found, 'p', RECORD, sql`${param('rows')}::integer`)}`
  })
}

/** SQL: the ids of the first agents that the user owns, that are public, and that are shared with them or a group of theirs. */
function candidates(user: RawBuilder<unknown>, behind: (id: RawBuilder<unknown>) => RawBuilder<unknown>) {
  const first = (id: RawBuilder<unknown>) => sql`and ${behind(id)} order by ${id} limit ${MOST}`
  return sql`
      select id from (
        (select c.id from persona c where c.owner_id = ${user} and not c.deleted ${first(sql`c.id`)})
        union (select c.id from persona c where c.is_public and not c.deleted ${first(sql`c.id`)})
        union (
          select s.persona_id from persona_user s join persona c on c.id = s.persona_id and not c.deleted
          where s.user_id = ${user} ${first(sql`s.persona_id`)})
        union (
          select s.persona_id from user_group_member m
          cross join lateral (
            select s.persona_id from persona_group s join persona c on c.id = s.persona_id and not c.deleted
            where s.user_group_id = m.user_group_id ${first(sql`s.persona_id`)}
          ) s where m.user_id = ${user})
      ) one order by id limit ${MOST}`
}
