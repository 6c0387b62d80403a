import type { Definitions } from '../tool/definition-cache.js'
import { renderTool } from '../tool/snapshot.js'
import { compareIds, idsOf, type PersonaContent } from './fields.js'
import { READ_FIELDS, SNAPSHOT_FIELDS, type SnapshotPart } from './schema.js'
import type { PersonaState } from './state.js'

const NAMES = SNAPSHOT_FIELDS.map(([name]) => name)
const PLACE = NAMES.indexOf('tools')
const READ_NAMES = READ_FIELDS.map(([name]) => name)

/** Renders the wire's PersonaSnapshot or, with `isRead`, its PersonaRecord. Each tool's definition is put in as its stored text. */
export function renderPersona(
  agent: PersonaContent & Pick<PersonaState, 'id' | 'owner' | 'related'>,
  definitions: Definitions,
  isRead = false,
): string {
  const { id, owner, related } = agent
  const ofIds = <Record extends { id: number | string }>(records: readonly Record[], ids: readonly unknown[]) => {
    const wanted = new Set(ids)
    return records.filter(record => wanted.has(record.id)).sort((a, b) => compareIds(a.id, b.id))
  }
  const people = ofIds(related.users, idsOf(agent, 'users'))
  const parts: Record<Exclude<SnapshotPart, 'tools'>, unknown> & { starter_messages: unknown } = {
    id,
    owner,
    user_file_ids: agent.user_file_ids,
    labels: ofIds(related.label_ids, agent.label_ids),
    users: people.sort((a, b) => compareIds(a.email, b.email)),
    groups: idsOf(agent, 'groups'),
    document_sets: ofIds(related.document_set_ids, agent.document_set_ids),
    starter_messages: agent.starter_messages?.map(({ name, message }) => ({ name, message })) ?? null,
  }
  const values: Readonly<Record<string, unknown>> = { ...agent, ...parts }
  const members = (names: readonly string[]) =>
    JSON.stringify(Object.fromEntries(names.map(name => [name, values[name]]))).slice(1, -1)
  const tools = ofIds(related.tool_ids, agent.tool_ids).map(tool => renderTool(tool, definitions.of(tool)))
  const after = [...NAMES.slice(PLACE + 1), ...(isRead ? READ_NAMES : [])]
  return `{${members(NAMES.slice(0, PLACE))},"tools":[${tools.join()}],${members(after)}}`
}
