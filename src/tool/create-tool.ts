import { Type } from '@sinclair/typebox'
import type { FastifyInstance } from 'fastify'
import { answerUpdate } from '../http/answer.js'
import { DryRun } from '../http/parameters.js'
import { CreationHeaders, creationResponses, creatorOf } from '../http/resource-routes.js'
import type { SchemaTypes } from '../http/validation.js'
import { unknownFieldWarnings } from '../http/warnings.js'
import { updateOnce } from '../updates/update-once.js'
import { noteFacts } from './definition-cache.js'
import { toolCreation } from './life.js'
import { CustomToolCreate, ToolSnapshot } from './schema.js'
import { boundsOf, type ToolOptions, toolRequestKey } from './update-tool.js'

const PURPOSE =
  'Creates a custom tool that the caller owns. The definition is checked as by validation. Header values are answered as masks. With an ' +
  '`Idempotency-Key` a repetition creates no second one.'

/** `POST /admin/tool/custom`. */
export function registerCreateTool(app: FastifyInstance, options: ToolOptions): void {
  app.withTypeProvider<SchemaTypes>().post(
    '/admin/tool/custom',
    {
      bodyLimit: options.bodyLimitBytes,
      config: {
        policy: { permission: 'manage:actions', resource: 'tool', writes: true, creates: true, takesDefinition: true },
      },
      schema: {
        operationId: 'create_custom_tool',
        summary: 'Create Custom Tool',
        description: `${PURPOSE} ${boundsOf(options)}`,
        querystring: Type.Object({ dry_run: DryRun }),
        headers: CreationHeaders,
        body: CustomToolCreate,
        response: creationResponses(ToolSnapshot, 'tool'),
      },
    },
    async (request, reply) => {
      const { caller, headers, query } = request
      const creator = creatorOf(request, query, headers, options)
      const content = await options.workers.run('create_custom_tool', request, { strict: creator.strict })
      const { fields, origins, names, definitionFaults, unknown, notes } = content
      if (fields.definition) noteFacts(fields.definition.hash, { origins, names })
      const { ring } = options
      const key = query.dry_run ? undefined : headers['idempotency-key']
      const asked = {
        kind: 'tool' as const,
        id: 0, // the id is not known yet
        ...{ fields, origins, definitionFaults, ring },
        key: toolRequestKey(caller, key, ['tool', 'create', 0], content, ring),
        ...creator,
      }
      const created = await updateOnce(options.database, toolCreation, asked)
      const warnings = [...(created.decision?.notes ?? []), ...unknownFieldWarnings(unknown), ...notes]
      return answerUpdate(reply, 'tool', asked, created, warnings, { below: '/tool' })
    },
  )
}
