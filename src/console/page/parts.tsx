import { type ComponentChildren, type ComponentProps, h } from 'preact'
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { EVENTS, isAway, type ListName, Refusal, type Row, readAll, unsaved } from './service.js'
import { type Difference, dated, differencesOf, type Run, titled, visible } from './texts.js'

export interface Loaded<T> {
  data?: T
  problem?: unknown
  again(): void
  /** True if the page repeats the request automatically while the service is unavailable. */
  repeats: boolean
}

export function useLoad<T>(load: (signal: AbortSignal) => Promise<T>, ...names: unknown[]): Loaded<T> {
  const [state, setState] = useState<{ data?: T; problem?: unknown }>({})
  const [turn, setTurn] = useState({})
  const again = useCallback(() => setTurn({}), [])
  useEffect(() => {
    const leaving = new AbortController()
    const { signal } = leaving
    const failed = (problem: unknown) => {
      if (signal.aborted) return
      if (isAway(problem)) setTimeout(() => signal.aborted || again(), 1_000 * Math.max(3, problem.retryS))
      addEventListener(EVENTS.signedIn, again, { signal })
      setState(({ data }) => ({ data, problem }))
    }
    load(signal).then(data => signal.aborted || setState({ data }), failed)
    return () => leaving.abort()
  }, [turn, ...names])
  return { ...state, again, repeats: true }
}

export const useLists = (isWanted: boolean, ...lists: ListName[]): Row[][] =>
  useLoad(signal => Promise.all(isWanted ? lists.map(list => readAll(list, signal)) : []), isWanted).data ?? []

/** `act` runs `work`. Meanwhile, `isBusy` is true. `problem` is the error. If the view is still open, a function that `work` returned is called. */
export function useAction<T extends unknown[]>(work: (...given: T) => Promise<unknown>) {
  const [state, setState] = useState<{ isBusy?: boolean; problem?: unknown }>({})
  const isHere = useRef(true)
  useEffect(() => () => Object.assign(isHere, { current: false }), [])
  const forget = (next?: unknown) => {
    setState({})
    if (isHere.current && typeof next === 'function') next()
  }
  const act = (...given: T) => {
    setState({ isBusy: true })
    work(...given).then(forget, problem => setState({ problem }))
  }
  return { ...state, act, forget }
}

/** Explains a failure and offers a next step. `problem` is a `Refusal`, a message, or an error in the page itself. */
export function Problem({ problem, again, repeats }: Partial<Loaded<unknown>>) {
  if (!problem) return null
  const refusal = problem instanceof Refusal ? problem : undefined
  const isOurs = problem instanceof Error && !refusal
  const isStale = refusal?.status === 412
  const said = isStale ? 'Somebody has changed this since you opened it' : (refusal?.message ?? problem)
  const wait = refusal?.retryS ? `Wait ${refusal.retryS} s, then try again.` : ''
  const lines = [
    repeats && isAway(refusal) ? 'This page tries again automatically.' : isOurs ? String(problem) : wait,
    isStale ? 'What you typed is kept.' : '',
    ...(refusal?.faults ?? []).map(({ loc, msg }) => `${titled(loc.slice(1).join('.'))}: ${msg}`),
    ...(refusal?.body.changed ?? []).map(({ by, field, at }) => `${dated(at)}: ${by} changed ${titled(field)}`),
  ]
  return (
    <div class="problem" role="alert">
      <h2>{visible(isOurs ? 'An error occurred in this page' : said)}</h2>
      <Lines lines={lines.filter(text => text !== '')} />
      {again && refusal?.reason !== 'ended' && <Button label={isStale ? 'Reload' : 'Try again'} onClick={again} />}
    </div>
  )
}

export const Button = ({ label, ...rest }: ComponentProps<'button'> & { label: string }) => (
  <button type={rest.onClick ? 'button' : 'submit'} {...rest}>
    {label}
  </button>
)

const Cross = ({ name, onClick }: { name: string; onClick(): void }) => (
  <Button class="cross" label="×" aria-label={visible(`Remove ${name}`)} onClick={onClick} />
)

type FieldProps = Omit<ComponentProps<'input'>, 'onChange' | 'label'> & {
  label: string
  onChange?: ((value: string) => void) | undefined
  rows?: number | undefined
}

export function Field({ label, onChange, rows, ...rest }: FieldProps) {
  const onInput = ({ currentTarget }: { currentTarget: { value: string } }) => onChange?.(currentTarget.value)
  const Tag = (rows ? 'textarea' : 'input') as 'input'
  return (
    // biome-ignore lint/a11y/noLabelWithoutControl: the label contains its control
    <label>
      <span>{visible(label)}</span>
      <Tag autocomplete="off" readOnly={!onChange} {...{ onInput, rows, ...rest }} />
    </label>
  )
}

/** Returns a search field, and a function `isFound` that returns true if a text contains all words in the field. */
export function useSearch(placeholder: string) {
  const [value, onChange] = useState('')
  const words = value.toLowerCase().split(/\s+/)
  const isFound = (text: string) => words.every(word => text.toLowerCase().includes(word))
  return { isFound, field: <Field label="Search" type="search" {...{ placeholder, value, onChange }} /> }
}

type CheckProps = { label: string; checked: boolean; onChange?: ((checked: boolean) => void) | undefined }
export const Check = ({ label, checked, onChange }: CheckProps) => (
  <label class="check">
    <input type="checkbox" {...{ checked, disabled: !onChange }} onChange={e => onChange?.(e.currentTarget.checked)} />
    {label}
  </label>
)

export const Note = ({ text }: { text: string }) => <p class="note">{visible(text)}</p>
export const Tags = ({ names }: { names: string[] }) => names.map(name => <span class="tag">{name}</span>)
export const Lines = ({ lines, ...rest }: { lines: string[]; class?: string }) =>
  lines.length > 0 && <ul {...rest}>{lines.map(text => h('li', {}, visible(text)))}</ul>

interface ChipsProps<T> {
  noun: string
  rows: T[]
  textOf(row: T): string
  linkOf?(row: T): { href: string; target?: string | undefined }
  others?: T[]
  onChange?: ((rows: T[]) => void) | undefined
}

export function Chips<T extends { id: unknown }>({ noun, rows, textOf, linkOf, others = [], onChange }: ChipsProps<T>) {
  const free = others.filter(({ id }) => !rows.some(row => row.id === id))
  const add = (event: { currentTarget: HTMLSelectElement }) =>
    onChange?.([...rows, ...free.slice(event.currentTarget.selectedIndex - 1).slice(0, 1)])
  return (
    <div class="chips">
      {rows.map((row, i) => (
        <span key={row.id}>
          <a {...linkOf?.(row)}>{visible(textOf(row))}</a>
          {onChange && <Cross name={textOf(row)} onClick={() => onChange(rows.toSpliced(i, 1))} />}
        </span>
      ))}
      {onChange && free.length > 0 && (
        <select aria-label={`Add a ${noun}`} value="" onChange={add}>
          {h('option', { value: '' }, `Add a ${noun}`)}
          {free.map(row => h('option', {}, visible(textOf(row))))}
        </select>
      )}
    </div>
  )
}

export type Pair = Record<string, string>
interface PairsProps {
  noun: string
  members: [string, string]
  rows: Pair[]
  /** The stored pairs. Set only if their values are secret. */
  stored?: Pair[]
  lines?: number
  onChange?: ((rows: Pair[]) => void) | undefined
}

export function Pairs({ noun, members: [k, v], rows, stored, lines, onChange }: PairsProps) {
  const rowOf = ({ [k]: name = '', [v]: value = '' }: Pair, i: number) => {
    const kept = stored?.find(each => each[k] === name)?.[v]
    const put = (row: Pair) => onChange?.(rows.with(i, row))
    const named = onChange && kept === undefined ? (text: string) => put({ [k]: text, [v]: value }) : undefined
    const valued = onChange && ((text: string) => put({ [k]: name, [v]: text || kept || '' }))
    const secret = stored && { class: 'secret', placeholder: kept && 'stored; type to replace it' }
    const field = { ...secret, rows: lines, value: kept === value ? '' : value, onChange: valued }
    return (
      <div class="pair">
        <Field label={`Name of ${noun} ${i + 1}`} value={name} onChange={named} />
        <Field label={`${titled(v)} of ${name || noun}`} {...field} />
        {onChange && <Cross name={name || noun} onClick={() => onChange(rows.toSpliced(i, 1))} />}
      </div>
    )
  }
  const add = ({ currentTarget }: { currentTarget: HTMLElement }) => {
    onChange?.([...rows, { [k]: '', [v]: '' }])
    requestAnimationFrame(() => currentTarget.previousElementSibling?.querySelector('input')?.focus())
  }
  return (
    <fieldset>
      <legend>{titled(noun)}s</legend>
      {rows.map(rowOf)}
      {onChange && <Button label={`Add a ${noun}`} onClick={add} />}
    </fieldset>
  )
}

const AROUND = 300

function Part({ as: Tag, text, isFirst, isLast }: Run & { isFirst: boolean; isLast: boolean }) {
  if (Tag !== 'span' || text.length < 3 * AROUND) return <Tag>{visible(text)}</Tag>
  const [start, end] = [isFirst ? 0 : AROUND, text.length - (isLast ? 0 : AROUND)]
  return (
    <>
      {visible(text.slice(0, start))}
      <details>
        <summary>{(end - start).toLocaleString('en')} unchanged characters</summary>
        {visible(text.slice(start, end))}
      </details>
      {visible(text.slice(end))}
    </>
  )
}

export function Differences({ list }: { list: Difference[] }) {
  if (list.length === 0) return <Note text="There are no differences." />
  return list.map(({ title, runs }) => (
    <section key={title} class="difference">
      <h2>{visible(title)}</h2>
      <pre dir="auto">
        {runs.map((run, i) => (
          <Part {...run} isFirst={i === 0} isLast={i === runs.length - 1} />
        ))}
      </pre>
    </section>
  ))
}

let opener: HTMLElement | undefined

/** A dialog. When it closes, the focus returns to the element that opened it or, if this is gone, to the last opener outside dialogs. */
export function Dialog({ title, ...rest }: { title: string; onClose: () => void; children: ComponentChildren }) {
  const place = useRef<HTMLDialogElement>(null)
  useLayoutEffect(() => {
    const before = document.activeElement as HTMLElement
    if (before !== document.body && !before.closest('dialog')) opener = before
    place.current?.showModal()
    const giveBack = () => document.activeElement === document.body && (before.isConnected ? before : opener)?.focus()
    return () => void setTimeout(giveBack)
  }, [])
  return (
    <dialog ref={place} aria-label={title} onClose={rest.onClose}>
      <h2>{title}</h2>
      {rest.children}
    </dialog>
  )
}

export function Review(props: {
  title: string
  label: string
  look(signal: AbortSignal): Promise<{ before: object; after: object; warnings: string[] }>
  send(): Promise<unknown>
  onStale?(): void
  onClose(): void
  children?: ComponentChildren
}) {
  const looked = useLoad(props.look)
  const sent = useAction(props.send)
  const { data } = looked
  const problem = sent.problem ?? looked.problem
  const isStale = problem instanceof Refusal && problem.status === 412
  const again = () => {
    sent.forget()
    const next = isStale ? (props.onStale ?? looked.again) : sent.problem ? sent.act : looked.again
    next()
  }
  return (
    <Dialog title={props.title} onClose={props.onClose}>
      {!data && !problem && <Note text="Loading." />}
      <Lines class="warnings" lines={data?.warnings ?? []} />
      {props.children}
      {data && <Differences list={differencesOf(data.before, data.after)} />}
      <Problem {...{ problem, again }} />
      <form method="dialog" class="bar">
        <Button label="Close" />
        <Button class="main" label={props.label} disabled={!data || sent.isBusy || isStale} onClick={sent.act} />
      </form>
    </Dialog>
  )
}

export function useUnsaved(what: string, is: boolean, read: () => string) {
  useLayoutEffect(() => {
    if (is) unsaved.set(what, read)
    return () => void unsaved.delete(what)
  })
}

interface ViewProps {
  title: string
  tags?: string[]
  state?: string | undefined
  loaded?: Loaded<unknown>
  children?: ComponentChildren
}

/** A view. When it opens, its title gets the focus, so that screen readers announce the view. */
export function View({ title, tags = [], state, loaded, children }: ViewProps) {
  const heading = useRef<HTMLHeadingElement>(null)
  document.title = `${visible(title)} - Agents and tools`
  useEffect(() => {
    heading.current?.focus({ preventScroll: true })
    scrollTo(0, 0)
  }, [])
  return (
    <>
      <h1 ref={heading} tabIndex={-1}>
        {visible(title)} <Tags names={tags} />
      </h1>
      <p class="note" role="status" id="state">
        {loaded && !loaded.data && !loaded.problem ? 'Loading.' : visible(state)}
      </p>
      <Problem {...loaded} />
      {children}
    </>
  )
}
