import { type Static, type TObject, Type } from '@sinclair/typebox'
import {
  dateTime,
  flag,
  freeForm,
  identifier,
  int32,
  list,
  nullable,
  number,
  text,
  uuid,
} from '../schema/vocabulary.js'
import { ToolSnapshot } from '../tool/schema.js'
import { AccessType, DocumentSource, FederatedConnectorSource, RecencyBiasSetting } from './enumerations.js'

/*
 * The records of an agent. Names, order, nullability and what is required are the interface document's; the limits are
 * those of DECISIONS sections 3 and 9. The order of the fields is the order in which faults are reported.
 */

const starterMessagesMaxItems = 50
const shortTextMaxLength = 255
const descriptionMaxLength = 10_000
const promptMaxLength = 256_000
const chunksMaximum = 1_000_000

const shortText = () => text({ maxLength: shortTextMaxLength })

export type StarterMessage = Static<typeof StarterMessage>
export const StarterMessage = Type.Object(
  { name: shortText(), message: text({ maxLength: descriptionMaxLength }) },
  { $id: 'StarterMessage' },
)

/** The body of an agent update whose lists of ids hold at most `listItemsMax` (`LIST_ITEMS_MAX`). */
export function personaUpsertRequest(listItemsMax: number) {
  const ids = () => list(identifier(), { maxItems: listItemsMax })
  return Type.Object(
    {
      name: text({
        minLength: 1,
        maxLength: shortTextMaxLength,
        trimmed: true,
        description: 'Judged and stored without the blanks around it.',
      }),
      description: text({ maxLength: descriptionMaxLength }),
      document_set_ids: ids(),
      num_chunks: number({ minimum: 0, maximum: chunksMaximum }),
      is_public: flag(),
      recency_bias: RecencyBiasSetting,
      llm_filter_extraction: flag(),
      llm_relevance_filter: flag(),
      tool_ids: ids(),
      system_prompt: text({ maxLength: promptMaxLength }),
      task_prompt: text({ maxLength: promptMaxLength }),
      datetime_aware: flag(),
      llm_model_provider_override: Type.Optional(nullable(shortText())),
      llm_model_version_override: Type.Optional(nullable(shortText())),
      starter_messages: Type.Optional(nullable(list(StarterMessage, { maxItems: starterMessagesMaxItems }))),
      users: Type.Optional(list(uuid(), { maxItems: listItemsMax })),
      groups: Type.Optional(ids()),
      remove_image: Type.Optional(nullable(flag())),
      uploaded_image_id: Type.Optional(nullable(shortText(), { description: '`null` leaves the image as it is.' })),
      icon_name: Type.Optional(nullable(shortText())),
      search_start_date: Type.Optional(
        nullable(dateTime(), { description: 'RFC 3339; UTC where it names no offset; a bare date is its midnight.' }),
      ),
      label_ids: Type.Optional(
        nullable(ids(), { description: '`null` leaves the labels as they are, `[]` removes all.' }),
      ),
      is_default_persona: Type.Optional(
        flag({ default: false, description: 'The default is that of a new agent; what is absent stays as it is.' }),
      ),
      display_priority: Type.Optional(nullable(int32(), { description: '`null` leaves the priority as it is.' })),
      user_file_ids: Type.Optional(
        nullable(list(shortText(), { maxItems: listItemsMax }), {
          description: '`null` leaves the files as they are, `[]` removes all.',
        }),
      ),
      replace_base_system_prompt: Type.Optional(
        flag({ default: false, description: 'The default is that of a new agent; what is absent stays as it is.' }),
      ),
    },
    { $id: 'PersonaUpsertRequest', description: 'Optional fields that are absent stay as they are.' },
  )
}

export type PersonaUpsertRequest = Static<typeof PersonaUpsertRequest>
/** The same for who asks only which fields there are, which depends on no setting. */
export const PersonaUpsertRequest = personaUpsertRequest(1_000)

export type PersonaLabelSnapshot = Static<typeof PersonaLabelSnapshot>
export const PersonaLabelSnapshot = Type.Object({ id: identifier(), name: text() }, { $id: 'PersonaLabelSnapshot' })

export type MinimalUserSnapshot = Static<typeof MinimalUserSnapshot>
export const MinimalUserSnapshot = Type.Object({ id: uuid(), email: text() }, { $id: 'MinimalUserSnapshot' })

export type CCPairSummary = Static<typeof CCPairSummary>
export const CCPairSummary = Type.Object(
  { id: identifier(), name: nullable(text()), source: DocumentSource, access_type: AccessType },
  { $id: 'CCPairSummary' },
)

export type FederatedConnectorSummary = Static<typeof FederatedConnectorSummary>
export const FederatedConnectorSummary = Type.Object(
  { id: identifier(), name: text(), source: FederatedConnectorSource, entities: freeForm() },
  { $id: 'FederatedConnectorSummary' },
)

export type DocumentSetSummary = Static<typeof DocumentSetSummary>
export const DocumentSetSummary = Type.Object(
  {
    id: identifier(),
    name: text(),
    description: nullable(text()),
    cc_pair_summaries: list(CCPairSummary),
    is_up_to_date: flag(),
    is_public: flag(),
    users: list(uuid()),
    groups: list(identifier()),
    federated_connector_summaries: Type.Optional(list(FederatedConnectorSummary)),
  },
  { $id: 'DocumentSetSummary' },
)

export type PersonaSnapshot = Static<typeof PersonaSnapshot>
export const PersonaSnapshot = Type.Object(
  {
    id: identifier(),
    name: text(),
    description: text(),
    is_public: flag(),
    is_visible: flag(),
    uploaded_image_id: nullable(text()),
    icon_name: nullable(text()),
    user_file_ids: list(text()),
    display_priority: nullable(identifier()),
    is_default_persona: flag(),
    builtin_persona: flag(),
    starter_messages: nullable(list(StarterMessage)),
    llm_relevance_filter: flag(),
    llm_filter_extraction: flag(),
    tools: list(ToolSnapshot),
    labels: list(PersonaLabelSnapshot),
    owner: nullable(MinimalUserSnapshot),
    users: list(MinimalUserSnapshot),
    groups: list(identifier()),
    document_sets: list(DocumentSetSummary),
    llm_model_provider_override: nullable(text()),
    llm_model_version_override: nullable(text()),
    num_chunks: nullable(number()),
    system_prompt: Type.Optional(nullable(text())),
    replace_base_system_prompt: Type.Optional(flag({ default: false })),
    task_prompt: Type.Optional(nullable(text())),
    datetime_aware: Type.Optional(flag({ default: true })),
  },
  { $id: 'PersonaSnapshot' },
)

/** Every named record of this folder, for the components of the OpenAPI document. */
export const personaComponents = (upsertRequest: TObject = PersonaUpsertRequest) => [
  RecencyBiasSetting,
  AccessType,
  FederatedConnectorSource,
  DocumentSource,
  StarterMessage,
  upsertRequest,
  PersonaLabelSnapshot,
  MinimalUserSnapshot,
  CCPairSummary,
  FederatedConnectorSummary,
  DocumentSetSummary,
  PersonaSnapshot,
]
