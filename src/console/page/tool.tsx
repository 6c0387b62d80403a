import { linter, previousDiagnostic } from '@codemirror/lint'
import { StateEffect, type Text } from '@codemirror/state'
import { EditorView, keymap, type ViewUpdate } from '@codemirror/view'
import { useMemo, useRef, useState } from 'preact/hooks'
import { Editor } from './editor.js'
import { parsed } from './numbers.js'
import { Button, Check, Chips, Field, Lines, Note, type Pair, Pairs, Problem, Review, useLists } from './parts.js'
import type { Edit, Place, Read } from './reader.js'
import { Frame, useRecord } from './record.js'
import { ask, BLANK, type Fault, type ImpactReport, isAway, Refusal, type Rights, type Row } from './service.js'
import { counted, outline, readText, visible } from './texts.js'
import { inWorker } from './worker.js'

const [CHECK_AFTER_MS, AGAIN_AFTER_MS] = [300, 3_000]
const [SHOWN, FILE_BYTES_MAX] = [100, 2 ** 24]
const again = StateEffect.define<null>()

interface ToolRecord extends Row {
  definition: object | null
  custom_headers: Pair[] | null
  passthrough_auth: boolean
  oauth_config_name?: string | null
}

const isMask = (value: string) => value.startsWith('****#')
const FRESH: ToolRecord = { ...BLANK, definition: null, custom_headers: [], passthrough_auth: false }

export function Tool({ id, rights }: { id: number; rights: Rights }) {
  const [checked, setFound] = useState<Found | null>(null)
  const of = useRecord<ToolRecord>('tools', id, rights, FRESH)
  const { record, now, shown, typed, changed, isEditable, mayEdit, mayCreate } = of
  const draft = shown.definition // until the tool is loaded, only "Propose again" sets a definition
  const typedText = useRef(draft ? () => JSON.stringify(draft, null, 2) : undefined) // keeps the text while another user's change is loaded
  const stored = useMemo(() => (record?.definition ? JSON.stringify(record.definition, null, 2) : ''), [record])
  const text = useMemo(() => typedText.current?.() ?? stored, [record])
  const isTyped = typedText.current && checked?.text !== stored
  const { description, passthrough_auth, definition } = shown
  const headers = shown.custom_headers?.map(({ key = '', value = '' }) => {
    const now = isMask(value) && record?.custom_headers?.find(each => each.key === key)?.value // the edits may contain an older mask
    return { key, value: now || (isMask(value) ? '' : value) }
  })
  const custom_headers = headers?.filter(({ value }) => !isMask(value)) // a new tool cannot get a value from a mask
  const name = id > 0 && shown.name === record?.name ? `${shown.name} (copy)` : shown.name
  const onChange = (found: Found | null, read?: () => string) => {
    setFound(found)
    typedText.current = found?.text === stored ? undefined : (read ?? typedText.current)
  }
  const isYaml = isTyped && !/^\s*([{[]|$)/.test(checked?.text ?? '')
  const top = (record?.definition || !id) && (
    <Definition
      key={now?.etag}
      {...{ text, toolId: id || undefined, isChecked: isEditable, onChange: isEditable ? onChange : undefined }}
    />
  )
  return (
    <Frame
      {...{
        of,
        top,
        body: 'custom_headers' in changed ? { ...changed, custom_headers: headers } : changed,
        typedText: typedText.current,
        definition: isTyped ? (checked?.json ?? null) : undefined,
      }}
      created={{ name, description, passthrough_auth, custom_headers, definition }}
      effect={isTyped && checked?.report.impact && <Agents impact={checked.report.impact} target="_blank" />}
      isSecret={(custom_headers?.length ?? 0) > 0}
      note={isYaml ? 'The YAML is stored as JSON, so its comments are not kept.' : ''}
    >
      <Field label="Name" value={shown.name} onChange={typed('name')} />
      <Field label="Description" rows={3} value={description} onChange={typed('description')} />
      <Check label="Calls the API as the chat user" checked={passthrough_auth} onChange={typed('passthrough_auth')} />
      {record?.custom_headers && (
        <Pairs
          noun="header"
          members={['key', 'value']}
          stored={record.custom_headers}
          rows={headers ?? []}
          onChange={mayEdit || mayCreate ? typed('custom_headers') : undefined}
        />
      )}
      {record?.oauth_config_name && <Note text={`OAuth: ${record.oauth_config_name}`} />}
    </Frame>
  )
}

interface Report {
  warnings?: Fault[]
  functions?: { name: string }[]
  completed?: { definition: object; edits: Edit[] }
  impact?: ImpactReport
}

interface Finding extends Place {
  severity: 'error' | 'warning'
  message: string
  /** The line in the checked text. The text may have changed since then. */
  line: number
}

async function validated(query: Record<string, string>, json: string, signal?: AbortSignal) {
  const options = { text: `{"definition":${json}}`, signal }
  const path = `admin/tool/custom/validate?${new URLSearchParams(query)}`
  try {
    const { data } = await ask<Report>('POST', path, options)
    return { report: data, faults: [] }
  } catch (refusal) {
    if (!(refusal instanceof Refusal && refusal.status === 422)) throw refusal
    return { report: refusal.body as Report, faults: refusal.faults }
  }
}

/** The result of a check. `json`: the definition, or null if it has faults. */
interface Found {
  text: string
  json: string | null
  report: Report
  findings: Finding[]
  problem?: unknown
}

const KINDS = { error: 'Fault', warning: 'Warning' }
const NOTHING: Found = { text: '', json: null, report: {}, findings: [] }

async function findingsIn(doc: Text, toolId: number | undefined, signal: AbortSignal): Promise<Found> {
  const text = doc.toString()
  const { json, fault } = await inWorker<Read>({ text })
  const finding = (severity: Finding['severity'], msg = '', place: Place = { from: 0, to: 0 }): Finding => {
    const [from, to] = [Math.min(place.from, doc.length), Math.min(place.to, doc.length)]
    return { severity, message: visible(msg), from, to, line: doc.lineAt(from).number }
  }
  if (json === undefined) return { ...NOTHING, text, findings: [finding('error', fault?.msg, fault)] }
  const query = { report: 'full', view: 'functions', ...(toolId !== undefined && { tool_id: String(toolId) }) }
  const { report, faults } = await validated(query, json, signal)
  const all = [...faults, ...(report.warnings ?? [])]
  const places = await inWorker<(Place | undefined)[]>({ paths: all.map(({ loc }) => loc.slice(2)) })
  const findings = all.map(({ msg }, i) => finding(i < faults.length ? 'error' : 'warning', msg, places[i]))
  findings.sort((a, b) => a.severity.localeCompare(b.severity) || a.from - b.from)
  return { text, json: faults.length > 0 ? null : json, report, findings }
}

interface DefinitionProps {
  text: string
  toolId?: number
  isChecked: boolean
  /** Called after each edit, with a function that returns the text, and after each check, with the result. */
  onChange?: ((found: Found | null, read?: () => string) => void) | undefined
}

function Definition({ text, toolId, isChecked, onChange }: DefinitionProps) {
  const [{ report, findings, problem }, setFound] = useState(NOTHING)
  const [unread, setUnread] = useState<string>()
  const [[isStale, setStale], [isRepairing, setRepairing]] = [useState(true), useState(false)]
  const [view, told, isFirstShown] = [useRef<EditorView>(), useRef(onChange), useRef(true)]
  told.current = onChange
  const code = useMemo(() => {
    let leaving = new AbortController()
    const check = async (view: EditorView) => {
      leaving.abort()
      leaving = new AbortController()
      const { doc } = view.state
      const isEmpty = !isChecked || !/\S/.test(doc.toString())
      const look = isEmpty ? Promise.resolve(NOTHING) : findingsIn(doc, toolId, leaving.signal)
      const found = await look.catch((problem): Found => ({ ...NOTHING, text: doc.toString(), problem }))
      if (view.state.doc !== doc) return []
      if (isAway(found.problem)) setTimeout(() => view.dispatch({ effects: again.of(null) }), AGAIN_AFTER_MS)
      setFound(found)
      setStale(false)
      told.current?.(found)
      const places = found.findings.map(({ from }) => from)
      const first = EditorView.scrollIntoView(Math.min(...places), { y: 'center' })
      if (isFirstShown.current && places.length > 0) view.dispatch({ effects: first })
      isFirstShown.current = false
      return found.findings
    }
    const needsRefresh = (update: ViewUpdate) =>
      update.transactions.some(({ effects }) => effects.some(each => each.is(again)))
    const back = keymap.of([{ key: 'Shift-F8', run: previousDiagnostic }])
    return [back, linter(check, { delay: CHECK_AFTER_MS, needsRefresh })]
  }, [])
  const onView = (made: EditorView) => Object.assign(view, { current: made })
  const put = (insert: string) => {
    const to = view.current?.state.doc.length ?? 0
    view.current?.dispatch({ changes: { from: 0, to, insert }, userEvent: 'input.paste' })
    setTimeout(() => view.current?.focus()) // after the dialog has closed
  }
  const open = async (holder: { files: FileList | null; value?: string }) => {
    const [file] = holder.files ?? []
    if (file && file.size > FILE_BYTES_MAX) setUnread(`${file.name} is larger than 16 MiB, the limit for a file`)
    else if (file) await readText(file).then(put, setUnread)
    holder.value = ''
  }
  const drop = (event: DragEvent) => {
    if (!event.dataTransfer?.files.length || !onChange) return
    event.preventDefault()
    event.stopPropagation()
    open(event.dataTransfer)
  }
  const goTo = (from: number) => {
    const anchor = Math.min(from, view.current?.state.doc.length ?? 0) // the text may have changed since the check
    view.current?.dispatch({ selection: { anchor }, scrollIntoView: true })
    view.current?.focus()
  }
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
          {faults > 0 && onChange && <Button label="Repair" class="main" onClick={() => setRepairing(true)} />}
          {onChange && (
            <label class="button">
              Open a file <input type="file" accept=".json,.yaml,.yml" onChange={event => open(event.currentTarget)} />
            </label>
          )}
        </div>
        <Problem problem={unread ?? (!isStale && problem)} repeats={!unread} />
        <div onDropCapture={drop}>
          <Editor label="OpenAPI definition" onType={typed} {...{ isReadOnly: !onChange, onView, code, text }} />
        </div>
      </div>
      <div>
        {findings.length > 0 && <h2>Faults and warnings</h2>}
        {findings.length > 1 && <Note text="F8 goes to the next entry, Shift+F8 to the previous." />}
        <ol class="findings">
          {findings.slice(0, SHOWN).map(({ severity, message, from, line }) => (
            <li class={severity}>
              <Button class="link" label={`${KINDS[severity]}, line ${line}`} onClick={() => goTo(from)} />
              {message}
            </li>
          ))}
        </ol>
        {findings.length > SHOWN && <Note text={`And ${(findings.length - SHOWN).toLocaleString('en')} more.`} />}
        {report.impact && <Agents impact={report.impact} />}
        {isChecked && <Functions list={report.functions ?? []} />}
      </div>
      {isRepairing && (
        <Repair text={view.current?.state.doc.toString() ?? ''} onPut={put} onClose={() => setRepairing(false)} />
      )}
    </div>
  )
}

function Repair({ text, onPut, onClose }: { text: string; onPut(text: string): void; onClose(): void }) {
  const [[typed, setTyped], [server, setServer]] = [useState(''), useState('')]
  const repaired = useRef('')
  const look = async (signal: AbortSignal) => {
    const { json, fault } = await inWorker<Read>({ text })
    if (json === undefined) throw fault?.msg
    const { report, faults } = await validated({ complete: 'true', ...(server && { server }) }, json, signal)
    const { edits = [], definition } = report.completed ?? {}
    const placed = JSON.stringify(edits.map(({ loc, after }) => ({ loc: loc.slice(2), after })))
    repaired.current = await inWorker({ text, definition: JSON.stringify(definition), edits: placed })
    const { json: result = json } = await inWorker<Read>({ text: repaired.current })
    const warnings = faults.map(({ msg }) => `To correct by hand: ${msg}`)
    return { before: { definition: parsed(json) }, after: { definition: parsed(result) }, warnings }
  }
  const send = async () => {
    onPut(repaired.current)
    onClose()
  }
  return (
    <Review key={server} title="Repair" label="Put this into the editor" {...{ look, send, onClose }}>
      <div class="bar">
        <Field label="Server URL, if the definition has none" type="url" value={typed} onChange={setTyped} />
        <Button label="Use this server" onClick={() => setServer(typed.trim())} />
      </div>
    </Review>
  )
}

function Functions({ list }: { list: { name: string }[] }) {
  const some = `${counted(list.length, 'function')}${list.length > SHOWN ? `. The first ${SHOWN} are:` : '.'}`
  return (
    <section>
      <h2>What a model gets</h2>
      <Note text={list.length > 0 ? some : 'Functions appear here once the definition has no faults.'} />
      {list.slice(0, SHOWN).map(({ name, ...rest }) => (
        <details>
          <summary>{visible(name)}</summary>
          <pre>{visible(outline(rest))}</pre>
        </details>
      ))}
    </section>
  )
}

export function Agents({ impact: { changes, agents }, target }: { impact: ImpactReport; target?: string }) {
  const { ids, others } = agents
  const [rows = []] = useLists(ids.length > 0, 'agents')
  const names = new Map(rows.map(({ id, name }) => [id, name]))
  const unseen = others > 0 ? `, ${others.toLocaleString('en')} of them not listed here` : ''
  const lines = changes.slice(0, SHOWN).map(({ operation, msg }) => (operation ? `${operation}: ${msg}` : msg))
  return (
    <section>
      <h2>{changes.length > 0 ? 'What changes, and for which agents' : 'Used by'}</h2>
      <Lines class="changes" lines={lines} />
      <p class="use">{`${counted(ids.length + others, 'agent')}${unseen}.`}</p>
      <Chips
        noun="agent"
        rows={ids.map(id => ({ id }))}
        textOf={({ id }) => names.get(id) ?? `Agent ${id}`}
        linkOf={({ id }) => ({ href: `#/agents/${id}`, target })}
      />
    </section>
  )
}
