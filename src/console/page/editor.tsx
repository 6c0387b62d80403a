import { defaultKeymap, history, historyKeymap } from '@codemirror/commands'
import { json } from '@codemirror/lang-json'
import { yaml } from '@codemirror/lang-yaml'
import { bracketMatching, foldGutter, syntaxHighlighting } from '@codemirror/language'
import { type Diagnostic, lintGutter, nextDiagnostic, previousDiagnostic, setDiagnostics } from '@codemirror/lint'
import { highlightSelectionMatches, search, searchKeymap } from '@codemirror/search'
import { Annotation, Compartment, EditorState } from '@codemirror/state'
import { drawSelection, EditorView, highlightSpecialChars, keymap, lineNumbers } from '@codemirror/view'
import { classHighlighter } from '@lezer/highlight'
import { useEffect, useRef } from 'preact/hooks'

export { nextDiagnostic, previousDiagnostic }

const fromOutside = Annotation.define<boolean>()
/** Marks what else cannot be seen or turns the text around. */
const SPECIAL = /(?![\n\t])[\p{Default_Ignorable_Code_Point}\u2060-\u206f]/gu
const nonce = document.querySelector<HTMLScriptElement>('script[nonce]')?.nonce ?? ''

export interface EditorProps {
  label: string
  text: string
  /** Called while somebody types: at once, with a function that makes the text. */
  onType(read: () => string, isPasted: boolean): void
  isCode?: boolean
  isReadOnly?: boolean
  describedBy?: string
  onView?(view: EditorView): void
}

/** CodeMirror: a prompt, or a definition in JSON or YAML with its faults at their lines. Tab leaves it. */
export function Editor({ label, text, onType, isCode = false, isReadOnly = false, describedBy, onView }: EditorProps) {
  const [place, view, known, told] = [useRef<HTMLDivElement>(null), useRef<EditorView>(), useRef(text), useRef(onType)]
  told.current = onType
  useEffect(() => {
    const language = new Compartment()
    const modeOf = (start: string) => (isCode ? (/^\s*[{[]/.test(start) ? json() : yaml()) : [])
    let mode = text.trimStart()[0]
    const code = [lineNumbers(), foldGutter(), bracketMatching(), lintGutter(), highlightSelectionMatches()]
    const isPasted = (events: readonly { isUserEvent(event: string): boolean }[]) =>
      events.some(each => each.isUserEvent('input.paste') || each.isUserEvent('input.drop'))
    view.current = new EditorView({
      parent: place.current as HTMLDivElement,
      doc: text,
      extensions: [
        EditorView.cspNonce.of(nonce),
        [
          history(),
          drawSelection(),
          search({ top: true }),
          keymap.of([...defaultKeymap, ...historyKeymap, ...searchKeymap]),
        ],
        keymap.of([
          { key: 'F8', run: nextDiagnostic },
          { key: 'Shift-F8', run: previousDiagnostic },
        ]),
        highlightSpecialChars({ addSpecialChars: SPECIAL }),
        syntaxHighlighting(classHighlighter),
        language.of(modeOf(text)),
        isCode ? code : EditorView.lineWrapping,
        EditorState.readOnly.of(isReadOnly),
        EditorView.contentAttributes.of({
          'aria-label': label,
          tabindex: '0',
          ...(describedBy && { 'aria-describedby': describedBy }),
        }),
        EditorView.updateListener.of(({ docChanged, state, view, transactions }) => {
          if (!docChanged) return
          const start = state.sliceDoc(0, 100).trimStart()[0]
          if (isCode && (start === '{') !== (mode === '{')) {
            mode = start
            queueMicrotask(() => view.dispatch({ effects: language.reconfigure(modeOf(start ?? '')) }))
          }
          if (transactions.some(each => each.annotation(fromOutside))) return
          told.current(() => {
            known.current = view.state.doc.toString()
            return known.current
          }, isPasted(transactions))
        }),
      ],
    })
    onView?.(view.current)
    return () => view.current?.destroy()
  }, [isCode, isReadOnly, label])
  useEffect(() => {
    const { current } = view
    if (!current || text === known.current) return
    known.current = text
    current.dispatch({
      changes: { from: 0, to: current.state.doc.length, insert: text },
      annotations: fromOutside.of(true),
    })
  }, [text])
  return <div ref={place} class={isCode ? 'editor code' : 'editor'} />
}

/** Shows faults and warnings at their lines, and the first one if it should be in view. */
export function showFindings(view: EditorView, findings: Diagnostic[], isFirstShown: boolean) {
  const { length } = view.state.doc
  const within = findings.map(each => ({
    ...each,
    from: Math.min(each.from, length),
    to: Math.min(Math.max(each.to, each.from), length),
  }))
  view.dispatch(setDiagnostics(view.state, within))
  const [first] = within.toSorted((a, b) => a.from - b.from)
  if (first && isFirstShown) view.dispatch({ effects: EditorView.scrollIntoView(first.from, { y: 'center' }) })
}

export function goTo(view: EditorView, from: number) {
  view.dispatch({ selection: { anchor: Math.min(from, view.state.doc.length) }, scrollIntoView: true })
  view.focus()
}
