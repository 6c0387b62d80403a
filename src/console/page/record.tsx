import { useState } from 'preact/hooks'
import { Button, Dialog, Differences, Field, Lines, Note, Problem, useAction, useLoad, useUnsaved } from './parts.js'
import { readHistory } from './past.js'
import { type Answer, ask, KINDS, leaveTo, newKey, Refusal, unless, type View } from './service.js'
import { differencesOf, titled } from './texts.js'

type Fields = Record<string, unknown>
/** How a change is stored: at once, or after somebody else has approved it. */
type Saving = 'save' | 'propose' | undefined

/** A stored record with its history, and what somebody changes of it. */
export function useRecord<T extends { name: string }>(view: View, id: number) {
  const [edits, setEdits] = useState<Partial<T>>({})
  const [saving, setSaving] = useState<Saving>()
  const [done, setDone] = useState('')
  const loaded = useLoad(async signal => {
    const past = await unless(readHistory(view, id, signal), 403, 404)
    const read = ask<T>('GET', `${KINDS[view].path}/${id}`, { signal, isExact: true })
    return { past, now: await (past ? unless(read, 404) : read) }
  })
  const { past, now } = loaded.data ?? {}
  const record = now?.data
  const isOther = ([name, value]: [string, unknown]) =>
    JSON.stringify(value) !== JSON.stringify(record?.[name as keyof T] ?? '')
  const put = (part: Partial<T>) => {
    setDone('')
    setEdits(before => ({ ...before, ...part }))
  }
  return {
    ...{ view, id, loaded, past, now, record, put, setEdits, saving, setSaving, done, setDone },
    shown: { ...record, ...edits } as T,
    edits,
    changed: record ? (Object.fromEntries(Object.entries(edits).filter(isOther)) as Partial<T>) : ({} as Partial<T>),
  }
}

interface SavingProps {
  of: Omit<ReturnType<typeof useRecord>, 'put' | 'setEdits' | 'edits' | 'changed'>
  /** The fields of the request that change, by what requests call them. */
  body: Fields
  /** A changed definition as JSON; null while it has faults or is not checked yet. */
  definition?: string | null | undefined
  mayEdit: boolean
  mayPropose: boolean
  onDiscard(): void
  children?: preact.ComponentChildren
}

/** What is not saved yet, as long as there is something, with the way to save it. */
export function Saving({ of, body, definition, mayEdit, mayPropose, onDiscard, children }: SavingProps) {
  const names = [...Object.keys(body), ...(definition === undefined ? [] : ['definition'])]
  useUnsaved(`What you changed of ${of.record?.name ?? 'this'}`, names.length > 0)
  if (names.length === 0) return null
  const wait = definition === null ? '. It can be saved once the definition has no faults.' : ''
  return (
    <section class="savebar" aria-label="Not saved">
      <p>
        Not saved: {names.map(titled).join(', ')}
        {wait}
      </p>
      <Button label="Discard" onClick={onDiscard} />
      {children}
      {mayPropose && (
        <Button
          label="Propose"
          class={mayEdit ? '' : 'main'}
          disabled={!!wait}
          onClick={() => of.setSaving('propose')}
        />
      )}
      {mayEdit && (
        <Button class="main" label="Review and save" disabled={!!wait} onClick={() => of.setSaving('save')} />
      )}
      {of.saving && of.now && <Save key={of.now.etag} {...{ of, now: of.now, body, names, definition, onDiscard }} />}
    </section>
  )
}

/** What answers call a field of a request. */
const ANSWERED: Record<string, string> = { tool_ids: 'tools' }

type SaveProps = Pick<SavingProps, 'of' | 'body' | 'definition' | 'onDiscard'> & {
  now: Answer<object>
  names: string[]
}

/** Shows what a change makes of what is stored, by a dry run of the service, before it is stored. */
function Save({ of, now, body, names, definition, onDiscard }: SaveProps) {
  const [key] = useState(newKey)
  const [message, setMessage] = useState('')
  const { view, id, loaded, saving } = of
  const isProposal = saving === 'propose'
  const send = (isDry: boolean, signal?: AbortSignal) => {
    const query = new URLSearchParams({
      ...(view === 'agents' && { update_mask: names.join() }),
      ...(isDry && { dry_run: 'true' }),
      ...(isProposal && { propose: 'true', message }),
    })
    const headers = { 'if-match': now.etag, ...(!isDry && { 'idempotency-key': key }) }
    const options = { text: bodyText(body, definition), headers, signal, isExact: true }
    return ask<{ id: number }>(view === 'agents' ? 'PATCH' : 'PUT', `${KINDS[view].root}/${id}?${query}`, options)
  }
  const tried = useLoad(async signal => (isProposal ? undefined : await send(true, signal)))
  const save = useAction(async () => {
    const { warnings, data } = await send(false)
    of.setSaving(undefined)
    onDiscard()
    if (isProposal) return leaveTo(`#/proposals/${data.id}`)
    of.setDone(['Saved.', ...warnings].join(' '))
    loaded.again()
  })
  // Who only proposes has no dry run: the service answers the difference with the proposal.
  const proposed = { ...of.shown, ...(typeof definition === 'string' && { definition: JSON.parse(definition) }) }
  const after = isProposal ? proposed : tried.data?.data
  const answered = names.map(name => ANSWERED[name] ?? name)
  const only = (from: object) => Object.fromEntries(Object.entries(from).filter(([name]) => answered.includes(name)))
  const problem = save.problem ?? tried.problem
  const isStale = problem instanceof Refusal && problem.status === 412
  const again = isStale ? loaded.again : save.problem ? save.act : tried.again
  return (
    <Dialog
      title={isProposal ? 'Propose these changes?' : 'Save these changes?'}
      onClose={() => of.setSaving(undefined)}
    >
      {!after && !problem && <Note text="Loading." />}
      {after && <Differences list={differencesOf(only(now.data), only(after))} />}
      {isProposal && <Field label="Message to those who decide" rows={2} value={message} onChange={setMessage} />}
      <Lines lines={tried.data?.warnings ?? []} />
      <Problem {...{ problem, again }} />
      <form method="dialog" class="bar end">
        <Button label="Go on editing" />
        <Button
          class="main"
          label={isProposal ? 'Propose' : 'Save'}
          disabled={!after || save.isBusy || isStale}
          onClick={save.act}
        />
      </form>
    </Dialog>
  )
}

/** A request body with a definition that is JSON text already, so that its numbers stay as they are written. */
export function bodyText(body: Fields, definition: string | null | undefined): string {
  const rest = JSON.stringify(body)
  return typeof definition === 'string'
    ? `{"definition":${definition}${rest === '{}' ? '}' : `,${rest.slice(1)}`}`
    : rest
}
