import type { ComponentChildren } from 'preact'
import { useRef, useState } from 'preact/hooks'
import { tagsOf } from './list.js'
import { Button, Field, Review, useLists, useLoad, useUnsaved, View } from './parts.js'
import { History, readHistory } from './past.js'
import {
  type Answer,
  ask,
  KINDS,
  leaveTo,
  newKey,
  parsed,
  type Rights,
  type Row,
  unless,
  type View as Views,
} from './service.js'
import { titled } from './texts.js'

type Fields = Record<string, unknown>

interface RecordProps<T> {
  view: Views
  id: number
  rights: Rights
  /** The initial values of a new record, which has no id. */
  fresh?: T
  /** Called when edits were stored or discarded. */
  reset?(): unknown
}

/** A stored record with its history, and the user's edits. */
export function useRecord<T extends Row>({ view, id, rights, fresh, reset }: RecordProps<T>) {
  const [edits, setEdits] = useState<Partial<T>>({})
  const [resets, setResets] = useState(0)
  const [done, setDone] = useState('')
  const [saving, setSaving] = useState<'Save' | 'Propose'>()
  const stored = useRef<string>()
  const discard = () => {
    reset?.()
    setEdits({})
    setResets(resets + 1)
  }
  const loaded = useLoad(async signal => {
    if (!id && fresh)
      return { past: undefined, now: { data: fresh, etag: '', version: 0, warnings: [], next: undefined } }
    const past = await unless(readHistory(view, id, signal), 403, 404) // callers without the right to edit cannot read it
    const read = ask<T>('GET', `${KINDS[view].path}/${id}`, { signal, isExact: true })
    const now = await (past ? unless(read, 404) : read)
    if (stored.current) {
      discard()
      setSaving(undefined)
      setDone(stored.current)
    }
    stored.current = undefined
    return { past, now }
  })
  const { past, now } = loaded.data ?? {}
  const record = now?.data
  const isOurs = record !== undefined && !record.builtin_persona && !record.in_code_tool_id && !record.mcp_server_id
  const mayEdit = rights.writes && isOurs && past !== undefined
  const mayPropose = rights.proposes && isOurs && id > 0 && (view === 'agents' || rights.manages)
  const isEditable = mayEdit || mayPropose || (view === 'tools' && isOurs && rights.makesTools)
  const isOther = ([name, value]: [string, unknown]) =>
    JSON.stringify(value) !== JSON.stringify(record?.[name as keyof T] ?? '')
  /** Returns the function that a control calls with the new value of a field; undefined if the field is read-only. */
  const typed = <K extends keyof T>(name: K, may = isEditable) => {
    if (!may) return undefined
    return (value: T[K]) => {
      setDone('')
      setEdits(before => ({ ...before, [name]: value }))
    }
  }
  /** Reads the stored state again, and keeps the service's warnings. */
  const saved = (text: string) => {
    stored.current = text
    loaded.again()
  }
  return {
    ...{ view, id, rights, loaded, past, now, record, mayEdit, mayPropose, isEditable },
    ...{ typed, discard, saved, done, setDone, saving, setSaving },
    /** Changes whenever editors must start again from the stored values. */
    turn: `${resets} ${now?.etag}`,
    shown: { ...record, ...edits } as T,
    changed: (record ? Object.fromEntries(Object.entries(edits).filter(isOther)) : {}) as Partial<T>,
  }
}

interface FrameProps {
  of: Omit<ReturnType<typeof useRecord<Row>>, 'typed' | 'changed' | 'shown'> & { shown: object }
  /** The changed fields, with their names in the request. */
  body: Fields
  /** A changed definition as JSON; null while it has faults or is being checked. */
  definition?: string | null | undefined
  /** The effect of the change on others, shown before it is stored. */
  effect?: ComponentChildren
  /** True if the change has secrets, which a proposal cannot have. */
  isSecret?: boolean
  /** What else to say about the unsaved changes. */
  note?: string | undefined
  /** An additional way to save. */
  other?: ComponentChildren
  children: ComponentChildren
}

/** The frame of a record: its history, the unsaved edits, and the buttons to save or propose them. */
export function Frame({ of, body, definition, effect, isSecret, note, other, children }: FrameProps) {
  const { view, id, rights, saving, setSaving, loaded, past, now, record, mayEdit, mayPropose } = of
  const names = [...Object.keys(body), ...(definition === undefined ? [] : ['definition'])]
  useUnsaved(`What you changed of ${record?.name ?? 'this'}`, names.length > 0)
  const others = `Somebody who manages it can change it.${mayPropose ? ' You can propose changes.' : ''}`
  const isTool = view === 'tools'
  const isDeleted = loaded.data !== undefined && !now
  const list = useLists(
    isTool ? now !== undefined && id > 0 : isDeleted,
    isTool ? ['tool'] : ['persona', { deleted: 'true' }],
  )
  const listed = list.data?.[0]?.find(row => row.id === id) // a tool's owner and a deleted agent's name are only in lists
  const owner = isTool ? listed?.owner : record?.owner
  const ownerText = isTool && !list.data?.[0] ? '' : `, owner: ${owner?.email ?? 'nobody'}`
  const facts = `${KINDS[view].noun} ${id}, version ${now?.version}${ownerText}.`
  const stored = now
    ? `${of.done} ${facts} ${mayEdit ? '' : others}`
    : 'It is deleted. Restore a version to bring it back.'
  const button = (label: 'Save' | 'Propose') => ({ disabled: definition === null, onClick: () => setSaving(label) })
  return (
    <View
      title={record?.name || listed?.name || (id ? `${KINDS[view].noun} ${id}` : 'New tool')}
      tags={record && tagsOf(record)}
      {...{ loaded, state: id ? stored : '' }}
    >
      <div class={view === 'agents' ? 'columns' : ''}>
        <div>{record && children}</div>
        {past && (
          <History {...{ view, id }} isDeleted={!now} first={past} restores={rights.writes && (mayEdit || !now)} />
        )}
      </div>
      {names.length > 0 && (
        <section class="savebar" aria-label="Not saved">
          <p>
            Not saved: {names.map(titled).join(', ')}
            {definition === null && '. It can be saved once the definition has no faults.'}
            {isSecret && mayPropose && '. Secrets are set by an update, so this cannot be proposed.'}
            {note && ` ${note}`}
          </p>
          <Button label="Discard" onClick={of.discard} />
          {other}
          {mayPropose && !isSecret && <Button label="Propose" class={mayEdit ? '' : 'main'} {...button('Propose')} />}
          {mayEdit && <Button label="Review and save" class="main" {...button('Save')} />}
        </section>
      )}
      {saving && now && (
        <Save
          key={now.etag}
          {...{ of, now, body, names, definition, effect }}
          label={saving}
          onClose={() => setSaving(undefined)}
        />
      )}
    </View>
  )
}

/** The names of request fields in answers, if different. */
const ANSWERED: Record<string, string> = { tool_ids: 'tools' }

interface SaveProps extends Pick<FrameProps, 'of' | 'body' | 'definition' | 'effect'> {
  now: Answer<object>
  names: string[]
  label: 'Save' | 'Propose'
  onClose(): void
}

/** Shows the effect of a change by a dry run before it is stored. */
function Save({ of, now, body, names, definition, effect, label, onClose }: SaveProps) {
  const [key] = useState(newKey)
  const [message, setMessage] = useState('')
  const { view, id } = of
  const isProposal = label === 'Propose'
  const request = (query: Record<string, string>, headers: Record<string, string>, signal?: AbortSignal) => {
    const all = new URLSearchParams({ ...(view === 'agents' && { update_mask: names.join() }), ...query })
    const options = { text: bodyText(body, definition), headers: { 'if-match': now.etag, ...headers }, signal }
    const path = `${KINDS[view].root}/${id}?${all}`
    return ask<{ id: number }>(view === 'agents' ? 'PATCH' : 'PUT', path, { ...options, isExact: true })
  }
  const answered = names.map(name => ANSWERED[name] ?? name)
  const only = (from: object) => Object.fromEntries(Object.entries(from).filter(([name]) => answered.includes(name)))
  const look = async (signal: AbortSignal) => {
    // A caller who can only propose cannot do a dry run. The answer to the proposal contains the difference.
    const proposed = { ...of.shown, ...(typeof definition === 'string' && { definition: parsed(definition) }) }
    const tried = isProposal ? { data: proposed, warnings: [] } : await request({ dry_run: 'true' }, {}, signal)
    return { before: only(now.data), after: only(tried.data), warnings: tried.warnings }
  }
  const send = async () => {
    const query: Record<string, string> = isProposal ? { propose: 'true', message } : {}
    const { warnings, data } = await request(query, { 'idempotency-key': key })
    if (isProposal) leaveTo(`#/proposals/${data.id}`)
    else of.saved(['Saved.', ...warnings].join(' '))
  }
  return (
    <Review title={`${label} these changes?`} {...{ label, look, send, onClose, effect }} onStale={of.loaded.again}>
      {isProposal && <Field label="Message to those who decide" rows={2} value={message} onChange={setMessage} />}
    </Review>
  )
}

/** A request body with a definition as JSON text, which keeps the form of its numbers. */
export function bodyText(body: Fields, definition: string | null | undefined): string {
  const rest = JSON.stringify(body)
  return typeof definition === 'string'
    ? `{"definition":${definition}${rest === '{}' ? '' : ','}${rest.slice(1)}`
    : rest
}
