import { type Kysely, sql, type Transaction } from 'kysely'
import type { Database, ShareLevel } from '../../db/tables.js'
import { changedFields, contentOf } from '../../persona/plan.js'
import { PERSONA_COLUMN_TYPES, type PersonaContent, type PersonaState, personaState } from '../../persona/state.js'
import { lockPersona, writePersona } from '../../persona/store.js'
import { parseDateTime } from '../../schema/date-time.js'
import type { Actor, Change } from '../../updates/audit.js'
import type { AgentEntry } from '../document.js'
import { batches } from './batches.js'
import { ascending, type Catalogue, type Id, type Matched } from './catalogue.js'
import { auditCreations } from './creation.js'
import type { Outcome } from './report.js'

/** An agent as it is before anybody says anything of it: what a document does not name in a new agent. */
export const BLANK_AGENT: Readonly<PersonaContent> = {
  name: '',
  description: '',
  document_set_ids: [],
  num_chunks: null,
  is_public: false,
  recency_bias: 'base_decay',
  llm_filter_extraction: true,
  llm_relevance_filter: false,
  tool_ids: [],
  system_prompt: null,
  task_prompt: null,
  datetime_aware: true,
  llm_model_provider_override: null,
  llm_model_version_override: null,
  starter_messages: null,
  users: [],
  groups: [],
  uploaded_image_id: null,
  icon_name: null,
  search_start_date: null,
  label_ids: [],
  is_default_persona: false,
  display_priority: null,
  user_file_ids: [],
  replace_base_system_prompt: false,
  is_visible: true,
  builtin_persona: false,
  deleted: false,
  owner_id: null,
}

export interface PersonasPlan {
  outcomes: Outcome[]
  write(trx: Transaction<Database>, actor: Actor): Promise<void>
}

interface Planned {
  id: number
  content: PersonaContent
  changes: Change[]
}

/** Decides what becomes of the agents of a document. Notes faults in the catalogue. */
export async function planPersonas(db: Kysely<Database>, catalogue: Catalogue): Promise<PersonasPlan> {
  const matches = catalogue.entries('agents')
  const states = await readStates(
    db,
    matches.filter(match => match.stored !== undefined).map(match => Number(match.id)),
  )
  const created: Planned[] = []
  const changed: Matched[] = []
  const outcomes = matches.map((match): Outcome => {
    const before = states.get(Number(match.id))
    const content = mergedContent(before ?? BLANK_AGENT, match, catalogue)
    const changes = changedFields(before ?? BLANK_AGENT, content)
    if (before === undefined) created.push({ id: Number(match.id), content, changes })
    else if (changes.length > 0) changed.push(match)
    const action = before === undefined ? 'created' : changes.length > 0 ? 'changed' : 'unchanged'
    return { section: 'agents', id: match.id, name: content.name, action, fields: before === undefined ? [] : changes }
  })
  return {
    outcomes,
    write: async (trx, actor) => {
      await insertPersonas(trx, created, actor)
      const inOrder = [...changed].sort((a, b) => Number(a.id) - Number(b.id)) // one order of locks for all who take several
      for (const match of inOrder) {
        await changePersona(trx, Number(match.id), state => mergedContent(state, match, catalogue), actor)
      }
    },
  }
}

/**
 * Changes one agent as the operator: locks it, lets `decide` make the new content from what is there then, stores it with one
 * audit row if it differs. Answers the stored version and the changes; undefined when there is no such agent.
 */
export async function changePersona(
  trx: Transaction<Database>,
  id: number,
  decide: (state: PersonaState) => PersonaContent,
  actor: Actor,
): Promise<{ version: number; changes: Change[] } | undefined> {
  const state = await lockPersona(trx, id, null)
  if (state === undefined) return undefined
  const content = decide(state)
  const changes = changedFields(state, content)
  return { version: await writePersona(trx, state, { content, changes }, actor), changes }
}

async function readStates(db: Kysely<Database>, ids: readonly number[]): Promise<Map<number, PersonaState>> {
  const states = new Map<number, PersonaState>()
  for (const some of batches(ids)) {
    const { rows } = await sql<{ state: PersonaState }>`
      select ${personaState(sql`null::uuid`)} as state from persona p where p.id = any(${some}::integer[])`.execute(db)
    for (const { state } of rows) states.set(state.id, state)
  }
  return states
}

type Fields = AgentEntry & Readonly<Record<string, unknown>>

function mergedContent(before: PersonaContent, match: Matched, catalogue: Catalogue): PersonaContent {
  const entry = match.entry as Fields // it passed the document's schema
  const content = contentOf(before)
  for (const column of Object.keys(PERSONA_COLUMN_TYPES)) {
    if (entry[column] !== undefined) Object.assign(content, { [column]: entry[column] })
  }
  content.name = content.name.trim()
  if (entry.search_start_date) content.search_start_date = parseDateTime(entry.search_start_date) ?? null
  if (entry.starter_messages) {
    content.starter_messages = entry.starter_messages.map(({ name, message }) => ({ name, message }))
  }
  mergeRelations(content, entry, match, catalogue)
  if (content.is_default_persona && !content.is_public) {
    const loc = [...match.loc, 'is_default_persona']
    catalogue.faults.push({ loc, msg: 'a default agent must be public', type: 'default_persona_private' })
  }
  return content
}

function mergeRelations(content: PersonaContent, entry: Fields, { loc }: Matched, catalogue: Catalogue): void {
  if (entry.owner !== undefined) {
    const owner = entry.owner && catalogue.resolve('users', entry.owner, [...loc, 'owner'])
    content.owner_id = owner === null ? null : String(owner)
  }
  if (entry.tools) content.tool_ids = catalogue.resolveAll('tools', entry.tools, [...loc, 'tools']).map(Number)
  if (entry.document_sets) {
    content.document_set_ids = catalogue
      .resolveAll('document_sets', entry.document_sets, [...loc, 'document_sets'])
      .map(Number)
  }
  if (entry.labels) content.label_ids = catalogue.resolveAll('labels', entry.labels, [...loc, 'labels']).map(Number)
  if (entry.user_files) {
    content.user_file_ids = catalogue.resolveAll('user_files', entry.user_files, [...loc, 'user_files']).map(String)
  }
  if (entry.users) {
    const shares = entry.users.map(({ email, level }, index) => ({
      id: catalogue.resolve('users', email, [...loc, 'users', index, 'email']),
      level: level ?? ('viewer' as const),
    }))
    content.users = sortedShares(shares)
  }
  // The owner has every right already; the update operation drops them as well.
  content.users = content.users.filter(share => share.id !== content.owner_id)
  if (entry.groups) {
    const shares = entry.groups.map(({ name, level }, index) => ({
      id: catalogue.resolve('groups', name, [...loc, 'groups', index, 'name']),
      level: level ?? ('viewer' as const),
    }))
    content.groups = sortedShares(shares).map(({ id, level }) => ({ id: Number(id), level }))
  }
}

function sortedShares(shares: readonly { id: Id | null; level: ShareLevel }[]): { id: string; level: ShareLevel }[] {
  const levels = new Map<Id, ShareLevel>()
  for (const { id, level } of shares) if (id !== null) levels.set(id, level)
  return ascending([...levels.keys()]).map(id => ({ id: id as string, level: levels.get(id) ?? 'viewer' })) // groups turn it into a number
}

async function insertPersonas(trx: Transaction<Database>, created: readonly Planned[], actor: Actor): Promise<void> {
  for (const some of batches(created)) {
    const versions = await auditCreations(trx, 'persona', some, actor)
    await trx
      .insertInto('persona')
      .values(some.map(({ id, content }, index) => ({ id, ...columnsOf(content), ...versions[index] })))
      .execute()
  }
  await insertLinks(trx, created)
}

function columnsOf(content: PersonaContent) {
  const {
    tool_ids: _,
    document_set_ids: __,
    label_ids: ___,
    user_file_ids: ____,
    users: _____,
    groups: ______,
    ...columns
  } = content
  return { ...columns, starter_messages: columns.starter_messages && JSON.stringify(columns.starter_messages) }
}

async function insertLinks(trx: Transaction<Database>, created: readonly Planned[]): Promise<void> {
  const links = <Item, Row>(items: (content: PersonaContent) => Item[], row: (item: Item) => Row) =>
    created.flatMap(({ id, content }) => items(content).map(item => ({ persona_id: id, ...row(item) })))
  for (const rows of batches(
    links(
      c => c.tool_ids,
      tool_id => ({ tool_id }),
    ),
  )) {
    await trx.insertInto('persona_tool').values(rows).execute()
  }
  for (const rows of batches(
    links(
      c => c.document_set_ids,
      document_set_id => ({ document_set_id }),
    ),
  )) {
    await trx.insertInto('persona_document_set').values(rows).execute()
  }
  for (const rows of batches(
    links(
      c => c.label_ids,
      label_id => ({ label_id }),
    ),
  )) {
    await trx.insertInto('persona_label').values(rows).execute()
  }
  for (const rows of batches(
    links(
      c => c.user_file_ids,
      user_file_id => ({ user_file_id }),
    ),
  )) {
    await trx.insertInto('persona_user_file').values(rows).execute()
  }
  for (const rows of batches(
    links(
      c => c.users,
      ({ id, level }) => ({ user_id: id, level }),
    ),
  )) {
    await trx.insertInto('persona_user').values(rows).execute()
  }
  for (const rows of batches(
    links(
      c => c.groups,
      ({ id, level }) => ({ user_group_id: id, level }),
    ),
  )) {
    await trx.insertInto('persona_group').values(rows).execute()
  }
}
