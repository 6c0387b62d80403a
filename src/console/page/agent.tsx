import { Editor } from './editor.js'
import { Check, Chips, Field, Lines, Note, type Pair, Pairs, useLists } from './parts.js'
import { Frame, useRecord } from './record.js'
import { BLANK, type Person, type Rights, type Row } from './service.js'
import { counted, fieldsOf, titled } from './texts.js'

interface AgentRecord extends Row {
  system_prompt: string | null
  tools: { id: number; name: string }[]
  users: Person[]
  groups: number[]
  starter_messages: Pair[] | null
}

const EMPTY = { system_prompt: '', tools: [], users: [], groups: [], is_public: false, starter_messages: [] }
const FRESH: AgentRecord = { ...BLANK, ...EMPTY }
/** The values of a new agent for the required fields that have no controls in the form. */
const REQUIRED = {
  ...{ document_set_ids: [], num_chunks: 10, recency_bias: 'auto', task_prompt: '', datetime_aware: true },
  ...{ llm_filter_extraction: true, llm_relevance_filter: false },
}
const FORM = Object.keys(FRESH).map(titled)

const idsOf = <I,>(rows: { id: I }[]) => rows.map(({ id }) => id)
const requestOf = ({ id: _, owner: __, tools, users, ...rest }: Partial<AgentRecord>) => ({
  ...rest,
  ...(tools && { tool_ids: idsOf(tools) }),
  ...(users && { users: idsOf(users) }),
})

export function Agent({ id, rights }: { id: number; rights: Rights }) {
  const of = useRecord<AgentRecord>('agents', id, rights, FRESH)
  const { record, now, shown, typed, changed, mayEdit, isEditable } = of
  const { me } = rights
  const mayShare = isEditable && (!mayEdit || me.permission === 'admin' || record?.owner?.id === me.user.id)
  const [agents = [], tools = []] = useLists(isEditable, 'agents', 'tools')
  const people = new Map([...agents, ...tools].flatMap(({ owner }) => (owner ? [[owner.id, owner]] : [])))
  const isTwice = (name: string) => tools.filter(other => other.name === name).length > 1
  const unknown = (shown.groups ?? []).filter(id => !me.managed_groups.some(group => group.id === id))
  const others = fieldsOf({ ...record }).filter(([title, text]) => text !== '' && !FORM.includes(title))
  const onType = (read: () => string) => typed('system_prompt')?.(read())
  const putGroups = typed('groups', mayShare)
  return (
    <Frame {...{ of, body: requestOf(changed) }} created={{ ...REQUIRED, ...(id === 0 && requestOf(shown)) }}>
      <h2>Prompt</h2>
      <Editor
        key={now?.etag}
        label="Prompt"
        {...{ text: shown.system_prompt ?? '', isReadOnly: !isEditable, onType }}
      />
      <Field label="Name" value={shown.name} onChange={typed('name')} />
      <Field label="Description" rows={3} value={shown.description} onChange={typed('description')} />
      <h2>Tools</h2>
      <Chips
        noun="tool"
        rows={shown.tools ?? []}
        others={tools}
        textOf={({ id, name }) => (isTwice(name) ? `${name} (${id})` : name)}
        linkOf={({ id }) => ({ href: `#/tools/${id}` })}
        onChange={typed('tools')}
      />
      <h2>Who can use this agent</h2>
      <Check label="Everybody" checked={shown.is_public === true} onChange={typed('is_public', mayShare)} />
      <Chips
        noun="group"
        rows={me.managed_groups.filter(({ id }) => shown.groups?.includes(id))}
        others={me.managed_groups}
        textOf={({ name }) => name}
        onChange={putGroups && (groups => putGroups([...unknown, ...idsOf(groups)]))}
      />
      {unknown.length > 0 && <Note text={`Shared with ${counted(unknown.length, 'group')} that you do not manage.`} />}
      <Chips
        noun="person"
        rows={shown.users ?? []}
        others={[...people.values()]}
        textOf={({ email }) => email}
        onChange={typed('users', mayShare)}
      />
      <Pairs
        noun="starter message"
        members={['name', 'message']}
        lines={2}
        rows={shown.starter_messages ?? []}
        onChange={typed('starter_messages')}
      />
      <details>
        <summary>{counted(others.length, 'more field')}</summary>
        <Lines lines={others.map(each => each.join(': '))} />
      </details>
    </Frame>
  )
}
