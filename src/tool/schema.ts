import { type Static, Type } from '@sinclair/typebox'
import { flag, freeForm, identifier, list, nullable, text } from '../schema/vocabulary.js'
import { DEFAULT_HEADER_LIMITS } from './headers.js'

/*
 * The records of a custom tool. The interface document names neither the update request nor its headers; the public
 * product's OpenAPI document calls them `CustomToolUpdate` and `Header`, and generated clients know those names.
 */

export type Header = Static<typeof Header>
/** The rules for names and values are in headers.ts: they have types of their own. */
export const Header = Type.Object(
  {
    key: text({ description: `A token of RFC 9110 of at most ${DEFAULT_HEADER_LIMITS.nameCharacters} characters.` }),
    value: text({ description: `At most ${DEFAULT_HEADER_LIMITS.valueBytes} bytes, no CR, LF or NUL; or a mask.` }),
  },
  { $id: 'Header' },
)

export type CustomToolUpdate = Static<typeof CustomToolUpdate>
export const CustomToolUpdate = Type.Object(
  {
    name: Type.Optional(nullable(text({ minLength: 1, maxLength: 255 }))),
    description: Type.Optional(nullable(text({ maxLength: 10_000 }))),
    definition: Type.Optional(nullable(freeForm(), { description: 'An OpenAPI 3.x document.' })),
    custom_headers: Type.Optional(
      nullable(list(Header, { maxItems: 50 }), { description: 'Replaces the whole list; `[]` removes all.' }),
    ),
    passthrough_auth: Type.Optional(nullable(flag())),
    oauth_config_id: Type.Optional(nullable(identifier(), { description: '`null` clears the link.' })),
  },
  {
    $id: 'CustomToolUpdate',
    description: 'What is absent or `null` stays as it is, except `oauth_config_id: null`.',
  },
)

export type ToolSnapshot = Static<typeof ToolSnapshot>
export const ToolSnapshot = Type.Object(
  {
    id: identifier(),
    name: text(),
    description: text(),
    definition: nullable(freeForm()),
    display_name: text(),
    in_code_tool_id: nullable(text()),
    custom_headers: nullable(list(Type.Unknown()), {
      description: 'Header names with masked values, for callers who may manage the tool; `null` for all others.',
    }),
    passthrough_auth: flag(),
    mcp_server_id: Type.Optional(nullable(identifier())),
    user_id: Type.Optional(nullable(text())),
    oauth_config_id: Type.Optional(nullable(identifier())),
    oauth_config_name: Type.Optional(nullable(text())),
    enabled: Type.Optional(flag({ default: true })),
    chat_selectable: Type.Optional(flag({ default: true })),
    agent_creation_selectable: Type.Optional(flag({ default: true })),
    default_enabled: Type.Optional(flag({ default: false })),
  },
  { $id: 'ToolSnapshot' },
)

export type ValidateToolRequest = Static<typeof ValidateToolRequest>
export const ValidateToolRequest = Type.Object(
  { definition: freeForm({ description: 'An OpenAPI 3.x document.' }) },
  { $id: 'ValidateToolRequest' },
)

export type MethodSpec = Static<typeof MethodSpec>
/** One operation of a definition, as a tool would call it. */
export const MethodSpec = Type.Object(
  { name: text(), summary: text(), path: text(), method: text(), spec: freeForm() },
  { $id: 'MethodSpec' },
)

export type ValidateToolResponse = Static<typeof ValidateToolResponse>
export const ValidateToolResponse = Type.Object(
  {
    methods: list(MethodSpec),
    warnings: Type.Optional(
      list(
        Type.Object({
          severity: Type.String({ enum: ['warning'] }),
          loc: Type.Array(Type.Union([Type.String(), Type.Integer()])),
          msg: text(),
          type: text(),
        }),
        { description: 'With `report=full`: what is accepted but worth knowing.' },
      ),
    ),
    impact: Type.Optional(
      Type.Object(
        {
          changes: list(
            Type.Object({
              class: Type.String({ enum: ['breaking', 'safe', 'unknown'] }),
              kind: text(),
              operation: text({ description: 'The operationId; the empty text for the document as a whole.' }),
              loc: Type.Optional(Type.Array(Type.Union([Type.String(), Type.Integer()]))),
              msg: text(),
            }),
          ),
          agents: Type.Object({
            ids: list(identifier(), { description: 'Agents that use the tool and that the caller may see.' }),
            others: Type.Integer({ description: 'How many more agents use it.' }),
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
  ToolSnapshot,
  ValidateToolRequest,
  MethodSpec,
  ValidateToolResponse,
]
