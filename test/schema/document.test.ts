import swagger from '@fastify/swagger'
import { Validator } from '@seriousme/openapi-schema-validator'
import { Kind, Type } from '@sinclair/typebox'
import fastify from 'fastify'
import t from 'tap'
import { PersonaSnapshot, PersonaUpsertRequest, personaComponents } from '../../src/persona/schema.js'
import { HTTPValidationError, ValidationError } from '../../src/schema/faults.js'
import { component, reference } from '../../src/schema/vocabulary.js'
import { CustomToolUpdate, ToolSnapshot, toolComponents } from '../../src/tool/schema.js'

const components = [...toolComponents, ...personaComponents(), ValidationError, HTTPValidationError]

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

t.test('26, 27, 6 and 16 fields as the interface document lists them', async t => {
  const required = (schema: { required?: string[] | undefined }) => schema.required ?? []
  t.equal(Object.keys(PersonaUpsertRequest.properties).length, 26)
  t.strictSame(required(PersonaUpsertRequest), Object.keys(PersonaUpsertRequest.properties).slice(0, 12))
  t.equal(Object.keys(PersonaSnapshot.properties).length, 27)
  t.strictSame(required(PersonaSnapshot), Object.keys(PersonaSnapshot.properties).slice(0, 23))
  t.strictSame(Object.keys(CustomToolUpdate.properties), [
    'name',
    'description',
    'definition',
    'custom_headers',
    'passthrough_auth',
    'oauth_config_id',
  ])
  t.strictSame(required(CustomToolUpdate), [])
  t.equal(Object.keys(ToolSnapshot.properties).length, 16)
  t.strictSame(required(ToolSnapshot), Object.keys(ToolSnapshot.properties).slice(0, 8))
  t.ok(components.every(schema => typeof schema[Kind] === 'string'))
})
