import { yaml } from '@codemirror/lang-yaml'
import { syntaxHighlighting } from '@codemirror/language'
import { lintGutter } from '@codemirror/lint'
import { Compartment, EditorState, type Extension } from '@codemirror/state'
import { EditorView, highlightSpecialChars } from '@codemirror/view'
import { classHighlighter } from '@lezer/highlight'
import { basicSetup, minimalSetup } from 'codemirror'
import { useEffect, useRef } from 'preact/hooks'

/** Characters that the editor marks in addition to its default ones, because they are invisible or change the direction of text. */
const SPECIAL = /(?![\n\t])[\p{Default_Ignorable_Code_Point}\u2060-\u206f]/gu
const nonce = document.querySelector<HTMLScriptElement>('script[nonce]')?.nonce ?? ''
const BASE = [EditorView.cspNonce.of(nonce), highlightSpecialChars({ addSpecialChars: SPECIAL })]
/** JSON is a subset of YAML, so one mode highlights both. Large text is not highlighted, because parsing it would block the page. */
const [YAML, PLAIN, LARGE]: [Extension, Extension, number] = [yaml(), [], 200_000]
const modeOf = (length: number) => (length > LARGE ? PLAIN : YAML)
const language = new Compartment()
const follow = EditorState.transactionExtender.of(({ startState, newDoc }) => {
  const mode = modeOf(newDoc.length)
  return mode === language.get(startState) ? null : { effects: language.reconfigure(mode) }
})
const CODE = [basicSetup, follow, syntaxHighlighting(classHighlighter), lintGutter()]
const PROSE = [minimalSetup, EditorView.lineWrapping]

interface EditorProps {
  label: string
  text: string
  onType(read: () => string, isPasted: boolean): void
  isReadOnly?: boolean
  code?: Extension
  onView?(view: EditorView): unknown
}

/** A CodeMirror editor for a prompt or a definition. The Tab key moves the focus out of the editor. */
export function Editor({ label, text, onType, isReadOnly = false, code, onView }: EditorProps) {
  const [place, told] = [useRef<HTMLDivElement>(null), useRef(onType)]
  told.current = onType
  useEffect(() => {
    const attributes = { 'aria-label': label, tabindex: '0', 'aria-readonly': String(isReadOnly) }
    const view = new EditorView({
      parent: place.current as HTMLDivElement,
      doc: text,
      extensions: [
        BASE,
        code ? [CODE, code, language.of(modeOf(text.length))] : PROSE,
        EditorState.readOnly.of(isReadOnly),
        EditorView.contentAttributes.of(attributes),
        EditorView.updateListener.of(({ docChanged, view, transactions }) => {
          const isPasted = transactions.some(each => each.isUserEvent('input.paste') || each.isUserEvent('input.drop'))
          if (docChanged) told.current(() => view.state.doc.toString(), isPasted)
        }),
      ],
    })
    onView?.(view)
    return () => view.destroy()
  }, [isReadOnly])
  return <div ref={place} class={code ? 'editor code' : 'editor'} />
}
