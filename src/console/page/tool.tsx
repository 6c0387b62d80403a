import { useMemo, useRef, useState } from 'preact/hooks'
import { type Checked, Definition } from './definition.js'
import { tagsOf } from './list.js'
import { Button, Check, Field, Note, Problem, useAction, useUnsaved, View } from './parts.js'
import { History } from './past.js'
import { bodyText, Saving, useRecord } from './record.js'
import { ask, leaveTo, newKey, type Rights, type Row } from './service.js'
import { visible } from './texts.js'

interface Header {
  key: string
  value: string
}

interface ToolRecord extends Row {
  definition: object | null
  custom_headers: Header[] | null
  passthrough_auth: boolean
  oauth_config_name: string | null
}

/** Makes a tool, and shows it. */
function useCreation(fields: object, definition: string | null | undefined, onDone: () => void) {
  const text = bodyText({ passthrough_auth: false, ...fields }, definition)
  const key = useMemo(newKey, [text])
  return useAction(async () => {
    const { data } = await ask<{ id: number }>('POST', 'admin/tool/custom', {
      text,
      headers: { 'idempotency-key': key },
    })
    onDone()
    leaveTo(`#/tools/${data.id}`)
  })
}

/** A tool: its fields and headers, its definition in the editor, its functions and the agents that use it. */
export function Tool({ id, rights }: { id: number; rights: Rights }) {
  const of = useRecord<ToolRecord>('tools', id)
  const { loaded, record, shown, past, now, put, changed, done } = of
  const [checked, setChecked] = useState<Checked | null>(null)
  const [turn, setTurn] = useState(0)
  const stored = useMemo(() => (record?.definition ? JSON.stringify(record.definition, null, 2) : ''), [record])
  const isCustom = record !== undefined && !record.in_code_tool_id && !record.mcp_server_id
  const mayEdit = rights.writes && isCustom && record.custom_headers !== null
  const mayPropose = rights.proposes && rights.manages && isCustom
  const isEditable = mayEdit || mayPropose || (rights.makesTools && isCustom)
  const [isTouched, setTouched] = useState(false)
  // What is typed stays while somebody else's change is read; a definition that nobody touched follows it.
  const base = useRef('')
  if (!isTouched) base.current = stored
  const isTyped = isTouched && checked?.text !== stored
  const definition = isTyped ? (checked?.json ?? null) : undefined
  const typedDefinition = (found: Checked | null) => {
    setChecked(found)
    if (found !== null) return
    setTouched(true)
    of.setDone('')
  }
  const discard = () => {
    of.setEdits({})
    setTouched(false)
    setTurn(turn + 1)
  }
  const { name, description, passthrough_auth } = shown
  const copy = useCreation({ name, description, passthrough_auth }, definition ?? stored, discard)
  const only =
    mayEdit || !record ? '' : ` Somebody who manages it can change it.${mayPropose ? ' You can propose changes.' : ''}`
  const typed = <K extends keyof ToolRecord>(name: K) =>
    isEditable ? (value: ToolRecord[K]) => put({ [name]: value } as Partial<ToolRecord>) : undefined
  const headers = {
    stored: record?.custom_headers ?? [],
    headers: shown.custom_headers ?? [],
    onChange: typed('custom_headers'),
  }
  return (
    <View
      up={['#/tools', 'Tools']}
      title={record?.name ?? `Tool ${id}`}
      tags={record && tagsOf(record)}
      state={now && `${done} Tool ${id}, version ${now.version}.${only}`}
      loaded={loaded}
    >
      {record && (
        <div class="two form">
          <div>
            <Field label="Name" value={name} onChange={typed('name')} />
            <Field label="Description" rows={3} value={description} onChange={typed('description')} />
          </div>
          <div>
            {record.custom_headers && <Headers {...headers} />}
            <Check
              label="Sends the sign-in of its user along"
              checked={passthrough_auth}
              onChange={typed('passthrough_auth')}
            />
            {record.oauth_config_name && <Note text={`OAuth: ${record.oauth_config_name}`} />}
          </div>
        </div>
      )}
      {record?.definition && (
        <Definition
          key={turn}
          text={base.current}
          toolId={id}
          isChecked={isEditable}
          onChange={isEditable ? typedDefinition : undefined}
        />
      )}
      {past && <History view="tools" id={id} now={now?.version ?? 0} first={past} restores={mayEdit} />}
      <Saving {...{ of, body: changed, definition, mayEdit, mayPropose }} onDiscard={discard}>
        <Problem problem={copy.problem} />
        {rights.makesTools && (
          <Button label="Save as a new tool" disabled={definition === null || copy.isBusy} onClick={copy.act} />
        )}
      </Saving>
    </View>
  )
}

interface HeadersProps {
  stored: Header[]
  headers: Header[]
  onChange: ((headers: Header[]) => void) | undefined
}

/** Headers that are sent with each call. A stored value is never shown: it is kept, or replaced. */
function Headers({ stored, headers, onChange }: HeadersProps) {
  const put = (at: number, part: Partial<Header>) =>
    onChange?.(headers.map((each, i) => (i === at ? { ...each, ...part } : each)))
  const isStored = ({ value }: Header) => stored.some(each => each.value === value)
  const rowOf = (header: Header, i: number) => {
    const { key, value } = header
    if (isStored(header))
      return (
        <>
          <code>{visible(key)}</code> <span class="note">a stored value</span>
          {onChange && <Button label="Replace" name={`Replace ${key}`} onClick={() => put(i, { value: '' })} />}
        </>
      )
    return (
      <>
        <Field isBare label="Name of the header" value={key} onChange={key => put(i, { key })} />
        <Field
          isBare
          label={`Value of ${key || 'the header'}`}
          class="secret"
          value={value}
          onChange={value => put(i, { value })}
        />
      </>
    )
  }
  return (
    <fieldset>
      <legend>Headers</legend>
      {headers.map((header, i) => (
        <div class="bar">
          {rowOf(header, i)}
          {onChange && (
            <Button label="Remove" name={`Remove ${header.key}`} onClick={() => onChange(headers.toSpliced(i, 1))} />
          )}
        </div>
      ))}
      {headers.length === 0 && <Note text="None." />}
      {onChange && <Button label="Add a header" onClick={() => onChange([...headers, { key: '', value: '' }])} />}
    </fieldset>
  )
}

/** A tool from a definition that somebody pastes or opens. */
export function NewTool({ rights }: { rights: Rights }) {
  const [name, setName] = useState('')
  const [description, setDescription] = useState('')
  const [checked, setChecked] = useState<Checked | null>()
  const [isDone, setDone] = useState(false)
  useUnsaved('The new tool', !isDone && (checked !== undefined || name + description !== ''))
  const create = useCreation({ name, description }, checked?.json, () => setDone(true))
  const wait =
    name.trim() === '' ? 'It needs a name.' : checked?.json ? '' : 'It can be made once the definition has no faults.'
  if (!rights.makesTools)
    return <View title="New tool" loaded={{ problem: 'This token may not make tools', again() {} }} />
  return (
    <View up={['#/tools', 'Tools']} title="New tool" loaded={{ data: true, again() {} }}>
      <div class="two form">
        <div>
          <Field label="Name" value={name} onChange={setName} />
        </div>
        <div>
          <Field label="Description" value={description} onChange={setDescription} />
        </div>
      </div>
      <Definition text="" isChecked onChange={setChecked} />
      <section class="savebar" aria-label="New tool">
        <p>{wait}</p>
        <Problem problem={create.problem} />
        <Button label="Create the tool" class="main" disabled={wait !== '' || create.isBusy} onClick={create.act} />
      </section>
    </View>
  )
}
