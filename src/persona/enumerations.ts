import type { Static } from '@sinclair/typebox'
import { enumeration } from '../schema/vocabulary.js'

export type RecencyBiasSetting = Static<typeof RecencyBiasSetting>
export const RecencyBiasSetting = enumeration(['favor_recent', 'base_decay', 'no_decay', 'auto'], {
  $id: 'RecencyBiasSetting',
})

export type AccessType = Static<typeof AccessType>
export const AccessType = enumeration(['public', 'private', 'sync'], { $id: 'AccessType' })

export type FederatedConnectorSource = Static<typeof FederatedConnectorSource>
export const FederatedConnectorSource = enumeration(['federated_slack'], { $id: 'FederatedConnectorSource' })

export type DocumentSource = Static<typeof DocumentSource>
export const DocumentSource = enumeration(
  [
    'ingestion_api',
    'slack',
    'web',
    'google_drive',
    'gmail',
    'requesttracker',
    'github',
    'gitbook',
    'gitlab',
    'guru',
    'bookstack',
    'outline',
    'confluence',
    'jira',
    'slab',
    'productboard',
    'file',
    'coda',
    'notion',
    'zulip',
    'linear',
    'hubspot',
    'document360',
    'gong',
    'google_sites',
    'zendesk',
    'loopio',
    'dropbox',
    'sharepoint',
    'teams',
    'salesforce',
    'discourse',
    'axero',
    'clickup',
    'mediawiki',
    'wikipedia',
    'asana',
    's3',
    'r2',
    'google_cloud_storage',
    'oci_storage',
    'xenforo',
    'not_applicable',
    'discord',
    'freshdesk',
    'fireflies',
    'egnyte',
    'airtable',
    'highspot',
    'drupal_wiki',
    'imap',
    'bitbucket',
    'testrail',
    'mock_connector',
    'user_file',
  ],
  { $id: 'DocumentSource' },
)
