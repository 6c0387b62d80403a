import swagger from '@fastify/swagger'
import { Validator } from '@seriousme/openapi-schema-validator'
import { Kind, Type } from '@sinclair/typebox'
import fastify from 'fastify'
import t from 'tap'
import { PersonaSnapshot, PersonaUpsertRequest, personaComponents } from '../../src/persona/schema.js'
import { HTTPValidationError, ValidationError } from '../../src/schema/faults.js'
import { component, reference } from '../../src/schema/vocabulary.js'
import { CustomToolUpdate, ToolSnapshot, toolComponents } from '../../src/tool/schema.js'

const components = [...toolComponents, ...personaComponents, ValidationError, HTTPValidationError]

async function document() {
  const app = fastify()
  await app.register(swagger, {
    openapi: { openapi: '3.1.0', info: { title: 'test', version: '1' } },
    refResolver: { buildLocalReference: json => String(json.$id) },
  })
  for (const schema of components) app.addSchema(component(schema))
  app.setValidatorCompiler(() => () => true)
  app.setSerializerCompiler(() => JSON.stringify)
  const params = Type.Object({ id: Type.Integer() })
  app.patch(
    '/persona/:id',
    {
      schema: {
        params,
        body: reference(PersonaUpsertRequest),
        response: { 200: reference(PersonaSnapshot), 422: reference(HTTPValidationError) },
      },
    },
    async () => ({}),
  )
  app.put(
    '/tool/:id',
    { schema: { params, body: reference(CustomToolUpdate), response: { 200: reference(ToolSnapshot) } } },
    async () => ({}),
  )
  await app.ready()
  const text = JSON.stringify(app.swagger())
  await app.close()
  return JSON.parse(text)
}

t.test('the OpenAPI document names each record once and refers to it elsewhere', async t => {
  const { components: listed, paths, ...rest } = await document()
  t.equal(rest.openapi, '3.1.0')
  t.strictSame(Object.keys(listed.schemas).sort(), components.map(({ $id }) => $id).sort())
  t.strictSame(paths['/persona/{id}'].patch.requestBody.content['application/json'].schema, {
    $ref: '#/components/schemas/PersonaUpsertRequest',
  })
  const { starter_messages, recency_bias, search_start_date, name } = listed.schemas.PersonaUpsertRequest.properties
  t.strictSame(starter_messages, {
    type: ['array', 'null'],
    maxItems: 50,
    items: { $ref: '#/components/schemas/StarterMessage' },
  })
  t.strictSame(recency_bias, { $ref: '#/components/schemas/RecencyBiasSetting' })
  t.match(search_start_date, { type: ['string', 'null'], format: 'date-time' })
  t.match(name, { type: 'string', minLength: 1, maxLength: 255 })
  t.strictSame(listed.schemas.PersonaSnapshot.properties.owner, {
    anyOf: [{ $ref: '#/components/schemas/MinimalUserSnapshot' }, { type: 'null' }],
  })
  t.equal(listed.schemas.DocumentSource.enum.length, 55)
  t.strictSame(listed.schemas.RecencyBiasSetting, {
    type: 'string',
    enum: ['favor_recent', 'base_decay', 'no_decay', 'auto'],
  })
  t.strictSame(listed.schemas.ToolSnapshot.properties.definition, {
    type: ['object', 'null'],
    additionalProperties: true,
  })
})

t.test('the OpenAPI document is valid', async t => {
  const result = await new Validator().validate(await document())
  t.strictSame(result, { valid: true })
})

/** The fields as the interface document lists them: what clients of the public product send and read. */
const INTERFACE_DOCUMENT: Record<string, { required: string[]; optional: string[] }> = {
  PersonaUpsertRequest: {
    required: [
      'name',
      'description',
      'document_set_ids',
      'num_chunks',
      'is_public',
      'recency_bias',
      'llm_filter_extraction',
      'llm_relevance_filter',
      'tool_ids',
      'system_prompt',
      'task_prompt',
      'datetime_aware',
    ],
    optional: [
      'llm_model_provider_override',
      'llm_model_version_override',
      'starter_messages',
      'users',
      'groups',
      'remove_image',
      'uploaded_image_id',
      'icon_name',
      'search_start_date',
      'label_ids',
      'is_default_persona',
      'display_priority',
      'user_file_ids',
      'replace_base_system_prompt',
    ],
  },
  PersonaSnapshot: {
    required: [
      'id',
      'name',
      'description',
      'is_public',
      'is_visible',
      'uploaded_image_id',
      'icon_name',
      'user_file_ids',
      'display_priority',
      'is_default_persona',
      'builtin_persona',
      'starter_messages',
      'llm_relevance_filter',
      'llm_filter_extraction',
      'tools',
      'labels',
      'owner',
      'users',
      'groups',
      'document_sets',
      'llm_model_provider_override',
      'llm_model_version_override',
      'num_chunks',
    ],
    optional: ['system_prompt', 'replace_base_system_prompt', 'task_prompt', 'datetime_aware'],
  },
  CustomToolUpdate: {
    required: [],
    optional: ['name', 'description', 'definition', 'custom_headers', 'passthrough_auth', 'oauth_config_id'],
  },
  ToolSnapshot: {
    required: [
      'id',
      'name',
      'description',
      'definition',
      'display_name',
      'in_code_tool_id',
      'custom_headers',
      'passthrough_auth',
    ],
    optional: [
      'mcp_server_id',
      'user_id',
      'oauth_config_id',
      'oauth_config_name',
      'enabled',
      'chat_selectable',
      'agent_creation_selectable',
      'default_enabled',
    ],
  },
}

t.test(
  'every field of the interface document, in its order; a field beside them is one that clients need not know',
  async t => {
    for (const schema of [PersonaUpsertRequest, PersonaSnapshot, CustomToolUpdate, ToolSnapshot]) {
      const { required, optional } = INTERFACE_DOCUMENT[String(schema.$id)] ?? { required: [], optional: [] }
      const published = [...required, ...optional]
      t.ok(published.length > 0)
      const fields = Object.keys(schema.properties)
      t.strictSame(
        fields.filter(name => published.includes(name)),
        published,
        String(schema.$id),
      )
      const demanded: readonly string[] = schema.required ?? []
      const isRequest = schema === PersonaUpsertRequest || schema === CustomToolUpdate
      t.strictSame(
        isRequest ? demanded : demanded.filter(name => published.includes(name)),
        required,
        `${schema.$id} demands of a request only what the interface document does, and answers all of it`,
      )
    }
    t.ok(components.every(schema => typeof schema[Kind] === 'string'))
  },
)
