import { useMemo, useRef, useState } from 'preact/hooks'
import { type Checked, Definition } from './definition.js'
import { Button, Check, Field, Note, type Pair, Pairs, Problem, useAction } from './parts.js'
import { bodyText, Frame, useRecord } from './record.js'
import { ask, leaveTo, newKey, type Rights, type Row } from './service.js'

interface ToolRecord extends Row {
  definition: object | null
  custom_headers: Pair[] | null
  passthrough_auth: boolean
  oauth_config_name: string | null
}

const NEW: ToolRecord = {
  ...{ id: 0, name: '', description: '', owner: null, definition: null, custom_headers: [] },
  ...{ passthrough_auth: false, oauth_config_name: null },
}

/** Creates a tool and opens its view. */
function useCreation(fields: object, definition: string | null) {
  const text = bodyText(fields as Record<string, unknown>, definition)
  const key = useMemo(newKey, [text])
  return useAction(async () => {
    const headers = { 'idempotency-key': key }
    const { data } = await ask<{ id: number }>('POST', 'admin/tool/custom', { text, headers })
    leaveTo(`#/tools/${data.id}`)
  })
}

/** A tool: its fields, headers, definition and functions, and the agents that use it. Without an id, it is a new one. */
export function Tool({ id, rights }: { id: number; rights: Rights }) {
  const [checked, setChecked] = useState<Checked | null>(null)
  const typedText = useRef<() => string>() // keeps the typed text while a change of another user is loaded
  const reset = () => Object.assign(typedText, { current: undefined })
  const of = useRecord<ToolRecord>({ view: 'tools', id, rights, fresh: NEW, reset })
  const { record, shown, typed, changed, isEditable } = of
  const stored = useMemo(() => (record?.definition ? JSON.stringify(record.definition, null, 2) : ''), [record])
  const text = useMemo(() => typedText.current?.() ?? stored, [of.turn, stored])
  const isTyped = typedText.current && checked?.text !== stored
  const definition = isTyped ? (checked?.json ?? null) : undefined
  const { name, description, passthrough_auth } = shown
  const custom_headers = shown.custom_headers?.filter(each => !record?.custom_headers?.includes(each)) // a mask is not a value
  const made = definition === undefined ? stored : definition
  const copy = useCreation({ name, description, passthrough_auth, custom_headers }, made)
  const onChange = (found: Checked | null, read?: () => string) => {
    setChecked(found)
    if (read) of.setDone('')
    typedText.current = read ?? typedText.current
  }
  const disabled = !made || copy.isBusy
  const label = id ? 'Save as a new tool' : 'Create the tool'
  const other = [
    <Problem problem={copy.problem} />,
    rights.makesTools && <Button {...{ label, disabled, class: id ? '' : 'main', onClick: copy.act }} />,
  ]
  return (
    <Frame {...{ of, body: changed, definition, other }}>
      <div class="two">
        <div>
          <Field label="Name" value={name} onChange={typed('name')} />
          <Field label="Description" rows={3} value={description} onChange={typed('description')} />
          <Check
            label="Sends the sign-in of its user along"
            checked={passthrough_auth}
            onChange={typed('passthrough_auth')}
          />
        </div>
        {record?.custom_headers && (
          <Pairs
            title="Headers"
            noun="header"
            members={['key', 'value']}
            stored={record.custom_headers}
            rows={shown.custom_headers ?? []}
            onChange={typed('custom_headers')}
          />
        )}
        {record?.oauth_config_name && <Note text={`OAuth: ${record.oauth_config_name}`} />}
      </div>
      {(record?.definition || !id) && (
        <Definition
          key={of.turn}
          {...{ text, toolId: id || undefined, isChecked: isEditable, onChange: isEditable ? onChange : undefined }}
        />
      )}
    </Frame>
  )
}
