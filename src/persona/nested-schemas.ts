import { type Static, Type } from '@sinclair/typebox'
import { enumeration, flag, freeForm, identifier, list, nullable, text, uuid } from '../validation/vocabulary.js'

export const RecencyBiasSetting = enumeration(['favor_recent', 'base_decay', 'no_decay', 'auto'], {
  $id: 'RecencyBiasSetting',
})
export const AccessType = enumeration(['public', 'private', 'sync'], { $id: 'AccessType' })
export const FederatedConnectorSource = enumeration(['federated_slack'], { $id: 'FederatedConnectorSource' })

const DOCUMENT_SOURCES: readonly string[] = (
  'ingestion_api slack web google_drive gmail requesttracker github gitbook gitlab guru bookstack ' +
  'outline confluence jira slab productboard file coda notion zulip linear hubspot document360 gong ' +
  'google_sites zendesk loopio dropbox sharepoint teams salesforce discourse axero clickup mediawiki ' +
  'wikipedia asana s3 r2 google_cloud_storage oci_storage xenforo not_applicable discord freshdesk ' +
  'fireflies egnyte airtable highspot drupal_wiki imap bitbucket testrail mock_connector user_file'
).split(' ')
export const DocumentSource = enumeration(DOCUMENT_SOURCES, { $id: 'DocumentSource' })

export type StarterMessage = Static<typeof StarterMessage>
export const StarterMessage = Type.Object(
  { name: text({ maxLength: 255 }), message: text({ maxLength: 10_000 }) },
  { $id: 'StarterMessage' },
)

export const PersonaLabelSnapshot = Type.Object({ id: identifier(), name: text() }, { $id: 'PersonaLabelSnapshot' })

export const MinimalUserSnapshot = Type.Object({ id: uuid(), email: text() }, { $id: 'MinimalUserSnapshot' })

export const CCPairSummary = Type.Object(
  { id: identifier(), name: nullable(text()), source: DocumentSource, access_type: AccessType },
  { $id: 'CCPairSummary' },
)

export const FederatedConnectorSummary = Type.Object(
  { id: identifier(), name: text(), source: FederatedConnectorSource, entities: freeForm() },
  { $id: 'FederatedConnectorSummary' },
)

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
