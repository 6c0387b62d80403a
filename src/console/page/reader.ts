/* The worker that reads definitions: large texts would keep the page from answering. */
import { jsonLanguage } from '@codemirror/lang-json'
import { isNode, LineCounter, parseDocument, stringify } from 'yaml'

type Path = (string | number)[]
export interface Place {
  from: number
  to: number
}
export interface Read {
  /** The definition as JSON, with numbers as they are written in JSON. */
  json?: string
  fault?: Place & { msg: string }
}
export interface Edit {
  loc: Path
  after?: unknown
}
export type Task = { text: string } | { paths: Path[] } | { text: string; definition: string; edits: Edit[] }

type Locate = (path: Path) => Place | undefined
let locate: Locate = () => undefined

function readJson(text: string): Read {
  const tree = jsonLanguage.parser.parse(text)
  locate = path => {
    let node = tree.topNode.firstChild
    let found: Place | undefined
    for (const step of path) {
      if (node?.name === 'Array') {
        let item = node.firstChild?.nextSibling ?? null
        for (let i = 0; item && i < Number(step); item = item.nextSibling) if (item.name !== ',') i++
        while (item?.name === ',') item = item.nextSibling
        if (!item || item.name === ']') break
        found = item
        node = item
        continue
      }
      const names = node?.getChildren('Property').map(property => property.getChild('PropertyName')) ?? []
      const name = names.find(each => each && JSON.parse(text.slice(each.from, each.to)) === String(step))
      if (!name) break
      found = { from: name.from, to: name.to }
      node = name.parent?.lastChild ?? null
    }
    return found
  }
  try {
    JSON.parse(text)
    return { json: text }
  } catch (error) {
    let from = text.length
    tree.iterate({
      enter: node => {
        if (node.type.isError) from = Math.min(from, node.from)
      },
    })
    const said = (error as Error).message.replace(
      / in JSON at position.*| \(line.*|, "?\.\.\..*| is not valid JSON/gs,
      '',
    )
    return { fault: { from, to: Math.min(from + 1, text.length), msg: `This is not JSON: ${said}` } }
  }
}

function readYaml(text: string): Read {
  const document = parseDocument(text, { lineCounter: new LineCounter(), prettyErrors: false, merge: true })
  locate = path => {
    for (let length = path.length; length > 0; length--) {
      const parent = document.getIn(path.slice(0, length - 1), true)
      const last = path[length - 1]
      const items = (parent as { items?: { key?: unknown; value?: unknown }[] })?.items ?? []
      const keyOf = (key: unknown) => String(isNode(key) ? (key as { value?: unknown }).value : key)
      const node =
        items.find(item => item.key !== undefined && keyOf(item.key) === String(last))?.key ?? items[Number(last)]
      if (isNode(node) && node.range) return { from: node.range[0], to: node.range[1] }
    }
    return undefined
  }
  const [error] = document.errors
  if (error) return { fault: { from: error.pos[0], to: error.pos[1], msg: `This is not YAML: ${error.message}` } }
  const json = JSON.stringify(document.toJS())
  if (json?.[0] !== '{')
    return {
      fault: {
        from: 0,
        to: 1,
        msg: 'This is no OpenAPI document: it begins with `openapi:` in YAML, or with { in JSON',
      },
    }
  return { json }
}

/** The text with the edits of a completion. YAML keeps its comments, unless the edits do not make the completed definition. */
function edited(text: string, definition: string, edits: Edit[]): string {
  const completed = JSON.parse(definition)
  if (isJson(text)) return JSON.stringify(completed, null, 2)
  const document = parseDocument(text, { merge: true })
  try {
    for (const { loc, after } of edits) document.setIn(loc, document.createNode(after))
    if (JSON.stringify(document.toJS()) === JSON.stringify(completed)) return String(document)
  } catch {} // an edit of what an alias stands for
  return stringify(completed)
}

const isJson = (text: string) => /^\s*[{[]/.test(text)

addEventListener('message', ({ data }: MessageEvent<Task & { id: number }>) => {
  const { id } = data
  if ('paths' in data) return postMessage({ id, answer: data.paths.map(path => locate(path)) })
  if ('edits' in data) return postMessage({ id, answer: edited(data.text, data.definition, data.edits) })
  try {
    postMessage({ id, answer: isJson(data.text) ? readJson(data.text) : readYaml(data.text) })
  } catch (error) {
    postMessage({ id, answer: { fault: { from: 0, to: 1, msg: `This cannot be read: ${(error as Error).message}` } } })
  }
})
