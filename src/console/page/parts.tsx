import { type ComponentChildren, type ComponentProps, h } from 'preact'
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { isAway, Refusal, type Row, readAll, unsaved } from './service.js'
import { type Difference, dated, differencesOf, type Run, titled, visible } from './texts.js'

/* Building blocks of views. Text from users goes through `visible` before it is shown. */
const TRIES = 10
/** The event that is sent to the window when an answer reports that the token is no longer valid. */
export const SESSION_ENDED = 'session-ended'
/** The event that is sent to the window after each sign-in. */
export const SIGNED_IN = 'signed-in'

const isEnded = (problem: unknown) => problem instanceof Refusal && problem.kind === 'ended'

export interface Loaded<T> {
  data?: T
  problem?: unknown
  isTried?: boolean
  again(): void
}

/** Loads the data of a view. Retries automatically while the service is unavailable. */
export function useLoad<T>(load: (signal: AbortSignal) => Promise<T>, ...names: unknown[]): Loaded<T> {
  const [state, setState] = useState<Omit<Loaded<T>, 'again'>>({})
  const [turn, setTurn] = useState({ tries: 0 })
  const again = useCallback(() => setTurn({ tries: 0 }), [])
  useEffect(() => {
    const leaving = new AbortController()
    let timer: ReturnType<typeof setTimeout>
    const failed = (problem: unknown) => {
      if (leaving.signal.aborted) return
      const isTried = isAway(problem) && turn.tries < TRIES
      const afterS = Math.max(2 + turn.tries, (isTried && problem.retryS) || 0)
      if (isTried) timer = setTimeout(() => setTurn({ tries: turn.tries + 1 }), 1_000 * afterS)
      if (isEnded(problem)) addEventListener(SIGNED_IN, again, { signal: leaving.signal })
      setState(({ data }) => ({ ...(data && { data }), problem, isTried }))
    }
    load(leaving.signal).then(data => leaving.signal.aborted || setState({ data }), failed)
    return () => {
      leaving.abort()
      clearTimeout(timer)
    }
  }, [turn, ...names])
  return { ...state, again }
}

/** The complete lists, if wanted, to show names in place of ids. */
export const useLists = (isWanted: boolean, ...lists: Parameters<typeof readAll>[0][]): Loaded<Row[][]> =>
  useLoad(signal => Promise.all(isWanted ? lists.map(list => readAll(list, signal)) : []), isWanted)

/** The action of a button. Runs once at a time, and stores the error if it fails. `instead` forgets the error and does something else. */
export function useAction<T extends unknown[]>(work: (...given: T) => Promise<unknown>) {
  const [state, setState] = useState<{ isBusy?: boolean; problem?: unknown }>({})
  const isBusy = useRef(false)
  const act = async (...given: T) => {
    if (isBusy.current) return
    isBusy.current = true
    setState({ isBusy: true })
    const problem = await work(...given).then(
      () => undefined,
      fault => fault,
    )
    setState({ problem })
    isBusy.current = false
  }
  const instead = (next: () => void) => () => {
    setState({})
    next()
  }
  return { ...state, act, instead }
}

/** Explains a failure and offers a next step. The problem is a refusal, a sentence, or an error of the page itself. */
export function Problem({ problem, isTried, again, keeps }: Partial<Loaded<unknown>> & { keeps?: boolean }) {
  const refusal = problem instanceof Refusal ? problem : undefined
  const isOurs = problem instanceof Error && !refusal
  useEffect(() => {
    if (isEnded(problem)) dispatchEvent(new Event(SESSION_ENDED))
    if (isOurs) console.warn(problem)
  }, [problem])
  if (!problem) return null
  const wait = isTried ? 'This page tries again by itself.' : refusal?.retryS ? `Wait ${refusal.retryS} s.` : ''
  const faults = refusal?.faults.map(({ loc, msg }) => `${titled(loc.slice(1).join('.'))}: ${msg}`) ?? []
  const changed = refusal?.body.changed ?? []
  const changes = changed.map(({ by, field, at }) => `${by} changed ${titled(field)}, ${dated(at)}`)
  const isStale = refusal?.status === 412
  const said = isStale ? 'Somebody changed this since you opened it' : (refusal?.message ?? problem)
  const label = isStale ? `Look again${keeps ? ', and keep what I changed' : ''}` : 'Try again'
  return (
    <div class="problem" role="alert">
      <h2>{visible(isOurs ? 'This page has a fault of its own' : said)}</h2>
      <Lines lines={[isOurs ? String(problem) : wait, ...faults, ...changes].filter(text => text !== '')} />
      {again && !isEnded(problem) && refusal?.status !== 404 && <Button label={label} onClick={again} />}
    </div>
  )
}

type ButtonProps = Omit<ComponentProps<'button'>, 'onClick' | 'name'> & {
  label: string
  onClick?: (() => void) | undefined
  /** The label for screen readers, if the visible label is not sufficient. */
  name?: string
}

export const Button = ({ label, name, ...rest }: ButtonProps) => (
  <button type={rest.onClick ? 'button' : 'submit'} aria-label={name && visible(name)} {...rest}>
    {label}
  </button>
)

type FieldProps = Omit<ComponentProps<'input'>, 'onChange' | 'label'> & {
  label: string
  onChange?: ((value: string) => void) | undefined
  /** The number of lines, if more than one. */
  rows?: number
  /** True if the label is only for screen readers. */
  isBare?: boolean
}

/** A field with its label. Without `onChange` it is read-only. */
export function Field({ label, onChange, isBare, rows, ...rest }: FieldProps) {
  const onInput = ({ currentTarget }: { currentTarget: { value: string } }) => onChange?.(currentTarget.value)
  const Tag = (rows ? 'textarea' : 'input') as 'input'
  return (
    // biome-ignore lint/a11y/noLabelWithoutControl: the label contains its control
    <label>
      <span class={isBare ? 'heard' : ''}>{visible(label)}</span>
      <Tag autocomplete="off" readOnly={!onChange} {...{ onInput, rows, ...rest }} />
    </label>
  )
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
  /** The noun for one item. */
  noun: string
  rows: T[]
  textOf(row: T): string
  hrefOf?(row: T): string
  /** The items that can be added. */
  others?: T[]
  onChange?: ((rows: T[]) => void) | undefined
}

/** A row of short items, as links or texts. With `onChange`, items can be removed and others added by name. */
export function Chips<T extends { id: unknown }>({ noun, rows, textOf, hrefOf, others = [], onChange }: ChipsProps<T>) {
  const free = others.filter(({ id }) => !rows.some(row => row.id === id))
  const add = (event: { currentTarget: HTMLSelectElement }) =>
    onChange?.([...rows, ...free.slice(event.currentTarget.selectedIndex - 1).slice(0, 1)])
  return (
    <>
      <ul class="chips">
        {rows.map((row, i) => (
          <li key={row.id}>
            <a href={hrefOf?.(row)}>{visible(textOf(row))}</a>
            {onChange && <Cross name={textOf(row)} onClick={() => onChange(rows.toSpliced(i, 1))} />}
          </li>
        ))}
      </ul>
      {onChange && free.length > 0 && (
        <select aria-label={`Add a ${noun}`} value="" onChange={add}>
          {h('option', { value: '' }, `Add a ${noun}`)}
          {free.map(row => h('option', {}, visible(textOf(row))))}
        </select>
      )}
    </>
  )
}

const Cross = ({ name, onClick }: { name: string; onClick(): void }) => (
  <Button class="cross" label="×" name={`Remove ${name}`} onClick={onClick} />
)

export type Pair = Record<string, string>
interface PairsProps {
  title: string
  noun: string
  /** The properties that hold an item's name and its value. */
  members: [string, string]
  rows: Pair[]
  /** The stored items, if their values are secret. Each value is kept or replaced. */
  stored?: Pair[] | null
  lines?: number
  /** True if values cannot be set, only removed. */
  isFixed?: boolean
  onChange?: ((rows: Pair[]) => void) | undefined
}

/** Names with values, which can be edited, added and removed. */
export function Pairs({ title, noun, members: [k, v], rows, stored, lines, isFixed, onChange }: PairsProps) {
  const secret = stored && { class: 'secret', placeholder: 'stored; type to replace it' }
  const rowOf = (row: Pair, i: number) => {
    const { [k]: name = '', [v]: value = '' } = row
    const kept = stored?.find(each => each[k] === name)?.[v]
    const put = (part: Pair) => onChange?.(rows.with(i, { ...row, ...part }))
    const named = onChange && kept === undefined ? (text: string) => put({ [k]: text }) : undefined
    const valued = onChange && !isFixed && ((text: string) => put({ [v]: text || kept || '' }))
    const shown = kept === value ? '' : value
    return (
      <div class="pair">
        <Field isBare label={`Name of ${noun} ${i + 1}`} value={name} onChange={named} />
        <Field
          isBare
          label={`Value of ${name || noun}`}
          {...secret}
          rows={lines}
          value={shown}
          onChange={valued || undefined}
        />
        {onChange && <Cross name={name || noun} onClick={() => onChange(rows.toSpliced(i, 1))} />}
      </div>
    )
  }
  return (
    <fieldset>
      <legend>{title}</legend>
      {rows.map(rowOf)}
      {onChange && !isFixed && (
        <Button label={`Add a ${noun}`} onClick={() => onChange([...rows, { [k]: '', [v]: '' }])} />
      )}
    </fieldset>
  )
}

const AROUND = 300

/** Two texts with their differences marked. Long equal parts are collapsed, differences are always shown. */
export function Runs({ runs }: { runs: Run[] }) {
  const [open, setOpen] = useState<number[]>([])
  return runs.map(({ as: Tag, text }, i) => {
    if (Tag !== 'span' || open.includes(i) || text.length < 3 * AROUND) return <Tag>{visible(text)}</Tag>
    const [start, end] = [i === 0 ? '' : text.slice(0, AROUND), i === runs.length - 1 ? '' : text.slice(-AROUND)]
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

const showOnce = (element: HTMLDialogElement | null) => void (element?.open === false && element.showModal())

/** A modal dialog. Escape closes it, and the focus stays inside. */
export const Dialog = ({ title, ...rest }: { title: string; onClose: () => void; children: ComponentChildren }) => (
  <dialog ref={showOnce} aria-label={title} onClose={rest.onClose}>
    <h2>{title}</h2>
    {rest.children}
  </dialog>
)

/** Shows the effect of a request, and sends it if confirmed. */
export function Review(props: {
  title: string
  label: string
  /** Reads the stored state, and the state that the request would store. */
  look(signal: AbortSignal): Promise<{ before: object; after: object; warnings: string[] }>
  send(): Promise<unknown>
  /** Called if another user changed the record meanwhile, and the user has edits to keep. */
  onStale?(): void
  onClose(): void
  /** The effect on others, shown above the difference. */
  effect?: ComponentChildren
  children?: ComponentChildren
}) {
  const looked = useLoad(props.look)
  const sent = useAction(props.send)
  const { data } = looked
  const problem = sent.problem ?? looked.problem
  const isStale = problem instanceof Refusal && problem.status === 412
  return (
    <Dialog title={props.title} onClose={props.onClose}>
      {!data && !problem && <Note text="Loading." />}
      <Lines class="warnings" lines={data?.warnings ?? []} />
      {props.effect}
      {data && <Differences list={differencesOf(data.before, data.after)} />}
      {props.children}
      <Problem
        keeps={props.onStale !== undefined}
        problem={problem}
        again={isStale ? sent.instead(props.onStale ?? looked.again) : sent.problem ? sent.act : looked.again}
      />
      <form method="dialog" class="bar end">
        <Button label="Close" />
        <Button class="main" label={props.label} disabled={!data || sent.isBusy || isStale} onClick={sent.act} />
      </form>
    </Dialog>
  )
}

/** Asks for confirmation before leaving while there are unsaved changes. */
export function useUnsaved(what: string, is: boolean) {
  useLayoutEffect(() => {
    if (is) unsaved.add(what)
    return () => void unsaved.delete(what)
  }, [what, is])
}

interface ViewProps {
  title: string
  tags?: string[] | undefined
  state?: string | undefined
  loaded: Loaded<unknown>
  children?: ComponentChildren
}

/** A view. Its title is focused when it opens, so that screen readers announce it. */
export function View({ title, tags = [], state, loaded, children }: ViewProps) {
  const heading = useRef<HTMLHeadingElement>(null)
  useEffect(() => {
    document.title = `${visible(title)} - Agents and tools`
  }, [title])
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
        {!loaded.data && !loaded.problem ? 'Loading.' : visible(state)}
      </p>
      <Problem {...loaded} />
      {children}
    </>
  )
}
