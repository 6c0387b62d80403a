import type { EditorView } from '@codemirror/view'
import { useEffect, useRef, useState } from 'preact/hooks'
import { Editor, goTo, nextDiagnostic, previousDiagnostic, showFindings } from './editor.js'
import { Agents, type Function_, Functions, type ImpactReport } from './functions.js'
import { Button, Field, Lines, Note, Problem, Runs, useAction } from './parts.js'
import type { Edit, Place, Read } from './reader.js'
import { ask, type Fault, Refusal } from './service.js'
import { counted, outline, readText, runsOf, visible } from './texts.js'
import { inWorker } from './worker.js'

interface Completed {
  definition: object
  edits: (Edit & { op: string; msg: string; before?: unknown })[]
}

interface Report {
  warnings?: Fault[]
  functions?: Function_[]
  completed?: Completed
  impact?: ImpactReport
}

interface Finding extends Place {
  severity: 'error' | 'warning'
  message: string
}

const CHECK_AFTER_MS = 300
const [SHOWN, FILE_BYTES_MAX] = [100, 2 ** 24]

/** Validates by the route that programs use. */
async function validated(query: Record<string, string>, json: string, signal?: AbortSignal) {
  const options = { text: `{"definition":${json}}`, signal, isExact: 'complete' in query }
  const answer = ask<Report>('POST', `admin/tool/custom/validate?${new URLSearchParams(query)}`, options)
  const faulty = (refusal: unknown) => {
    if (refusal instanceof Refusal && refusal.status === 422)
      return { found: refusal.body as Report, faults: refusal.faults }
    throw refusal
  }
  return answer.then(({ data }) => ({ found: data, faults: [] as Fault[] }), faulty)
}

export interface Checked {
  text: string
  /** The definition as JSON; null if it has faults. */
  json: string | null
}

interface DefinitionProps {
  text: string
  /** The tool that it is compared with. */
  toolId?: number
  /** False if the token may not check definitions. */
  isChecked: boolean
  /** Without it the definition is only read. Called at once with null, and with what was found once it is checked. */
  onChange?: ((checked: Checked | null) => void) | undefined
}

/** A definition in the editor: faults and warnings at their lines, repair, what a model gets, and whom a change affects. */
export function Definition({ text, toolId, isChecked, onChange }: DefinitionProps) {
  const [findings, setFindings] = useState<Finding[]>([])
  const [report, setReport] = useState<Report>({})
  const [state, setState] = useState<'empty' | 'stale' | 'checked'>('empty')
  const [problem, setProblem] = useState<unknown>()
  const [isRepairing, setRepairing] = useState(false)
  const view = useRef<EditorView>()
  const turn = useRef({ leaving: new AbortController(), isFirstShown: true })

  const check = async (now: string, signal: AbortSignal) => {
    const { json, fault } = await inWorker<Read>({ text: now })
    const query = { report: 'full', view: 'functions', ...(toolId !== undefined && { tool_id: String(toolId) }) }
    const none = { found: {} as Report, faults: [] as Fault[] }
    const { found, faults } = json === undefined ? none : await validated(query, json, signal)
    const all = [
      ...faults.map(each => ({ ...each, severity: 'error' as const })),
      ...(found.warnings ?? []).map(each => ({ ...each, severity: 'warning' as const })),
    ]
    const places = await inWorker<(Place | undefined)[]>({ paths: all.map(({ loc }) => loc.slice(2)) })
    if (signal.aborted || !view.current) return
    const list: Finding[] = all.map(({ severity, msg }, i) => ({
      severity,
      message: visible(msg),
      ...(places[i] ?? { from: 0, to: 0 }),
    }))
    if (fault) list.push({ ...fault, severity: 'error', message: fault.msg })
    list.sort((a, b) => (a.severity === b.severity ? a.from - b.from : a.severity === 'error' ? -1 : 1))
    setFindings(list)
    setReport(found)
    setState('checked')
    showFindings(view.current, list, turn.current.isFirstShown)
    turn.current.isFirstShown = false
    onChange?.({ text: now, json: list[0]?.severity === 'error' ? null : (json ?? null) })
  }
  const checkSoon = (read: () => string, isFirstShown: boolean, afterMs = CHECK_AFTER_MS) => {
    turn.current.leaving.abort()
    turn.current.leaving = new AbortController()
    turn.current.isFirstShown ||= isFirstShown
    const { signal } = turn.current.leaving
    setState('stale')
    setProblem(undefined)
    setTimeout(() => {
      if (signal.aborted) return
      const now = read()
      if (!isChecked || now.trim() === '') return setState('empty')
      check(now, signal).catch(fault => signal.aborted || setProblem(fault))
    }, afterMs)
  }
  useEffect(() => {
    checkSoon(() => text, true, 0)
    return () => turn.current.leaving.abort()
  }, [text])
  const read = () => view.current?.state.doc.toString() ?? ''
  const put = (insert: string) =>
    view.current?.dispatch({
      changes: { from: 0, to: view.current.state.doc.length, insert },
      userEvent: 'input.paste',
    })
  const open = async (file: File | undefined) => {
    setProblem(file && file.size > FILE_BYTES_MAX ? `${file.name} is larger than any definition` : undefined)
    if (file && file.size <= FILE_BYTES_MAX) await readText(file).then(put, setProblem)
  }
  const drop = (event: DragEvent) => {
    if (!event.dataTransfer?.files.length || !onChange) return
    event.preventDefault()
    event.stopPropagation()
    open(event.dataTransfer.files[0])
  }
  const go = (command: typeof nextDiagnostic) => () => {
    if (view.current) command(view.current)
    view.current?.focus()
  }
  const typed = (read: () => string, isPasted: boolean) => {
    onChange?.(null)
    checkSoon(read, isPasted)
  }
  const faults = findings.filter(({ severity }) => severity === 'error').length
  const counts = `${counted(faults, 'fault')}, ${counted(findings.length - faults, 'warning')}.`
  const verdict = {
    empty: isChecked ? 'Paste a definition, or drop a file on the editor.' : '',
    stale: 'Checking.',
    checked: counts,
  }[state]
  return (
    <div class="columns">
      <div>
        <div class="bar">
          <p role="status" id="verdict" class={state === 'checked' && faults > 0 ? 'bad' : ''}>
            {verdict}
          </p>
          {findings.length > 0 && (
            <Button label="Previous" title="Shift-F8 in the editor" onClick={go(previousDiagnostic)} />
          )}
          {findings.length > 0 && <Button label="Next" title="F8 in the editor" onClick={go(nextDiagnostic)} />}
          {faults > 0 && onChange && <Button label="Repair" class="main" onClick={() => setRepairing(true)} />}
          {onChange && <OpenFile onOpen={open} />}
        </div>
        <Problem problem={problem} again={problem instanceof Refusal ? () => checkSoon(read, false, 0) : undefined} />
        <div onDropCapture={drop}>
          <Editor
            isCode
            label="OpenAPI definition"
            text={text}
            isReadOnly={!onChange}
            onType={typed}
            onView={made => (view.current = made)}
          />
        </div>
      </div>
      <div class={state === 'stale' ? 'stale' : ''}>
        {isRepairing && <Repair read={read} onPut={put} onClose={() => setRepairing(false)} />}
        {findings.length > 0 && <h2>Faults and warnings</h2>}
        <ol class="findings">
          {findings.slice(0, SHOWN).map(({ severity, message, from }) => (
            <li class={severity}>
              <button type="button" class="link" onClick={() => view.current && goTo(view.current, from)}>
                {severity === 'error' ? 'Fault' : 'Warning'}, line {view.current?.state.doc.lineAt(from).number}
              </button>
              {message}
            </li>
          ))}
        </ol>
        {findings.length > SHOWN && <Note text={`And ${counted(findings.length - SHOWN, 'more')}.`} />}
        {report.impact && <Agents impact={report.impact} />}
        {isChecked && <Functions list={report.functions ?? []} />}
      </div>
    </div>
  )
}

function OpenFile({ onOpen }: { onOpen(file: File | undefined): Promise<void> }) {
  const chosen = ({ currentTarget }: { currentTarget: HTMLInputElement }) =>
    onOpen(currentTarget.files?.[0]).finally(() => Object.assign(currentTarget, { value: '' }))
  return (
    <label class="button">
      Open a file <input type="file" accept=".json,.yaml,.yml" onChange={chosen} />
    </label>
  )
}

interface RepairProps {
  read(): string
  onPut(text: string): void
  onClose(): void
}

/** What `complete` would add or replace, each edit before and after. */
function Repair({ read, onPut, onClose }: RepairProps) {
  const [server, setServer] = useState('')
  const [found, setFound] = useState<{ faults: string[]; completed?: Completed | undefined }>()
  const look = useAction(async () => {
    const { json, fault } = await inWorker<Read>({ text: read() })
    if (json === undefined) return setFound({ faults: [fault?.msg ?? ''] })
    const answer = await validated({ complete: 'true', ...(server.trim() && { server: server.trim() }) }, json)
    setFound({ faults: answer.faults.map(({ msg }) => msg), completed: answer.found.completed })
  })
  const heading = useRef<HTMLHeadingElement>(null)
  useEffect(() => {
    heading.current?.focus()
    look.act()
  }, [])
  const { completed, faults = [] } = found ?? {}
  const take = async () => {
    const edits = completed?.edits.map(({ loc, after }) => ({ loc: loc.slice(2), after })) ?? []
    onPut(await inWorker<string>({ text: read(), definition: JSON.stringify(completed?.definition), edits }))
    onClose()
  }
  const again = (event: Event) => {
    event.preventDefault()
    look.act()
  }
  const shown = (value: unknown) => (value === undefined ? '' : outline(value))
  return (
    <section class="card">
      <h2 ref={heading} tabIndex={-1}>
        Repair
      </h2>
      <form class="bar" onSubmit={again}>
        <Field
          label="Server, if it names none"
          type="url"
          placeholder="https://api.example.com"
          value={server}
          onChange={setServer}
        />
        <Button label="Look again" disabled={look.isBusy} />
      </form>
      <Problem problem={look.problem} again={look.act} />
      {found && (
        <p role="status">{completed ? `${counted(completed.edits.length, 'edit')}.` : 'No repair is known yet.'}</p>
      )}
      <div class="bar">
        {completed && <Button label="Put this into the editor" class="main" onClick={take} />}
        <Button label="Close" onClick={onClose} />
      </div>
      {completed?.edits.slice(0, SHOWN).map(({ op, loc, msg, before, after }) => (
        <div>
          <strong>{op === 'add' ? 'Add' : 'Replace'}</strong>{' '}
          {visible(`${msg}, at ${loc.slice(2).join(' › ') || 'the whole'}`)}
          <pre dir="auto">
            <Runs runs={runsOf(shown(before), shown(after))} />
          </pre>
        </div>
      ))}
      {faults.length > 0 && <p>To correct by hand:</p>}
      <Lines lines={faults.slice(0, SHOWN)} />
    </section>
  )
}
