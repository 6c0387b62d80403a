import { useMemo, useRef, useState } from 'preact/hooks'
import { type Checked, Definition } from './definition.js'
import { Agents } from './functions.js'
import { Button, Check, Field, Note, type Pair, Pairs, Problem, Review, useAction } from './parts.js'
import { bodyText, Frame, useRecord } from './record.js'
import { ask, leaveTo, newKey, parsed, type Rights, type Row } from './service.js'

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
  const send = async () => {
    const headers = { 'idempotency-key': key }
    const { data } = await ask<{ id: number }>('POST', 'admin/tool/custom', { text, headers })
    leaveTo(`#/tools/${data.id}`)
  }
  return { send, ...useAction(send) }
}

/** A tool: its fields, headers, definition and functions, and the agents that use it. Without an id, it is a new one. */
export function Tool({ id, rights }: { id: number; rights: Rights }) {
  const [checked, setChecked] = useState<Checked | null>(null)
  const typedText = useRef<() => string>() // keeps the typed text while a change of another user is loaded
  const reset = () => Object.assign(typedText, { current: undefined })
  const of = useRecord<ToolRecord>({ view: 'tools', id, rights, fresh: NEW, reset })
  const { record, shown, typed, changed, isEditable, mayEdit } = of
  const stored = useMemo(() => (record?.definition ? JSON.stringify(record.definition, null, 2) : ''), [record])
  const text = useMemo(() => typedText.current?.() ?? stored, [of.turn, stored])
  const isTyped = typedText.current && checked?.text !== stored
  const definition = isTyped ? (checked?.json ?? null) : undefined
  const made = definition === undefined ? stored : definition
  const { name, description, passthrough_auth } = shown
  const kept = (record?.custom_headers ?? []).map(({ value }) => value) // a mask is not a value
  const custom_headers = shown.custom_headers?.filter(({ value }) => !kept.includes(value))
  const uncopied = record?.custom_headers?.filter(({ key }) => !custom_headers?.some(each => each.key === key)) ?? []
  const [copyName, setCopyName] = useState<string>()
  const copy = useCreation({ name: copyName ?? name, description, passthrough_auth, custom_headers }, made)
  const onChange = (found: Checked | null, read?: () => string) => {
    setChecked(found)
    if (read) of.setDone('')
    typedText.current = read ?? typedText.current
  }
  const effect = isTyped && checked?.impact && <Agents impact={checked.impact} />
  const isYaml = isTyped && !/^\s*([{[]|$)/.test(checked?.text ?? '')
  const note = isYaml ? 'YAML is stored as JSON: comments are not kept.' : undefined
  const disabled = !made || copy.isBusy
  const review = () => setCopyName(name === record?.name ? `${name} (copy)` : name)
  const label = id ? 'Save as a new tool' : 'Create the tool'
  const other = [
    copyName === undefined && <Problem problem={copy.problem} />,
    rights.makesTools && <Button {...{ label, disabled, class: id ? '' : 'main', onClick: id ? review : copy.act }} />,
  ]
  const look = async () => ({
    before: { ...record },
    after: { ...record, description, passthrough_auth, definition: made && parsed(made) },
    warnings: [
      `This makes a second tool with your changes. ${record?.name} stays as it is.`,
      ...uncopied.map(({ key }) => `The value of ${key} is not copied: set it at the new tool.`),
    ],
  })
  return (
    <Frame {...{ of, body: changed, definition, other, effect, note }} isSecret={(custom_headers?.length ?? 0) > 0}>
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
            isFixed={!mayEdit && !rights.makesTools}
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
      {copyName !== undefined && (
        <Review
          title="Save as a new tool?"
          label="Create the tool"
          onClose={() => setCopyName(undefined)}
          {...{ look, send: copy.send }}
        >
          <Field label="Name of the new tool" value={copyName} onChange={setCopyName} />
        </Review>
      )}
    </Frame>
  )
}
