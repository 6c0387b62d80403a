import { linter, nextDiagnostic, previousDiagnostic } from '@codemirror/lint'
import { StateEffect, type Text } from '@codemirror/state'
import { type Command, EditorView, type ViewUpdate } from '@codemirror/view'
import { useMemo, useRef, useState } from 'preact/hooks'
import { CODE, Editor } from './editor.js'
import { Agents, type Function_, Functions, type ImpactReport } from './functions.js'
import { Button, Field, Note, Problem, Review } from './parts.js'
import type { Edit, Place, Read } from './reader.js'
import { ask, type Fault, isAway, parsed, Refusal } from './service.js'
import { counted, readText, visible } from './texts.js'
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
  /** The line in the text that was checked; the text may have changed since. */
  line: number
}

const [CHECK_AFTER_MS, AGAIN_AFTER_MS] = [300, 3_000]
const [SHOWN, FILE_BYTES_MAX] = [100, 2 ** 24]
const again = StateEffect.define<null>()

/** Validates a definition with the route that programs use. */
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

interface Found {
  json: string | null
  report: Report
  findings: Finding[]
  problem?: unknown
}

const NOTHING: Found = { json: null, report: {}, findings: [] }

/** The findings for a text: faults first, each kind in the order of places. */
async function findingsIn(doc: Text, toolId: number | undefined, signal: AbortSignal): Promise<Found> {
  const { json, fault } = await inWorker<Read>({ text: doc.toString() })
  const placed = ({ from, to }: Place = { from: 0, to: 0 }) => {
    const [start, end] = [Math.min(from, doc.length), Math.min(to, doc.length)]
    return { from: start, to: end, line: doc.lineAt(start).number }
  }
  if (json === undefined) {
    const finding: Finding = { ...placed(fault), severity: 'error', message: visible(fault?.msg) }
    return { ...NOTHING, findings: [finding] }
  }
  const query = { report: 'full', view: 'functions', ...(toolId !== undefined && { tool_id: String(toolId) }) }
  const { found, faults } = await validated(query, json, signal)
  const all = [...faults, ...(found.warnings ?? [])]
  const places = await inWorker<(Place | undefined)[]>({ paths: all.map(({ loc }) => loc.slice(2)) })
  const findings = all.map(({ msg }, i): Finding => {
    const severity = i < faults.length ? 'error' : 'warning'
    return { severity, message: visible(msg), ...placed(places[i]) }
  })
  findings.sort((a, b) => a.severity.localeCompare(b.severity) || a.from - b.from)
  return { json: faults.length > 0 ? null : json, report: found, findings }
}

export interface Checked {
  text: string
  /** The definition as JSON; null if it has faults. */
  json: string | null
  impact: ImpactReport | undefined
}

interface DefinitionProps {
  /** The initial text. */
  text: string
  /** The tool whose stored definition it is compared with. */
  toolId?: number
  /** False if the token does not allow definitions to be checked. */
  isChecked: boolean
  /** If undefined, the definition is read-only. Called with null and a function that returns the text after each edit, and with the result of each check. */
  onChange?: ((checked: Checked | null, read?: () => string) => void) | undefined
}

/** A definition in the editor, with faults and warnings at their lines, a repair, the resulting functions, and the agents that a change affects. */
export function Definition({ text, toolId, isChecked, onChange }: DefinitionProps) {
  const [{ report, findings, problem }, setFound] = useState(NOTHING)
  const [isStale, setStale] = useState(true)
  const [unread, setUnread] = useState<string>()
  const [isRepairing, setRepairing] = useState(false)
  const [view, told, isFirstShown] = [useRef<EditorView>(), useRef(onChange), useRef(true)]
  told.current = onChange
  const code = useMemo(() => {
    let leaving = new AbortController()
    const check = async (view: EditorView) => {
      leaving.abort()
      leaving = new AbortController()
      const { doc } = view.state
      const text = doc.toString()
      const isEmpty = !isChecked || text.trim() === ''
      const look = isEmpty ? Promise.resolve(NOTHING) : findingsIn(doc, toolId, leaving.signal)
      const found = await look.catch((problem): Found => ({ ...NOTHING, problem }))
      if (view.state.doc !== doc) return []
      if (isAway(found.problem)) setTimeout(() => view.dispatch({ effects: again.of(null) }), AGAIN_AFTER_MS)
      setFound(found)
      setStale(false)
      told.current?.({ text, json: found.json, impact: found.report.impact })
      const places = found.findings.map(({ from }) => from)
      const first = EditorView.scrollIntoView(Math.min(...places), { y: 'center' })
      if (isFirstShown.current && places.length > 0) view.dispatch({ effects: first })
      isFirstShown.current = false
      return found.findings
    }
    const needsRefresh = (update: ViewUpdate) =>
      update.transactions.some(({ effects }) => effects.some(each => each.is(again)))
    return [CODE, linter(check, { delay: CHECK_AFTER_MS, needsRefresh })]
  }, [])
  const put = (insert: string) => {
    const to = view.current?.state.doc.length ?? 0
    view.current?.dispatch({ changes: { from: 0, to, insert }, userEvent: 'input.paste' })
  }
  const open = async (holder: { files: FileList | null; value?: string }) => {
    const [file] = holder.files ?? []
    if (file && file.size > FILE_BYTES_MAX) setUnread(`${file.name} is larger than any definition`)
    else if (file) await readText(file).then(put, setUnread)
    holder.value = ''
  }
  const drop = (event: DragEvent) => {
    if (!event.dataTransfer?.files.length || !onChange) return
    event.preventDefault()
    event.stopPropagation()
    open(event.dataTransfer)
  }
  const go = (command: Command) => () => {
    if (view.current) command(view.current)
    view.current?.focus()
  }
  const goTo = (from: number) =>
    go(({ state, dispatch }) => {
      const anchor = Math.min(from, state.doc.length) // the text may have changed since
      dispatch(state.update({ selection: { anchor }, scrollIntoView: true }))
      return true
    })
  const typed = (read: () => string, isPasted: boolean) => {
    onChange?.(null, read)
    isFirstShown.current ||= isPasted
    setStale(true)
    setUnread(undefined)
  }
  const isNothing = findings.length === 0 && !report.functions
  const faults = findings.filter(({ severity }) => severity === 'error').length
  const counts = `${faults === SHOWN ? 'At least ' : ''}${counted(faults, 'fault')}, ${counted(findings.length - faults, 'warning')}.`
  const hint = isChecked && !problem ? 'Paste a definition, or drop a file on the editor.' : ''
  return (
    <div class="columns">
      <div>
        <div class="bar">
          <p role="status" id="verdict" class={!isStale && faults > 0 ? 'bad' : ''}>
            {isStale ? 'Checking.' : isNothing ? hint : counts}
          </p>
          {findings.length > 0 && <Button label="Previous" onClick={go(previousDiagnostic)} />}
          {findings.length > 0 && <Button label="Next" title="F8 in the editor" onClick={go(nextDiagnostic)} />}
          {faults > 0 && onChange && <Button label="Repair" class="main" onClick={() => setRepairing(true)} />}
          {onChange && (
            <label class="button">
              Open a file <input type="file" accept=".json,.yaml,.yml" onChange={event => open(event.currentTarget)} />
            </label>
          )}
        </div>
        <Problem problem={unread ?? (!isStale && problem)} isTried={!unread && isAway(problem)} />
        <div onDropCapture={drop}>
          <Editor
            label="OpenAPI definition"
            isReadOnly={!onChange}
            onType={typed}
            onView={made => (view.current = made)}
            {...{ code, text }}
          />
        </div>
      </div>
      <div class={isStale ? 'stale' : ''}>
        {findings.length > 0 && <h2>Faults and warnings</h2>}
        <ol class="findings">
          {findings.slice(0, SHOWN).map(({ severity, message, from, line }) => (
            <li class={severity}>
              <button type="button" class="link" onClick={goTo(from)}>
                {severity === 'error' ? 'Fault' : 'Warning'}, line {line}
              </button>
              {message}
            </li>
          ))}
        </ol>
        {findings.length > SHOWN && <Note text={`And ${counted(findings.length - SHOWN, 'more')}.`} />}
        {report.impact && <Agents impact={report.impact} />}
        {isChecked && <Functions list={report.functions ?? []} />}
      </div>
      {isRepairing && (
        <Repair text={view.current?.state.doc.toString() ?? ''} onPut={put} onClose={() => setRepairing(false)} />
      )}
    </div>
  )
}

/** The edits that `complete` would make, grouped by the parts of the definition. */
function Repair({ text, onPut, onClose }: { text: string; onPut(text: string): void; onClose(): void }) {
  const [server, setServer] = useState('')
  const completed = useRef<Completed>()
  const look = async (signal: AbortSignal) => {
    const { json, fault } = await inWorker<Read>({ text })
    if (json === undefined) throw fault?.msg
    const { found, faults } = await validated({ complete: 'true', ...(server && { server }) }, json, signal)
    completed.current = found.completed
    const before = { definition: parsed(json) }
    const warnings = faults.map(({ msg }) => `To correct by hand: ${msg}`)
    return {
      before,
      after: { ...before, ...(found.completed && { definition: found.completed.definition }) },
      warnings,
    }
  }
  const send = async () => {
    const { edits = [], definition } = completed.current ?? {}
    const placed = edits.map(({ loc, after }) => ({ loc: loc.slice(2), after }))
    if (definition) onPut(await inWorker<string>({ text, definition: JSON.stringify(definition), edits: placed }))
    onClose()
  }
  const again = (event: SubmitEvent & { currentTarget: HTMLFormElement }) => {
    event.preventDefault()
    setServer(String(new FormData(event.currentTarget).get('server')).trim())
  }
  const field = { type: 'url', name: 'server', placeholder: 'https://api.example.com', readOnly: false }
  return (
    <Review key={server} title="Repair" label="Put this into the editor" {...{ look, send, onClose }}>
      <form class="bar" onSubmit={again}>
        <Field label="Server, if it names none" {...field} defaultValue={server} />
        <Button label="Look again" />
      </form>
    </Review>
  )
}
