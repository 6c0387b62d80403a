import { type Static, type TSchema, Type } from '@sinclair/typebox'
import { CHANGE_KINDS } from '../definition/index.js'
import { inOrder, words } from '../updates/field-table.js'
import { HTTPValidationError } from '../validation/faults.js'
import { flag, freeForm, identifier, list, nullable, text, uuid } from '../validation/vocabulary.js'
import { FIELDS, REQUEST_FIELDS, type RequestField, type ToolColumns } from './fields.js'
import { Header } from './headers.js'

/* The records of a custom tool. `CustomToolUpdate` and `Header` are names of the public product's OpenAPI document. */

type RequestProperties = { [F in RequestField]: (typeof FIELDS)[F]['request'] }

export type CustomToolUpdate = Static<typeof CustomToolUpdate>
export const CustomToolUpdate = Type.Object(
  Object.fromEntries(REQUEST_FIELDS.map(([name, { request }]) => [name, request])) as unknown as RequestProperties,
  {
    $id: 'CustomToolUpdate',
    description: 'Absent and `null` fields stay as they are, except `oauth_config_id: null`.',
  },
)

/** The body of a creation: that of an update, with required fields. */
export const CustomToolCreate = Type.Object(
  {
    ...CustomToolUpdate.properties,
    name: text({ minLength: 1, maxLength: 255 }),
    definition: freeForm({ description: 'An OpenAPI 3.x document.' }),
    passthrough_auth: flag(),
  },
  { $id: 'CustomToolCreate', description: 'Absent and `null` fields get the value of a new tool.' },
)

/** The field order of the interface document, followed by fields that it does not have. */
const SNAPSHOT_ORDER: readonly (keyof ToolColumns | keyof typeof PARTS | 'definition' | 'custom_headers')[] = [
  ...words(
    'id name description definition display_name in_code_tool_id custom_headers passthrough_auth mcp_server_id user_id',
  ),
  ...words('oauth_config_id oauth_config_name enabled chat_selectable agent_creation_selectable default_enabled'),
]

const PARTS = { id: identifier(), oauth_config_name: Type.Optional(nullable(text())) }
type Answers = { [F in keyof typeof FIELDS]: (typeof FIELDS)[F]['answer'] }

/** The schema of each field of the snapshot, in order. */
export const SNAPSHOT_FIELDS = inOrder<keyof typeof PARTS | keyof typeof FIELDS, TSchema>(SNAPSHOT_ORDER, {
  ...PARTS,
  ...(Object.fromEntries(Object.entries(FIELDS).map(([name, { answer }]) => [name, answer])) as Answers), // keyed by field name
})

export type ToolSnapshot = Static<typeof ToolSnapshot>
export const ToolSnapshot = Type.Object(
  Object.fromEntries(SNAPSHOT_FIELDS) as unknown as typeof PARTS & Answers, // built from these two types above
  { $id: 'ToolSnapshot' },
)

export type ToolSummary = Static<typeof ToolSummary>
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
    etag: text({ description: 'The tag of the stored version.' }),
  },
  { $id: 'ToolSummary' },
)

export type ValidateToolRequest = Static<typeof ValidateToolRequest>
export const ValidateToolRequest = Type.Object(
  { definition: freeForm({ description: 'An OpenAPI 3.x document.' }) },
  { $id: 'ValidateToolRequest' },
)

export type MethodSpec = Static<typeof MethodSpec>
export const MethodSpec = Type.Object(
  { name: text(), summary: text(), path: text(), method: text(), spec: freeForm() },
  { $id: 'MethodSpec' },
)

export type ToolFunction = Static<typeof ToolFunction>
/** The function that a model gets for one operation. */
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
    arguments: list(
      Type.Object({
        argument: text(),
        in: Type.String({ enum: ['path', 'query', 'header', 'cookie', 'querystring', 'body'] }),
        name: Type.Optional(text({ description: 'The name on the wire.' })),
        media_type: Type.Optional(text()),
        style: Type.Optional(text({ description: 'Absent for the default of OpenAPI; so is `explode`.' })),
        explode: Type.Optional(Type.Boolean()),
        allow_reserved: Type.Optional(Type.Boolean()),
        encoding: Type.Optional(
          Type.Record(
            Type.String(),
            Type.Object({
              style: Type.Optional(text()),
              explode: Type.Optional(Type.Boolean()),
              allow_reserved: Type.Optional(Type.Boolean()),
              content_type: Type.Optional(text({ description: 'The field is sent as a text of this type.' })),
            }),
            {
              description:
                'How the fields of a form are sent, by their names on the wire, where it is not the default of OpenAPI (style `form`, exploded).',
            },
          ),
        ),
      }),
    ),
    wire_names: Type.Optional(
      Type.Record(Type.String(), Type.String(), {
        description: 'Names on the wire of properties inside arguments, where they differ from those in `parameters`.',
      }),
    ),
  },
  { $id: 'ToolFunction' },
)

const place = (description?: string) =>
  Type.Array(Type.Union([Type.String(), Type.Integer()]), description === undefined ? {} : { description })

export type ToolFunctions = Static<typeof ToolFunctions>
export const ToolFunctions = Type.Object(
  {
    functions: list(ToolFunction),
    faults: Type.Optional(list(Type.Object({ loc: place(), msg: text(), type: text() }))),
  },
  { $id: 'ToolFunctions' },
)

/** A definition with what it lacked. */
const DefinitionCompletion = Type.Object(
  {
    definition: freeForm({ description: 'The definition with the edits applied. The methods are its methods.' }),
    edits: list(
      Type.Object({
        op: Type.String({ enum: ['add', 'replace'] }),
        loc: place('The place in the completed definition; the definition itself for a conversion of Swagger 2.0.'),
        before: Type.Optional(Type.Unknown()),
        after: Type.Optional(Type.Unknown()),
        type: text(),
        msg: text({ description: 'The reason.' }),
      }),
    ),
  },
  { description: 'With `complete=true`: the definition with what it lacked. Nothing is stored.' },
)

/** The 422 of a validation. */
export const ValidateToolRefusal = Type.Object(
  { ...HTTPValidationError.properties, completed: Type.Optional(DefinitionCompletion) },
  {
    $id: 'ValidateToolRefusal',
    description: 'With `complete=true`, `completed` has the definition in which the faults are.',
  },
)

export type ValidateToolResponse = Static<typeof ValidateToolResponse>
export const ValidateToolResponse = Type.Object(
  {
    methods: list(MethodSpec),
    warnings: Type.Optional(
      list(
        Type.Object({
          severity: Type.String({ enum: ['warning'] }),
          loc: place(),
          msg: text(),
          type: text(),
        }),
        { description: 'With `report=full`: the warnings about the accepted definition.' },
      ),
    ),
    functions: Type.Optional(list(ToolFunction, { description: 'With `view=functions`: the functions for a model.' })),
    completed: Type.Optional(DefinitionCompletion),
    impact: Type.Optional(
      Type.Object(
        {
          changes: list(
            Type.Object({
              kind: Type.String({
                enum: CHANGE_KINDS,
                description: '`changed` is any other difference.',
              }),
              operation: text({
                description: 'The operationId; empty for the document as a whole.',
              }),
              argument: Type.Optional(text({ description: 'The argument, or a property of it.' })),
              from: Type.Optional(text({ description: 'The type or address before.' })),
              to: Type.Optional(
                text({ description: 'The type or address after; for a new argument, `required` or `optional`.' }),
              ),
              removed: Type.Optional(
                Type.Array(Type.Unknown(), { description: 'Values that are no longer listed, at most 100.' }),
              ),
              added: Type.Optional(Type.Array(Type.Unknown(), { description: 'Newly listed values, at most 100.' })),
              loc: Type.Optional(place('The operation in the new definition.')),
              msg: text(),
            }),
          ),
          agents: Type.Object({
            ids: list(identifier(), { description: 'Agents that use the tool and that the caller may see.' }),
            others: Type.Integer({
              description:
                'How many more agents use it. Of a tool on more than 10,000 agents, 10,000 are looked at; `Warning` says so.',
            }),
          }),
        },
        { description: 'With `tool_id`: what storing the definition in that tool would change.' },
      ),
    ),
  },
  { $id: 'ValidateToolResponse' },
)

/** Every named record of this folder, for the components of the OpenAPI document. */
export const toolComponents = [
  Header,
  CustomToolUpdate,
  CustomToolCreate,
  ToolSnapshot,
  ToolSummary,
  ValidateToolRequest,
  MethodSpec,
  ValidateToolRefusal,
  ToolFunction,
  ToolFunctions,
  ValidateToolResponse,
]
