import { Editor } from './editor.js'
import { Check, Chips, Field, Lines, type Pair, Pairs, useLists } from './parts.js'
import { Frame, useRecord } from './record.js'
import type { Person, Rights, Row } from './service.js'
import { counted, fieldsOf, titled } from './texts.js'

interface AgentRecord extends Row {
  system_prompt: string | null
  tools: { id: number; name: string }[]
  users: Person[]
  groups: number[]
  starter_messages: Pair[] | null
}

const FORM = 'name description starter_messages system_prompt tools is_public owner users groups'.split(' ').map(titled)

/** An agent's fields, editable in place: its prompts, its tools and its shares. */
export function Agent({ id, rights }: { id: number; rights: Rights }) {
  const of = useRecord<AgentRecord>({ view: 'agents', id, rights })
  const { record, shown, typed, changed, mayEdit, isEditable } = of
  const { me } = rights
  const mayShare = isEditable && (!mayEdit || me.permission === 'admin' || record?.owner?.id === me.user.id)
  const { tools, users, ...rest } = changed
  const body = { ...rest, ...(tools && { tool_ids: idsOf(tools) }), ...(users && { users: idsOf(users) }) }
  const [agents = [], all = []] = useLists(isEditable, ['persona'], ['tool']).data ?? []
  const people = new Map([...agents, ...all].flatMap(({ owner }) => (owner ? [[owner.id, owner]] : [])))
  const isTwice = (name: string) => all.filter(other => other.name === name).length > 1
  const groupOf = (id: number) => me.managed_groups.find(group => group.id === id) ?? { id, name: `group ${id}` }
  const [putPrompt, putGroups] = [typed('system_prompt'), typed('groups', mayShare)]
  return (
    <Frame {...{ of, body }}>
      <h2>Prompt</h2>
      <Editor
        key={of.turn}
        label="Prompt"
        text={shown.system_prompt ?? ''}
        isReadOnly={!isEditable}
        onType={read => putPrompt?.(read())}
      />
      <Field label="Name" value={shown.name} onChange={typed('name')} />
      <Field label="Description" rows={3} value={shown.description} onChange={typed('description')} />
      <h2>Tools</h2>
      <Chips
        noun="tool"
        rows={shown.tools ?? []}
        others={all}
        textOf={({ id, name }) => (isTwice(name) ? `${name} (${id})` : name)}
        hrefOf={({ id }) => `#/tools/${id}`}
        onChange={typed('tools')}
      />
      <h2>Who may use it</h2>
      <Check label="Everybody" checked={shown.is_public === true} onChange={typed('is_public', mayShare)} />
      <Chips
        noun="group"
        rows={shown.groups?.map(groupOf) ?? []}
        others={me.managed_groups}
        textOf={({ name }) => name}
        onChange={putGroups && (groups => putGroups(idsOf(groups)))}
      />
      <Chips
        noun="person"
        rows={shown.users ?? []}
        others={[...people.values()]}
        textOf={({ email }) => email}
        onChange={typed('users', mayShare)}
      />
      <Pairs
        title="Starter messages"
        noun="starter message"
        members={['name', 'message']}
        lines={2}
        rows={shown.starter_messages ?? []}
        onChange={typed('starter_messages')}
      />
      {record && <Rest record={record} />}
    </Frame>
  )
}

const idsOf = <I,>(rows: { id: I }[]) => rows.map(({ id }) => id)

/** The other fields, collapsed. Fields without a value are only listed by name. */
function Rest({ record }: { record: AgentRecord }) {
  const others = fieldsOf(record).filter(([title]) => !FORM.includes(title))
  const empty = others.filter(([, text]) => text === '').map(([title]) => title)
  const full = others.flatMap(([title, text]) => (text === '' ? [] : [`${title}: ${text}`]))
  return (
    <details>
      <summary>{counted(others.length, 'more field')}</summary>
      <Lines lines={[...full, `Without a value: ${empty.join(', ') || 'none'}`]} />
    </details>
  )
}
