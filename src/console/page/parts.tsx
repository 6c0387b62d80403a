import type { ComponentChildren } from 'preact'
import { useCallback, useEffect, useId, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { Refusal, unsaved } from './service.js'
import { type Difference, dated, type Run, titled, visible } from './texts.js'

/* What views are made of. A text of a user passes `visible` before it is shown. */
const TRIES = 10
/** Told to the window when an answer says that the token is not valid any more. */
export const SESSION_ENDED = 'session-ended'

export interface Loaded<T> {
  data?: T
  problem?: unknown
  isTried?: boolean
  again(): void
}

/** What a view loads. What fails while the service is away is tried again by itself. */
export function useLoad<T>(load: (signal: AbortSignal) => Promise<T>, ...names: unknown[]): Loaded<T> {
  const [state, setState] = useState<Omit<Loaded<T>, 'again'>>({})
  const [turn, setTurn] = useState({ tries: 0 })
  useEffect(() => {
    const leaving = new AbortController()
    let timer: ReturnType<typeof setTimeout>
    const failed = (problem: unknown) => {
      if (leaving.signal.aborted) return
      const isTried = problem instanceof Refusal && problem.isAway && turn.tries < TRIES
      const afterS = Math.max(2 + turn.tries, (isTried && problem.retryS) || 0)
      if (isTried) timer = setTimeout(() => setTurn({ tries: turn.tries + 1 }), 1_000 * afterS)
      setState(({ data }) => ({ ...(data && { data }), problem, isTried }))
    }
    load(leaving.signal).then(data => leaving.signal.aborted || setState({ data }), failed)
    return () => {
      leaving.abort()
      clearTimeout(timer)
    }
  }, [turn, ...names])
  return { ...state, again: useCallback(() => setTurn({ tries: 0 }), []) }
}

/** An action of a button: one at a time, with what keeps it from being done. */
export function useAction(work: () => Promise<unknown>) {
  const [state, setState] = useState<{ isBusy?: boolean; problem?: unknown }>({})
  const isBusy = useRef(false)
  const act = async () => {
    if (isBusy.current) return
    isBusy.current = true
    setState({ isBusy: true })
    const problem = await work().then(
      () => undefined,
      problem => problem,
    )
    setState({ problem })
    isBusy.current = false
  }
  return { ...state, act }
}

const SENTENCES: Record<number, string> = {
  403: 'This token does not allow that',
  404: 'It does not exist, or this token does not see it',
  409: 'That does not go together with what is stored',
  410: 'That is no longer kept',
  412: 'It was changed since you looked',
  413: 'That is larger than the service takes',
  422: 'The service does not take this',
  429: 'This token has asked too often',
  503: 'The service is busy, or it is being restarted',
}

function titleOf(problem: unknown): string {
  if (typeof problem === 'string') return problem
  if (!(problem instanceof Refusal)) return 'This page has a fault of its own'
  const { kind, status } = problem
  if (kind === 'lost') return 'No connection to the service'
  if (kind === 'front') return `A server in front of the service answered ${status}. The service did not`
  if (kind === 'ended') return 'This token is not valid, or not any more'
  return SENTENCES[status] ?? `The service answers ${status}`
}

/** Why something cannot be done, and a way on: a refusal, a sentence, or a fault of the page itself. */
export function Problem({ problem, isTried, again }: Partial<Loaded<unknown>>) {
  const refusal = problem instanceof Refusal ? problem : undefined
  const isEnded = refusal?.kind === 'ended'
  useEffect(() => {
    if (isEnded) dispatchEvent(new Event(SESSION_ENDED))
    if (problem instanceof Error && !refusal) console.warn(problem)
  }, [problem])
  if (!problem) return null
  const faults = refusal?.faults.map(({ loc, msg }) => `${titled(loc.slice(1).join('.'))}: ${msg}`) ?? []
  const changes =
    refusal?.body.changed?.map(({ by, field, at }) => `${by} changed ${titled(field)}, ${dated(at)}`) ?? []
  const wait = isTried ? 'This page tries again by itself.' : refusal?.retryS ? `Wait ${refusal.retryS} s.` : ''
  const said = refusal ? refusal.message : problem instanceof Error ? String(problem) : ''
  const label = refusal?.status === 412 ? 'Look again, and keep what I changed' : 'Try again'
  return (
    <div class="problem" role="alert">
      <h2>{visible(titleOf(problem))}</h2>
      {[said, wait].map(text => text && <p>{visible(text)}</p>)}
      <Lines lines={[...faults, ...changes]} />
      {again && !isEnded && <Button label={label} onClick={again} />}
    </div>
  )
}

interface ButtonProps {
  label: string
  onClick?: () => void
  class?: string
  disabled?: boolean | undefined
  title?: string
  /** What readers of the screen hear, where the label does not say enough. */
  name?: string
}

export const Button = ({ label, name, onClick, ...rest }: ButtonProps) => (
  <button type={onClick ? 'button' : 'submit'} aria-label={name && visible(name)} onClick={onClick} {...rest}>
    {label}
  </button>
)

interface FieldProps {
  label: string
  value: string
  onChange?: ((value: string) => void) | undefined
  /** More than one line. */
  rows?: number
  type?: string
  placeholder?: string
  class?: string
  required?: boolean
  /** The label is only heard. */
  isBare?: boolean
}

/** A field with its label. Without `onChange` it is only read. */
export function Field({ label, onChange, isBare, rows, ...rest }: FieldProps) {
  const id = useId()
  const name = isBare ? { 'aria-label': visible(label) } : {}
  const shared = { id, autocomplete: 'off' as const, readOnly: !onChange, ...name, ...rest }
  const typed = ({ currentTarget }: { currentTarget: { value: string } }) => onChange?.(currentTarget.value)
  return (
    <>
      {!isBare && <label for={id}>{label}</label>}
      {rows ? <textarea rows={rows} onInput={typed} {...shared} /> : <input onInput={typed} {...shared} />}
    </>
  )
}

interface CheckProps {
  label: string
  checked: boolean
  onChange?: ((checked: boolean) => void) | undefined
}

export const Check = ({ label, checked, onChange }: CheckProps) => (
  <label class="check">
    <input type="checkbox" {...{ checked, disabled: !onChange }} onChange={e => onChange?.(e.currentTarget.checked)} />
    {label}
  </label>
)

export const Note = ({ text }: { text: string }) => <p class="note">{visible(text)}</p>
export const Lines = ({ lines, id }: { lines: string[]; id?: string }) =>
  lines.length > 0 ? (
    <ul id={id}>
      {lines.map(text => (
        <li>{visible(text)}</li>
      ))}
    </ul>
  ) : null

/** Short things in a row, as links or texts, that can be taken away. */
export function Chips(props: {
  rows: { id: unknown; text: string; href?: string }[]
  onRemove?: ((id: unknown) => void) | undefined
}) {
  return (
    <ul class="chips">
      {props.rows.map(({ id, text, href }) => (
        <li key={id}>
          {href ? <a href={href}>{visible(text)}</a> : <bdi>{visible(text)}</bdi>}
          {props.onRemove && <Button label="×" name={`Remove ${text}`} onClick={() => props.onRemove?.(id)} />}
        </li>
      ))}
    </ul>
  )
}

/** A text with what differs. What is the same and long is folded until somebody wants it; what differs is never cut. */
export function Runs({ runs, around = 300 }: { runs: Run[]; around?: number }) {
  const [open, setOpen] = useState<number[]>([])
  return runs.map(({ as: Tag, text }, i) => {
    if (Tag !== 'span' || open.includes(i) || text.length < 3 * around) return <Tag>{visible(text)}</Tag>
    const [start, end] = [i === 0 ? '' : text.slice(0, around), i === runs.length - 1 ? '' : text.slice(-around)]
    const count = (text.length - start.length - end.length).toLocaleString('en')
    return [
      visible(start),
      <Button class="fold" label={`${count} characters that are the same`} onClick={() => setOpen([...open, i])} />,
      visible(end),
    ]
  })
}

export function Differences({ list }: { list: Difference[] }) {
  if (list.length === 0) return <Note text="Nothing differs." />
  return list.map(({ title, runs }) => (
    <section key={title} class="difference">
      <h2>{visible(title)}</h2>
      <pre dir="auto">
        <Runs runs={runs} />
      </pre>
    </section>
  ))
}

/** A dialog over the page. Escape closes it, and the keyboard stays in it. */
export function Dialog(props: { title: string; onClose: () => void; children: ComponentChildren }) {
  const [element, id] = [useRef<HTMLDialogElement>(null), useId()]
  useLayoutEffect(() => {
    const close = () => element.current?.close()
    element.current?.showModal()
    addEventListener(SESSION_ENDED, close)
    return () => removeEventListener(SESSION_ENDED, close)
  }, [])
  return (
    <dialog ref={element} aria-labelledby={id} onClose={props.onClose}>
      <h2 id={id} tabIndex={-1} autofocus>
        {props.title}
      </h2>
      {props.children}
    </dialog>
  )
}

/** Leaving asks as long as something would be lost. */
export function useUnsaved(what: string, is: boolean) {
  useLayoutEffect(() => {
    if (is) unsaved.add(what)
    return () => void unsaved.delete(what)
  }, [what, is])
}

interface ViewProps {
  title: string
  tags?: string[] | undefined
  /** The way up. */
  up?: [href: string, text: string]
  state?: string
  loaded: Loaded<unknown>
  children?: ComponentChildren
}

/** A view. Its title has the focus when it opens, so that readers of the screen hear where they are. */
export function View({ title, tags = [], up, state, loaded, children }: ViewProps) {
  const heading = useRef<HTMLHeadingElement>(null)
  useEffect(() => {
    document.title = `${visible(title)} - Agents and tools`
  }, [title])
  useEffect(() => {
    heading.current?.focus({ preventScroll: true })
    scrollTo(0, 0)
  }, [])
  return (
    <section>
      {up && <a href={up[0]}>{up[1]}</a>}
      <h1 ref={heading} tabIndex={-1}>
        {visible(title)} <Tags names={tags} />
      </h1>
      <p class="note" role="status" id="state">
        {!loaded.data && !loaded.problem ? 'Loading.' : state}
      </p>
      <Problem {...loaded} />
      {children}
    </section>
  )
}

export const Tags = ({ names }: { names: string[] }) => names.map(name => <span class="tag">{name}</span>)
