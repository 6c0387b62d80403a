import { Kind, type Static, Type } from '@sinclair/typebox'
import { PERMISSIONS } from '../auth/caller.js'
import { INT4_MAX } from '../db/tables.js'
import { COLUMNS, RELATIONS } from '../persona/fields.js'
import { DocumentSource, FederatedConnectorSource } from '../persona/nested-schemas.js'
import { PersonaUpsertRequest } from '../persona/schema.js'
import { HEADERS_MAX, Header } from '../tool/headers.js'
import type { AnyColumnField } from '../updates/field-table.js'
import { enumeration, flag, freeForm, list, nullable, text, uuid } from '../validation/vocabulary.js'

/*
 * The organisation document, which `agentctl apply` reads and `agentctl export` writes. If an entry matches an existing row, absent fields stay
 * unchanged.
 */

/** A reference to a record: its name (a user's email, a file's id), its id, or an object with its id. */
const reference = () => Type.Unknown()
const optional = Type.Optional
/** New ids follow the largest id, so the maximum leaves a million ids for later rows. */
const id = () => optional(Type.Integer({ minimum: 1, maximum: INT4_MAX - 1_000_000 }))
const name = () => text({ minLength: 1, maxLength: 255 })
const named = () => ({ id: id(), name: optional(name()) })
const references = () => optional(list(reference()))
const permissions = () => optional(list(enumeration(PERMISSIONS)))

const User = Type.Object({
  id: optional(uuid()),
  email: optional(text()),
  kind: optional(enumeration(['person', 'service_account'])),
  active: optional(flag()),
  permissions: permissions(),
})

const Group = Type.Object({
  ...named(),
  permissions: permissions(),
  members: references(),
  managers: references(),
})

const Named = Type.Object(named())

const OwnedConnection = Type.Object({ ...named(), owner: optional(nullable(reference())) })

const CcPair = Type.Object({
  ...named(),
  source: optional(DocumentSource),
  access_type: optional(enumeration(['public', 'private', 'sync'])),
})

const FederatedConnector = Type.Object({ ...named(), source: optional(FederatedConnectorSource) })

const DocumentSet = Type.Object({
  ...named(),
  description: optional(nullable(text({ maxLength: 10_000 }))),
  is_public: optional(flag()),
  is_up_to_date: optional(flag()),
  users: references(),
  groups: references(),
  cc_pairs: references(),
  federated_connectors: optional(list(Type.Object({ connector: reference(), entities: freeForm() }))),
})

const UserFile = Type.Object({
  id: text({ minLength: 1, maxLength: 255 }),
  name: name(),
  owner: reference(),
})

/** A header of a tool. If `value` is absent, the stored value is kept. */
const HeaderEntry = Type.Object({ key: Header.properties.key, value: optional(Header.properties.value) })

const Tool = Type.Object({
  ...named(),
  display_name: optional(nullable(name())),
  description: optional(text({ maxLength: 10_000 })),
  in_code_tool_id: optional(nullable(name())),
  owner: optional(nullable(reference())),
  definition: optional(freeForm()),
  definition_file: optional(text({ minLength: 1, maxLength: 4096 })),
  custom_headers: optional(list(HeaderEntry, { maxItems: HEADERS_MAX })),
  passthrough_auth: optional(flag()),
  mcp_server: optional(nullable(reference())),
  oauth_config: optional(nullable(reference())),
  enabled: optional(flag()),
  chat_selectable: optional(flag()),
  agent_creation_selectable: optional(flag()),
  default_enabled: optional(flag()),
})

const level = () => optional(enumeration(['viewer', 'editor']))

/** The columns of an agent as optional fields of a document. */
const agentColumns = Object.fromEntries(
  COLUMNS.flatMap(([name, { request, document = request, nullable: mayBeNull }]: readonly [string, AnyColumnField]) => {
    if (document === undefined) return []
    return [[name, optional(mayBeNull && document[Kind] !== 'Nullable' ? nullable(document) : document)] as const]
  }),
)

const agentLinks = Object.fromEntries(
  RELATIONS.map(([, { link }]) => {
    const { section: field, key = 'id' } = link
    return [field, optional(list(link.isShare ? Type.Object({ [key]: reference(), level: level() }) : reference()))]
  }),
)

const Agent = Type.Object({
  id: id(),
  ...agentColumns,
  name: optional(PersonaUpsertRequest.properties.name),
  owner: optional(nullable(reference())),
  ...agentLinks,
})

export type OrganisationDocument = Static<typeof OrganisationDocument>
export const OrganisationDocument = Type.Object({
  version: Type.Integer({ minimum: 1, maximum: 1 }),
  users: optional(list(User)),
  groups: optional(list(Group)),
  labels: optional(list(Named)),
  oauth_configs: optional(list(OwnedConnection)),
  mcp_servers: optional(list(OwnedConnection)),
  cc_pairs: optional(list(CcPair)),
  federated_connectors: optional(list(FederatedConnector)),
  document_sets: optional(list(DocumentSet)),
  user_files: optional(list(UserFile)),
  tools: optional(list(Tool)),
  agents: optional(list(Agent)),
})

export type ToolEntry = Static<typeof Tool>

export type SectionName = Exclude<keyof OrganisationDocument, 'version'>
