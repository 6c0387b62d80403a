import { Type } from '@sinclair/typebox'
import type { FastifyInstance } from 'fastify'
import { PERMISSIONS, SCOPES } from '../auth/caller.js'
import type { Database } from '../db/database.js'
import { anyOf, val } from '../db/statements/queries.js'
import { contentTag } from '../updates/tag.js'
import {
  dateTime,
  enumeration,
  flag,
  identifier,
  list,
  nullable,
  reference,
  text,
  uuid,
} from '../validation/vocabulary.js'
import { answerTagged } from './answer.js'
import { readResponses } from './openapi.js'
import { IfNoneMatch } from './parameters.js'
import type { SchemaTypes } from './validation.js'

export const CallerRecord = Type.Object(
  {
    user: Type.Object({ id: uuid(), email: text(), kind: enumeration(['person', 'service_account']) }),
    permission: enumeration(PERMISSIONS, { description: "The user's highest permission within the token's scopes." }),
    managed_groups: list(Type.Object({ id: identifier(), name: text() }), {
      description: 'The groups that the caller manages; empty if `basic` is the only scope of the token.',
    }),
    token: Type.Object({
      id: identifier(),
      scopes: nullable(list(enumeration(SCOPES)), {
        description:
          '`null`: all rights of the user. `read` and `runtime` forbid all writes; `propose` forbids all writes except proposals.',
      }),
      persona_ids: nullable(list(identifier()), { description: 'The agents the token is bound to; null if none.' }),
      tool_ids: nullable(list(identifier()), { description: 'The tools the token is bound to; null if none.' }),
      requires_if_match: flag({ description: 'True if updates with this token must have `If-Match`.' }),
      expires_at: nullable(dateTime()),
    }),
  },
  { $id: 'CallerRecord' },
)

/** `GET /me`: the caller and the rights of the token. */
export function registerReadMe(app: FastifyInstance, database: Database): void {
  app.withTypeProvider<SchemaTypes>().get(
    '/me',
    {
      exposeHeadRoute: true,
      config: { policy: { permission: 'basic' } },
      schema: {
        operationId: 'read_me',
        summary: 'Read Me',
        description:
          'Returns the user of the token, their permission, the groups that they manage, and the rights of the token.',
        headers: Type.Object({ 'if-none-match': IfNoneMatch }),
        response: readResponses(reference(CallerRecord), 'The caller.'),
      },
    },
    async (request, reply) => {
      const { userId, email, kind, permission, managedGroupIds, token } = request.caller
      const groups = database.db.selectFrom('user_group').select(['id', 'name']).orderBy('id')
      const answer: typeof CallerRecord.static = {
        user: { id: userId, email, kind },
        permission,
        managed_groups: await groups.where('id', '=', anyOf(val(managedGroupIds))).execute(),
        token: {
          id: token.id,
          scopes: token.scopes,
          persona_ids: token.bound?.persona.length ? token.bound.persona : null,
          tool_ids: token.bound?.tool.length ? token.bound.tool : null,
          requires_if_match: token.requiresIfMatch,
          expires_at: token.expiresAt,
        },
      }
      const text = JSON.stringify(answer)
      return answerTagged(reply, contentTag(text), text, request.headers['if-none-match'])
    },
  )
}
