import { type Static, Type } from '@sinclair/typebox'
import { flag, freeForm, identifier, list, nullable, text, uuid } from '../schema/vocabulary.js'
import { AccessType, DocumentSource, FederatedConnectorSource } from './enumerations.js'

/** The records inside an agent. Names, order, nullability and what is required are the interface document's. */

export type StarterMessage = Static<typeof StarterMessage>
export const StarterMessage = Type.Object(
  { name: text({ maxLength: 255 }), message: text({ maxLength: 10_000 }) },
  { $id: 'StarterMessage' },
)

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
