import { type TSchema, Type } from '@sinclair/typebox'
import type { PersonaTable, ShareLevel, Tables } from '../db/tables.js'
import {
  type AnyColumnField,
  type ColumnFields,
  type ContentColumns,
  column,
  LIST_ITEMS_MAX,
  nullableColumn,
} from '../updates/field-table.js'
import {
  canonicalUuid,
  dateTime,
  flag,
  identifier,
  int32,
  list,
  nullable,
  number,
  parseDateTime,
  text,
  uuid,
} from '../validation/vocabulary.js'
import { RecencyBiasSetting, StarterMessage } from './nested-schemas.js'

/* The fields of an agent, in Onyx's order. Faults and audit rows list the fields in this order (DECISIONS sections 3 and 9). */

const DESCRIPTION_MAX_LENGTH = 10_000
const PROMPT_MAX_LENGTH = 256_000
const SHORT_TEXT_MAX_LENGTH = 255
const STARTER_MESSAGES_MAX = 50

const shortText = () => text({ maxLength: SHORT_TEXT_MAX_LENGTH })
const prompt = () => text({ maxLength: PROMPT_MAX_LENGTH })
const ids = () => list(identifier(), { maxItems: LIST_ITEMS_MAX })
const optional = Type.Optional
/** Converts each UUID to its canonical spelling. Returns other ids unchanged. */
const canonicalIds = (ids: string[]) => ids.map(id => canonicalUuid(id) ?? id)
const nullableShortText = nullableColumn('text', { request: optional(nullable(shortText())), answer: nullable(text()) })
/** The schema has no `default`, because a client that fills in defaults would overwrite stored values. */
const keptWhenAbsent = {
  description: 'New agents have `false` by default. An update without the field keeps the stored value.',
}

interface Changeable {
  /** `owner`: the owner and administrators can change it. `admin`: only administrators can; values from others are ignored, or refused if strict. */
  readonly changedBy?: 'owner' | 'admin' | 'admin once it is set'
  /** True if an empty list from an editor changes nothing, because Onyx's web form always sends an empty list. */
  readonly keptIfEmpty?: true
  /** `kept`: without an `update_mask`, `null` keeps the stored value. */
  readonly nullWithoutMask?: 'kept'
}

/** A table that links agents to records of one kind. `section` names the list of these records in the organisation document. */
export interface Link {
  readonly table: LinkTable
  readonly column: string
  readonly idType: 'integer' | 'text' | 'uuid'
  /** The noun that messages use for a linked record. */
  readonly noun: string
  readonly section: 'tools' | 'document_sets' | 'labels' | 'user_files' | 'users' | 'groups'
  /** True if each link has a permission level. */
  readonly isShare?: true
  /** The column for the user who created the link. */
  readonly attacher?: 'attached_by'
  /** For shares: the property that identifies the user or group in the organisation document. */
  readonly key?: string
}

export type LinkTable = Extract<keyof Tables, `persona_${string}`>

/** Describes a table of links. `column` contains the ids of the linked records. */
function link<const Table extends LinkTable, const Type extends Link['idType'], const More extends Partial<Link>>(
  table: Table,
  column: Exclude<keyof Tables[Table] & string, 'persona_id'>,
  idType: Type,
  noun: string,
  section: Link['section'],
  more: More,
) {
  return { table, column, idType, noun, section, ...more }
}

interface LinkField extends Changeable {
  readonly link: Link
  readonly request: TSchema
  readonly canonical?: (ids: never) => (string | number)[]
}

type LinkName = 'document_set_ids' | 'tool_ids' | 'users' | 'groups' | 'label_ids' | 'user_file_ids'
type Columns = ContentColumns<PersonaTable>

export const FIELDS = {
  name: column('text', '', {
    request: text({
      minLength: 1,
      maxLength: SHORT_TEXT_MAX_LENGTH,
      trimmed: true,
      description: 'White space at both ends is removed before the length is checked and the name is stored.',
    }),
    canonical: (name: string) => name.trim(),
    answer: text(),
  }),
  description: column('text', '', { request: text({ maxLength: DESCRIPTION_MAX_LENGTH }), answer: text() }),
  document_set_ids: {
    link: link('persona_document_set', 'document_set_id', 'integer', 'Document set', 'document_sets', {}),
    request: ids(),
  },
  num_chunks: nullableColumn('double precision', {
    request: number({ minimum: 0, maximum: 1_000_000 }),
    answer: nullable(number()),
  }),
  is_public: column('boolean', false, { request: flag(), changedBy: 'owner', answer: flag() }),
  recency_bias: column('text', 'base_decay', { request: RecencyBiasSetting, read: RecencyBiasSetting }),
  llm_filter_extraction: column('boolean', true, { request: flag(), answer: flag() }),
  llm_relevance_filter: column('boolean', false, { request: flag(), answer: flag() }),
  tool_ids: {
    link: link('persona_tool', 'tool_id', 'integer', 'Tool', 'tools', { attacher: 'attached_by' }),
    request: ids(),
  },
  system_prompt: nullableColumn('text', { request: prompt(), answer: optional(nullable(text())) }),
  task_prompt: nullableColumn('text', { request: prompt(), answer: optional(nullable(text())) }),
  datetime_aware: column('boolean', true, { request: flag(), answer: optional(flag({ default: true })) }),
  llm_model_provider_override: nullableShortText,
  llm_model_version_override: nullableShortText,
  starter_messages: nullableColumn('json', {
    request: optional(nullable(list(StarterMessage, { maxItems: STARTER_MESSAGES_MAX }))),
    canonical: (messages: StarterMessage[]) => messages.map(({ name, message }) => ({ name, message })),
    answer: nullable(list(StarterMessage)),
  }),
  users: {
    link: link('persona_user', 'user_id', 'uuid', 'User', 'users', { isShare: true, key: 'email' }),
    request: optional(list(uuid(), { maxItems: LIST_ITEMS_MAX })),
    canonical: canonicalIds,
  },
  groups: {
    link: link('persona_group', 'user_group_id', 'integer', 'Group', 'groups', { isShare: true, key: 'name' }),
    request: optional(ids()),
    changedBy: 'owner',
    keptIfEmpty: true,
  },
  remove_image: {
    request: optional(nullable(flag())),
  },
  uploaded_image_id: nullableColumn('text', {
    request: optional(
      nullable(shortText(), {
        description:
          '`""` keeps the image. `null` removes the image if the request has `update_mask`, and otherwise keeps it.',
      }),
    ),
    canonical: (id: string) => id || undefined,
    nullWithoutMask: 'kept',
    answer: nullable(text()),
  }),
  icon_name: nullableShortText,
  search_start_date: nullableColumn('timestamptz', {
    request: optional(
      nullable(dateTime(), {
        description: 'RFC 3339 time. Without an offset, the time is in UTC. A date alone means midnight in UTC.',
      }),
    ),
    canonical: (date: string) => parseDateTime(date) ?? null,
    read: nullable(dateTime()),
  }),
  label_ids: {
    link: link('persona_label', 'label_id', 'integer', 'Label', 'labels', {}),
    request: optional(
      nullable(ids(), {
        description: 'With `update_mask`, `null` or `[]` removes all labels. Without `update_mask`, `null` keeps them.',
      }),
    ),
    nullWithoutMask: 'kept',
  },
  is_default_persona: column('boolean', false, {
    request: optional(flag(keptWhenAbsent)),
    changedBy: 'admin',
    answer: flag(),
  }),
  display_priority: nullableColumn('integer', {
    request: optional(
      nullable(int32(), {
        description: 'With `update_mask`, `null` removes the priority. Without `update_mask`, `null` keeps it.',
      }),
    ),
    nullWithoutMask: 'kept',
    changedBy: 'admin once it is set',
    answer: nullable(identifier()),
  }),
  user_file_ids: {
    link: link('persona_user_file', 'user_file_id', 'text', 'File', 'user_files', {}),
    request: optional(
      nullable(list(shortText(), { maxItems: LIST_ITEMS_MAX }), {
        description: 'With `update_mask`, `null` or `[]` removes all files. Without `update_mask`, `null` keeps them.',
      }),
    ),
    canonical: canonicalIds,
    nullWithoutMask: 'kept',
  },
  replace_base_system_prompt: column('boolean', false, {
    request: optional(flag(keptWhenAbsent)),
    answer: optional(flag({ default: false })),
  }),
  is_visible: column('boolean', true, { document: flag(), answer: flag() }),
  builtin_persona: column('boolean', false, { document: flag(), answer: flag() }),
  deleted: column('boolean', false, { document: flag() }),
  owner_id: nullableColumn('uuid', {}),
} as const satisfies Record<keyof Columns, AnyColumnField & Changeable> &
  Record<LinkName, LinkField> & { remove_image: { request: TSchema } }

type Fields = typeof FIELDS

/** A type error here means that `FIELDS` and the columns of the database table differ. */
const columns: ColumnFields<Columns, Fields> = FIELDS

export type PersonaColumn = keyof Columns
export type RequestField = { [F in keyof Fields]: Fields[F] extends { request: unknown } ? F : never }[keyof Fields]
export type Relation = { [F in keyof Fields]: Fields[F] extends { link: Link } ? F : never }[keyof Fields]
export type ShareRelation = {
  [R in Relation]: Fields[R]['link'] extends { isShare: true } ? R : never
}[Relation]

export interface Share<Id> {
  id: Id
  level: ShareLevel
}

export type IdOf<R extends Relation> = Fields[R]['link']['idType'] extends 'integer' ? number : string

/** The changeable content of an agent, in the order of `FIELDS`. */
export type PersonaContent = {
  -readonly [F in Exclude<keyof Fields, 'remove_image'>]: F extends keyof Columns
    ? Columns[F]
    : F extends Relation
      ? F extends ShareRelation
        ? Share<IdOf<F>>[]
        : IdOf<F>[]
      : never
}

// The casts restore the literal names that `Object.entries` loses.
export const COLUMNS = Object.entries(FIELDS).filter(
  ([name]) => name in columns && 'column' in FIELDS[name as keyof Fields],
) as [PersonaColumn, AnyColumnField & Changeable][]
export const RELATIONS = Object.entries(FIELDS).filter(([, field]) => 'link' in field) as [Relation, LinkField][]
export const REQUEST_FIELDS = Object.entries(FIELDS).filter(([, field]) => 'request' in field) as [
  RequestField,
  { request: TSchema; canonical?: (value: unknown) => unknown } & Changeable,
][]
export const CONTENT_FIELDS = Object.keys(FIELDS).filter(name => name !== 'remove_image') as (keyof PersonaContent)[]

const RELATION_NAMES: ReadonlySet<string> = new Set(RELATIONS.map(([name]) => name))

/** True if a link table stores the field. */
export function isRelation(field: string): field is Relation {
  return RELATION_NAMES.has(field)
}

export function linkOf(relation: Relation): Link {
  return FIELDS[relation].link
}

/** The values of an agent's row before the creation sets its fields. In the creation's audit row, these are the `from` values. */
export const BLANK_AGENT = Object.fromEntries(
  CONTENT_FIELDS.map(name => {
    const field: object = FIELDS[name]
    return [name, 'blank' in field ? field.blank : []]
  }),
) as unknown as Readonly<PersonaContent>

/** The default values of new agents in organisation documents. Creations under `/api` use only `num_chunks`. */
export const NEW_AGENT: Readonly<PersonaContent> = {
  ...BLANK_AGENT,
  num_chunks: 10,
  system_prompt: '',
  task_prompt: '',
}

export type Id = number | string

/** A link to a record: the record's id, or the id with a permission level. */
export type StoredLink = Id | Share<Id>

export function idOf(link: Id | { id: Id }): Id {
  return typeof link === 'object' ? link.id : link
}

/** Returns the ids of the records in one relation, without permission levels. */
export function idsOf(content: PersonaContent, relation: Relation): Id[] {
  const links: StoredLink[] = content[relation]
  return links.map(idOf)
}

/** Compares ids in the database's order: numbers by value, strings by their UTF-8 bytes. */
export function compareIds(a: string | number, b: string | number): number {
  if (typeof a === 'number' && typeof b === 'number') return a - b
  return Buffer.compare(Buffer.from(String(a)), Buffer.from(String(b)))
}
