import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import { tagsOf } from './list.js'
import { parsed } from './numbers.js'
import { Button, Field, Review, useLoad, useUnsaved, View } from './parts.js'
import { History, readHistory } from './past.js'
import { ask, KINDS, type Kind, leaveTo, mayDrop, newKey, outcome, type Rights, type Row, unless } from './service.js'
import { outline, titled } from './texts.js'

/** Loads a stored record and its history, and keeps the user's edits. A new record has the id 0 and the values of `fresh`. */
export function useRecord<T extends Row>(view: Kind, id: number, rights: Rights, fresh: T) {
  const [edits, setEdits] = useState<Partial<T>>(outcome.address === location.hash ? outcome.edits : {})
  const loaded = useLoad(async signal => {
    if (id === 0) return { past: undefined, now: { data: fresh, etag: '', version: 0 } }
    const past = await unless(readHistory(view, id, signal), 403, 404) // callers without the right to edit cannot read the history
    const read = ask<T>('GET', `${KINDS[view].path}/${id}`, { signal })
    return { past, now: await (past ? unless(read, 404) : read) }
  })
  const { past, now } = loaded.data ?? {}
  const record = now?.data
  const isOurs = record !== undefined && !record.builtin_persona && !record.in_code_tool_id && !record.mcp_server_id
  const mayEdit = rights.writes && isOurs && past !== undefined
  const mayPropose = rights.proposes && isOurs && id > 0 && (view === 'agents' || rights.manages)
  const mayCreate = isOurs && rights.makes[view] && (view === 'tools' || id === 0)
  const isEditable = mayEdit || mayPropose || mayCreate
  const isOther = ([name, value]: [string, unknown]) =>
    name !== 'definition' && JSON.stringify(value) !== JSON.stringify(record?.[name as keyof T] ?? '')
  const changedOf = (all: Partial<T>) => Object.fromEntries(Object.entries(all).filter(isOther)) as Partial<T>
  /** Returns the function that a control calls with the new value of a field; undefined if the field is read-only. */
  const typed = <K extends keyof T>(name: K, may = isEditable) =>
    may ? (value: T[K]) => setEdits(before => changedOf({ ...before, [name]: value })) : undefined
  return {
    ...{ view, id, rights, loaded, past, now, record, mayEdit, mayPropose, mayCreate, isEditable, typed },
    shown: { ...record, ...edits } as T,
    changed: record ? changedOf(edits) : {},
  }
}

interface FrameProps {
  of: Omit<ReturnType<typeof useRecord<Row>>, 'typed' | 'changed' | 'shown'> & { shown: object }
  body: object
  created: object
  /** The changed definition as JSON. Null if it is still being checked or has faults. */
  definition?: string | null | undefined
  typedText?: (() => string) | undefined
  effect?: ComponentChildren
  /** True if the change contains secrets, which a proposal cannot contain. */
  isSecret?: boolean
  note?: string | undefined
  top?: ComponentChildren
  children: ComponentChildren
}

type Way = 'Save' | 'Propose' | 'Create' | 'Delete'

/** The frame of a record: its history, the unsaved edits, and the buttons to save, propose or delete. */
export function Frame(props: FrameProps) {
  const { of, body, definition, typedText, isSecret, note, top, children } = props
  const { view, id, rights, loaded, past, now, record, mayEdit, mayPropose, mayCreate } = of
  const [way, setWay] = useState<Way>()
  const [isDirect, setDirect] = useState(true) // false after the service has refused to save without approval
  const { noun } = KINDS[view]
  const names = [...Object.keys(body), ...(definition === undefined ? [] : ['definition'])]
  const isChanged = names.length > 0
  const { custom_headers: _, ...open }: { custom_headers?: unknown } = body // header values are secret
  const read = () => `${outline(open)}\n${typedText?.() ?? ''}`
  useUnsaved(`Your changes to ${record?.name || `this ${noun.toLowerCase()}`}`, isChanged, read)
  const restores = !isChanged && rights.writes && (mayEdit || (!now && view === 'agents'))
  const isDeleted = loaded.data !== undefined && !now
  const isTool = view === 'tools'
  const isListed = id > 0 && (isTool || isDeleted) // only lists contain a tool's owner and a deleted agent's name
  const page = `${KINDS[view].path}?limit=1&after=${id - 1}${isTool ? '' : '&deleted=true'}`
  const list = useLoad(async signal => isListed && (await ask<Row[]>('GET', page, { signal })).data, isListed).data
  const [listed] = (list || []).filter(row => row.id === id)
  const name = record?.name || listed?.name || (id ? `${noun} ${id}` : `New ${noun.toLowerCase()}`)
  const owner = (isTool ? listed : record)?.owner?.email ?? 'nobody'
  const facts = [
    isChanged ? '' : outcome.text,
    `${noun} ${id}, version ${now?.version}, owner: ${isTool && !list ? 'loading' : owner}.`,
    mayEdit ? '' : `This token cannot change this record. ${mayPropose ? 'You can propose changes.' : ''}`,
  ]
  const isOwner = isTool || rights.me.permission === 'admin' || record?.owner?.id === rights.me.user.id
  const fresh = rights.makes[view] ? '' : `This token cannot create ${view}.`
  const stored = now ? facts.join(' ') : isDeleted ? 'This agent is deleted. Earlier versions can be restored.' : ''
  const onClose = () => setWay(undefined)
  const onRefused = () => {
    setDirect(false)
    setWay('Propose')
  }
  const button = (way: Way, label: string, isMain: boolean) => (
    <Button {...{ label, class: isMain ? 'main' : '', disabled: definition === null, onClick: () => setWay(way) }} />
  )
  return (
    <View title={name} tags={record && tagsOf(record)} {...{ loaded, state: id ? stored : fresh }}>
      {record && top}
      <div class="columns">
        <div>
          {record && children}
          {mayEdit && isOwner && (
            <Button label={`Delete this ${noun.toLowerCase()}`} onClick={() => setWay('Delete')} />
          )}
        </div>
        {past && <History key={now?.etag} {...{ view, id, name, first: past, restores }} />}
      </div>
      {isChanged && (
        <section class="bar savebar" aria-label="Not saved">
          <p>
            Not saved: {names.map(titled).join(', ')}.
            {definition === null && ' You can save when the definition is checked and has no faults.'}
            {isSecret && mayPropose && ' A proposal cannot contain header values, so these changes cannot be proposed.'}
            {note && ` ${note}`}
          </p>
          <Button label="Discard" onClick={() => mayDrop('Discard?') && leaveTo(location.hash)} />
          {mayCreate && button('Create', id ? 'Save as a new tool' : `Create the ${noun.toLowerCase()}`, !id)}
          {mayPropose && !isSecret && button('Propose', 'Propose', !mayEdit || !isDirect)}
          {mayEdit && isDirect && button('Save', 'Review and save', true)}
        </section>
      )}
      {way && now && <Save key={`${way} ${now.etag}`} {...{ ...props, way, isDirect, onClose, onRefused }} />}
    </View>
  )
}

type SaveProps = FrameProps & { way: Way; isDirect: boolean; onClose(): void; onRefused(): void }

function Save({ of, body, created, definition, effect, way, isDirect, ...props }: SaveProps) {
  const [key] = useState(newKey)
  const [message, setMessage] = useState('')
  const { view, id, record, now } = of
  const { root, update } = KINDS[view]
  const [isNew, isProposal] = [way === 'Create', way === 'Propose']
  const [fields] = useState<object>(() => ({
    ...(isNew ? created : body),
    ...(definition && { definition: parsed(definition) }),
  }))
  const request = (query: Record<string, string>, key?: string, signal?: AbortSignal) => {
    const isUpdate = way === 'Save' || isProposal
    const mask = isUpdate && view === 'agents' && { update_mask: Object.keys(fields).join() }
    const method = isNew ? 'POST' : isUpdate ? update : 'DELETE'
    const path = `${root}${isNew ? '' : `/${id}`}?${new URLSearchParams({ ...mask, ...query })}`
    const headers = { ...(!isNew && { 'if-match': now?.etag ?? '' }), ...(key && { 'idempotency-key': key }) }
    const sent = way === 'Delete' ? {} : { body: fields }
    return ask<{ id: number }>(method, path, { ...sent, headers, signal })
  }
  const shown = way === 'Delete' ? ['name'] : Object.keys(fields).map(name => (name === 'tool_ids' ? 'tools' : name))
  const only = (from: object) => Object.fromEntries(Object.entries(from).filter(([name]) => shown.includes(name)))
  const look = async (signal: AbortSignal) => {
    // Proposals are compared with the record here, because a caller who can only propose cannot do a dry run.
    const proposed = { ...of.shown, ...('definition' in fields && { definition: fields.definition }) }
    const tried = isProposal ? { data: proposed, warnings: [] } : await request({ dry_run: 'true' }, undefined, signal)
    return { before: only({ ...record }), after: only(tried.data), warnings: tried.warnings }
  }
  const send = async () => {
    const { warnings, data } = await request(isProposal ? { propose: 'true', message } : {}, key).catch(refusal => {
      const isProposable = way === 'Save' && of.mayPropose && !props.isSecret
      if (isProposable && refusal.body?.error_code === 'APPROVAL_REQUIRED') props.onRefused()
      throw refusal
    })
    const addresses = { Save: location.hash, Propose: `#/proposals/${data.id}`, Create: `#/${view}/${data.id}` }
    const said = [isNew ? 'Created.' : isProposal ? '' : 'Saved.', ...warnings.map(text => `${text}.`)].join(' ')
    return () => leaveTo(way === 'Delete' ? `#/${view}` : addresses[way], said)
  }
  const title = `${isProposal && !isDirect ? 'This change needs approval. ' : ''}${way} ${isNew ? `a new ${view.slice(0, -1)}` : `${isProposal ? 'a change to ' : ''}${record?.name}`}?`
  return (
    <Review label={way} {...{ title, look, send, onClose: props.onClose }} onStale={of.loaded.again}>
      {effect}
      {isProposal && <Field label="Message to the approvers" rows={2} value={message} onChange={setMessage} />}
    </Review>
  )
}
