import { type Static, type TSchema, Type } from '@sinclair/typebox'
import { ToolSnapshot } from '../tool/schema.js'
import { dateTime, flag, identifier, list, nullable, text } from '../validation/vocabulary.js'
import { COLUMNS, type FIELDS, REQUEST_FIELDS, type RequestField } from './fields.js'
import { DocumentSetSummary, MinimalUserSnapshot, PersonaLabelSnapshot } from './nested-schemas.js'

type RequestProperties = { [F in RequestField]: (typeof FIELDS)[F]['request'] }

const PROPERTIES = Object.fromEntries(REQUEST_FIELDS.map(([name, { request }]) => [name, request]))

/** The body of an agent's creation or update. */
export const PersonaUpsertRequest = Type.Object(PROPERTIES as unknown as RequestProperties, {
  $id: 'PersonaUpsertRequest',
  description: 'In an update, absent optional fields keep their values. In a creation, they get their default values.',
})
export type PersonaUpsertRequest = Static<typeof PersonaUpsertRequest>

/** The fields of the snapshot that are not columns in `FIELDS`. */
const PARTS = {
  id: identifier(),
  user_file_ids: list(text()),
  tools: list(ToolSnapshot),
  labels: list(PersonaLabelSnapshot),
  owner: nullable(MinimalUserSnapshot),
  users: list(MinimalUserSnapshot),
  groups: list(identifier()),
  document_sets: list(DocumentSetSummary),
}
export type SnapshotPart = keyof typeof PARTS

/** The fields of Onyx's snapshot, in order. Other fields come after them. */
const ORDER = (
  'id name description is_public is_visible uploaded_image_id icon_name user_file_ids display_priority is_default_persona ' +
  'builtin_persona starter_messages llm_relevance_filter llm_filter_extraction tools labels owner users groups document_sets ' +
  'llm_model_provider_override llm_model_version_override num_chunks system_prompt replace_base_system_prompt task_prompt ' +
  'datetime_aware'
).split(' ')

type ColumnAnswers = {
  [F in keyof typeof FIELDS as (typeof FIELDS)[F] extends { answer: TSchema } ? F : never]: (typeof FIELDS)[F] extends {
    answer: infer Answer
  }
    ? Answer
    : never
}

const answers: Readonly<Record<string, TSchema>> = {
  ...PARTS,
  ...Object.fromEntries(COLUMNS.flatMap(([name, { answer }]) => (answer === undefined ? [] : [[name, answer]]))),
}

/** The schema of each field of the snapshot, in order. */
export const SNAPSHOT_FIELDS = [...new Set([...ORDER, ...Object.keys(answers)])].flatMap(name => {
  const answer = answers[name]
  return answer === undefined ? [] : [[name, answer] as const]
})

export type PersonaSnapshot = Static<typeof PersonaSnapshot>
export const PersonaSnapshot = Type.Object(
  Object.fromEntries(SNAPSHOT_FIELDS) as unknown as typeof PARTS & ColumnAnswers, // the properties are those of `PARTS` and `ColumnAnswers`
  { $id: 'PersonaSnapshot' },
)

/** The fields that only a read of one agent returns. With them, a read returns every field that an update can change. */
export const READ_FIELDS = COLUMNS.flatMap(([name, { read, column }]) => {
  return read === undefined ? [] : [[name, read, column] as const]
})

export const PersonaRecord = Type.Object(
  { ...PersonaSnapshot.properties, ...Object.fromEntries(READ_FIELDS.map(([name, read]) => [name, read])) },
  { $id: 'PersonaRecord' },
)

export type PersonaSummary = Static<typeof PersonaSummary>
export const PersonaSummary = Type.Object(
  {
    id: identifier(),
    name: text(),
    description: text(),
    owner: nullable(MinimalUserSnapshot),
    is_public: flag(),
    is_visible: flag(),
    is_default_persona: flag(),
    builtin_persona: flag(),
    etag: text({ description: 'The entity tag of the stored version, for `If-Match`.' }),
    updated_at: nullable(dateTime()),
  },
  { $id: 'PersonaSummary' },
)
