import { type Static, type TSchema, Type } from '@sinclair/typebox'
import { CHANGE_KINDS } from '../definition/index.js'
import { HTTPValidationError } from '../validation/faults.js'
import { dateTime, flag, freeForm, identifier, list, nullable, text, uuid } from '../validation/vocabulary.js'
import type { FIELDS } from './fields.js'
import { HEADERS_MAX, Header } from './headers.js'

/* The schemas of custom tools. `CustomToolUpdate` and `Header` have the same names in Onyx's OpenAPI document. */

const optional = Type.Optional
const NAME = text({ minLength: 1, maxLength: 255 })
const DEFINITION = freeForm({ description: 'An OpenAPI 3.x document.' })

export type CustomToolUpdate = Static<typeof CustomToolUpdate>
export const CustomToolUpdate = Type.Object(
  {
    name: optional(nullable(NAME)),
    description: optional(nullable(text({ maxLength: 10_000 }))),
    definition: optional(nullable(DEFINITION)),
    custom_headers: optional(
      nullable(list(Header, { maxItems: HEADERS_MAX }), {
        description: 'An update replaces the whole list; `[]` removes all headers.',
      }),
    ),
    passthrough_auth: optional(nullable(flag())),
    oauth_config_id: optional(nullable(identifier(), { description: '`null`: no OAuth configuration.' })),
  },
  {
    $id: 'CustomToolUpdate',
    description:
      'Absent and `null` fields keep their stored values, except that `oauth_config_id: null` removes the OAuth configuration.',
  },
)

/** The body of a creation. It has the fields of an update, but three of them are required. */
export const CustomToolCreate = Type.Object(
  { ...CustomToolUpdate.properties, name: NAME, definition: DEFINITION, passthrough_auth: flag() },
  { $id: 'CustomToolCreate', description: 'Optional fields that are absent or `null` get their default values.' },
)

/** The fields in Onyx's order. Fields that Onyx does not have come last. */
const SNAPSHOT = {
  id: identifier(),
  name: text(),
  description: text(),
  definition: nullable(freeForm()),
  display_name: text(),
  in_code_tool_id: nullable(text()),
  custom_headers: nullable(list(Header), {
    description: 'Header names with masked values, for callers who may manage the tool; `null` for all others.',
  }),
  passthrough_auth: flag(),
  mcp_server_id: optional(nullable(identifier())),
  user_id: optional(nullable(text())),
  oauth_config_id: optional(nullable(identifier())),
  oauth_config_name: optional(nullable(text())),
  enabled: optional(flag({ default: true })),
  chat_selectable: optional(flag({ default: true })),
  agent_creation_selectable: optional(flag({ default: true })),
  default_enabled: optional(flag({ default: false })),
} satisfies Record<keyof typeof FIELDS, TSchema> & Record<string, TSchema>
export const ToolSnapshot = Type.Object(SNAPSHOT, { $id: 'ToolSnapshot' })

export const ToolSummary = Type.Object(
  {
    id: identifier(),
    name: text(),
    display_name: text(),
    description: text(),
    owner: nullable(Type.Object({ id: uuid(), email: text() })),
    in_code_tool_id: nullable(text()),
    mcp_server_id: nullable(identifier()),
    enabled: flag(),
    passthrough_auth: flag(),
    etag: text({ description: 'The entity tag of the stored version, for `If-Match`.' }),
    updated_at: nullable(dateTime()),
  },
  { $id: 'ToolSummary' },
)

export type ValidateToolRequest = Static<typeof ValidateToolRequest>
const CHECKED = freeForm({ description: 'An OpenAPI 3.x document or, with `complete=true`, a Swagger 2.0 document.' })
export const ValidateToolRequest = Type.Object({ definition: CHECKED }, { $id: 'ValidateToolRequest' })

export const MethodSpec = Type.Object(
  { name: text(), summary: text(), path: text(), method: text(), spec: freeForm() },
  { $id: 'MethodSpec' },
)

export const ToolFunction = Type.Object(
  {
    name: text(),
    operationId: text(),
    description: text(),
    parameters: freeForm({
      description: 'A JSON Schema of draft 2020-12: an object with one property for each argument.',
    }),
    method: text(),
    path: text(),
    address: optional(
      text({ description: 'For a stored tool: the address to call, with the placeholders of the path.' }),
    ),
    arguments: list(
      Type.Object({
        argument: text(),
        in: Type.String({ enum: ['path', 'query', 'header', 'cookie', 'querystring', 'body'] }),
        name: optional(text({ description: 'The original name of the parameter.' })),
        media_type: optional(text()),
        style: optional(text({ description: '`style` and `explode` are absent if they are the defaults of OpenAPI.' })),
        explode: optional(Type.Boolean()),
        allow_reserved: optional(Type.Boolean()),
        encoding: optional(
          Type.Record(
            Type.String(),
            Type.Object({
              style: optional(text()),
              explode: optional(Type.Boolean()),
              allow_reserved: optional(Type.Boolean()),
              content_type: optional(text({ description: 'The JSON media type, if the field is sent as JSON text.' })),
            }),
            {
              description:
                'The encodings of form fields, without those that are the default of OpenAPI. Each key is the original name of a field.',
            },
          ),
        ),
      }),
    ),
    wire_names: optional(
      Type.Record(Type.String(), Type.String(), {
        description: 'Original names of nested properties that were renamed. Each key is the new name in `parameters`.',
      }),
    ),
  },
  { $id: 'ToolFunction' },
)

const place = (description?: string) =>
  Type.Array(Type.Union([Type.String(), Type.Integer()]), description === undefined ? {} : { description })

/** The answer to a read of a tool: the record or, with `view=functions`, only the functions. Not a union, because Go generators omit unions. */
export const ToolRecord = Type.Object(
  {
    ...Type.Partial(ToolSnapshot).properties,
    functions: optional(
      list(ToolFunction, { description: 'With `view=functions`: the functions, instead of the fields of the tool.' }),
    ),
    faults: optional(
      list(Type.Object({ loc: place(), msg: text(), type: text() }), {
        description: 'Only with `view=functions`: why the stored definition is no longer accepted.',
      }),
    ),
  },
  { $id: 'ToolRecord' },
)

const DefinitionCompletion = Type.Object(
  {
    definition: freeForm({ description: 'The definition after the edits. `methods` and faults refer to it.' }),
    edits: list(
      Type.Object({
        op: Type.String({ enum: ['add', 'replace'] }),
        loc: place(
          'The path of the edited value in the definition. The conversion of Swagger 2.0 is one edit of the whole definition.',
        ),
        before: optional(Type.Unknown()),
        after: optional(Type.Unknown()),
        type: text(),
        msg: text({ description: 'The reason.' }),
      }),
    ),
  },
  { description: 'With `complete=true`: the completed definition. Nothing is stored.' },
)

const DefinitionWarnings = optional(
  list(Type.Object({ severity: Type.String({ enum: ['warning'] }), loc: place(), msg: text(), type: text() }), {
    description: 'With `report=full`: the warnings about the definition.',
  }),
)

export const ValidateToolRefusal = Type.Object(
  { ...HTTPValidationError.properties, warnings: DefinitionWarnings, completed: optional(DefinitionCompletion) },
  {
    $id: 'ValidateToolRefusal',
    description: 'With `complete=true`, the faults refer to the definition in `completed`.',
  },
)

export const ValidateToolResponse = Type.Object(
  {
    methods: list(MethodSpec),
    warnings: DefinitionWarnings,
    functions: optional(list(ToolFunction, { description: 'With `view=functions`: the functions that a model gets.' })),
    completed: optional(DefinitionCompletion),
    impact: optional(
      Type.Object(
        {
          changes: list(
            Type.Object({
              kind: Type.String({
                enum: CHANGE_KINDS,
                description: '`changed` is a difference that fits no other kind.',
              }),
              operation: text({
                description: 'The operationId. Empty if the change is not in an operation.',
              }),
              argument: optional(text({ description: 'The argument or one of its properties.' })),
              from: optional(text({ description: 'The previous type, address or function.' })),
              to: optional(text({ description: 'The new value; for a new argument, `required` or `optional`.' })),
              removed: optional(
                Type.Array(Type.Unknown(), { description: 'Values that the schema no longer lists, at most 100.' }),
              ),
              added: optional(
                Type.Array(Type.Unknown(), {
                  description: 'Values that the schema did not list before, or new origins of calls. At most 100.',
                }),
              ),
              loc: optional(place('The path of the change in the new definition. Absent for a removed operation.')),
              msg: text(),
            }),
          ),
          agents: Type.Object({
            ids: list(identifier(), {
              description: 'Agents that use the tool and that the caller can see, at most 1,000.',
            }),
            others: Type.Integer({
              description: 'The number of other agents that use the tool. At most 10,000 agents are counted.',
            }),
          }),
        },
        { description: 'With `tool_id`: the effect of storing the definition in that tool.' },
      ),
    ),
  },
  { $id: 'ValidateToolResponse' },
)
