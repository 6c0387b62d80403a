import { useState } from 'preact/hooks'
import { Editor } from './editor.js'
import { tagsOf } from './list.js'
import { Check, Chips, Field, Note, Problem, useLoad, View } from './parts.js'
import { History } from './past.js'
import { Saving, useRecord } from './record.js'
import { type Rights, type Row, readList } from './service.js'
import { counted, fieldsOf, textOf, visible } from './texts.js'

interface AgentRecord extends Row {
  system_prompt: string | null
  tools: { id: number; name: string }[]
  users: { id: string; email: string }[]
  groups: number[]
  starter_messages: object[] | null
}

const FORM = 'name description starter_messages system_prompt tools is_public owner users groups'.split(' ')

/** An agent: what it is told, what it may call and who may use it, to be changed where it stands. */
export function Agent({ id, rights }: { id: number; rights: Rights }) {
  const of = useRecord<AgentRecord>('agents', id)
  const { loaded, record, shown, past, now, put, changed, done } = of
  const mayEdit = rights.writes && past !== undefined && record !== undefined && !record.builtin_persona
  const mayPropose = rights.proposes && record !== undefined && !record.builtin_persona
  const isEditable = mayEdit || mayPropose
  const { tools, ...rest } = changed
  const body = { ...rest, ...(tools && { tool_ids: tools.map(tool => tool.id) }) }
  const others = ' Its owner, an editor or an administrator can change it'
  const only = mayEdit || !record ? '' : mayPropose ? `${others}. You can propose changes.` : `${others}.`
  const state = now
    ? `${done} Agent ${id}, version ${now.version}, owner: ${record?.owner?.email ?? 'nobody'}.${only}`
    : 'It is deleted. To restore a version brings it back.'
  const typed = <K extends keyof AgentRecord>(name: K) =>
    isEditable ? (value: AgentRecord[K]) => put({ [name]: value } as Partial<AgentRecord>) : undefined
  return (
    <View
      up={['#/agents', 'Agents']}
      title={record?.name ?? `Agent ${id}`}
      tags={record && tagsOf(record)}
      {...{ loaded, state }}
    >
      <div class="columns">
        {record && (
          <div class="form">
            <h2>Prompt</h2>
            <Editor
              label="Prompt"
              text={shown.system_prompt ?? ''}
              isReadOnly={!isEditable}
              onType={read => put({ system_prompt: read() })}
            />
            <Field label="Name" value={shown.name} onChange={typed('name')} />
            <Field label="Description" rows={3} value={shown.description} onChange={typed('description')} />
            <h2>Tools</h2>
            <Tools tools={shown.tools} onChange={typed('tools')} />
            <h2>Who may use it</h2>
            <Check label="Everybody" checked={shown.is_public === true} onChange={typed('is_public')} />
            <People record={record} rights={rights} />
            <h2>Starter messages</h2>
            <p class="text">{visible(textOf('starter_messages', record.starter_messages)) || 'None.'}</p>
            <Rest record={record} />
          </div>
        )}
        {past && (
          <History
            view="agents"
            id={id}
            now={now?.version ?? 0}
            first={past}
            restores={rights.writes && !record?.builtin_persona}
          />
        )}
      </div>
      <Saving {...{ of, body, mayEdit, mayPropose }} onDiscard={() => of.setEdits({})} />
    </View>
  )
}

interface ToolsProps {
  tools: AgentRecord['tools']
  onChange: ((tools: AgentRecord['tools']) => void) | undefined
}

function Tools({ tools, onChange }: ToolsProps) {
  const [all, setAll] = useState<Row[]>([])
  const list = useLoad(async signal => (onChange ? setAll(await readList('tools', signal)) : undefined))
  const others = all.filter(({ id }) => !tools.some(tool => tool.id === id))
  const isTwice = (name: string) => all.filter(other => other.name === name).length > 1
  const add = (id: number) => onChange?.([...tools, ...others.filter(other => other.id === id)])
  const remove = onChange && ((id: unknown) => onChange(tools.filter(tool => tool.id !== id)))
  return (
    <>
      <Chips rows={tools.map(({ id, name }) => ({ id, text: name, href: `#/tools/${id}` }))} onRemove={remove} />
      {tools.length === 0 && <Note text="It calls no tools." />}
      {others.length > 0 && (
        <select aria-label="Add a tool" value="" onChange={event => add(Number(event.currentTarget.value))}>
          <option value="">Add a tool</option>
          {others.map(({ id, name }) => (
            <option value={id}>{visible(isTwice(name) ? `${name} (${id})` : name)}</option>
          ))}
        </select>
      )}
      <Problem {...list} />
    </>
  )
}

function People({ record: { users, groups, is_public }, rights }: { record: AgentRecord; rights: Rights }) {
  const nameOf = (id: number) => rights.me.managed_groups.find(group => group.id === id)?.name ?? `group ${id}`
  const people = users.map(({ id, email }) => ({ id, text: email }))
  const rows = [...groups.map(id => ({ id: `group ${id}`, text: nameOf(id) })), ...people]
  return rows.length > 0 || is_public ? <Chips rows={rows} /> : <Note text="Only its owner and administrators." />
}

/** The other fields, folded; those without a value are only named. */
function Rest({ record }: { record: AgentRecord }) {
  const names = Object.entries(record).filter(([name]) => !FORM.includes(name))
  const others = fieldsOf(Object.fromEntries(names))
  const empty = others.filter(([, text]) => text === '').map(([title]) => title)
  return (
    <details>
      <summary>{counted(others.length, 'more field')}</summary>
      <dl>{others.map(([title, text]) => text !== '' && <Pair title={title} text={text} />)}</dl>
      <Note text={`Without a value: ${empty.join(', ') || 'none'}.`} />
    </details>
  )
}

export const Pair = ({ title, text }: { title: string; text: string }) => (
  <div>
    <dt>{visible(title)}</dt>
    <dd class="text">{visible(text)}</dd>
  </div>
)
