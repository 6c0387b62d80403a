/* Runs in a worker, because parsing a large definition would block the page. */
import { findNodeAtLocation, type ParseError, parseTree, printParseErrorCode } from 'jsonc-parser'
import { Document, isNode, isScalar, parseDocument, type ScalarTag, stringify, type Tags } from 'yaml'
import { isRawJSON, numberOf, parsed } from './numbers.js'

type Path = (string | number)[]
export interface Place {
  from: number
  to: number
}
export interface Read {
  /** The definition as JSON text. JSON input is unchanged, so its numbers keep their form. */
  json?: string
  fault?: Place & { msg: string }
}
export interface Edit {
  loc: Path
  after?: unknown
}
/** `edits` is JSON text, because a copy between threads would lose the form of numbers. */
export type Task = { text: string } | { paths: Path[] } | { text: string; definition: string; edits: string }

type Locate = (path: Path) => Place | undefined
let locate: Locate = () => undefined

function readJson(text: string): Read {
  const faults: ParseError[] = []
  const root = parseTree(text, faults, { disallowComments: true })
  locate = path => {
    for (let length = path.length; root && length > 0; length--) {
      const found = findNodeAtLocation(root, path.slice(0, length))
      const node = found?.parent?.type === 'property' ? found.parent.children?.[0] : found
      if (node) return { from: node.offset, to: node.offset + node.length }
    }
    return undefined
  }
  const [first] = faults
  if (!first) return { json: text }
  const said = printParseErrorCode(first.error).replace(/\B[A-Z]/g, letter => ` ${letter.toLowerCase()}`)
  return { fault: { from: first.offset, to: first.offset + first.length, msg: `This is not JSON: ${said}` } }
}

const NO_DOCUMENT = 'An OpenAPI document must be an object, but this is a list or a single value'

const NUMBER: ScalarTag = {
  tag: 'tag:yaml.org,2002:float',
  default: true,
  test: /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?$/,
  resolve: numberOf,
  identify: isRawJSON,
  stringify: ({ value }) => (isRawJSON(value) ? value.rawJSON : String(value)),
}
const OPTIONS = { prettyErrors: false, merge: true, customTags: (tags: Tags): Tags => [NUMBER, ...tags] }

/** A replacer for `JSON.stringify`. Throws for numbers that JSON cannot represent exactly, such as `.inf` and large hexadecimal numbers. */
function writable(name: string, value: unknown) {
  if (typeof value !== 'number' || Math.abs(value) <= Number.MAX_SAFE_INTEGER) return value
  throw Error(`JSON cannot hold the number in "${name}" exactly. Write the number in decimal digits or in quotes.`)
}

function readYaml(text: string): Read {
  const document = parseDocument(text, OPTIONS)
  locate = path => {
    for (let length = path.length; length > 0; length--) {
      const parent = document.getIn(path.slice(0, length - 1), true)
      const last = path[length - 1]
      const items = (parent as { items?: { key?: unknown; value?: unknown }[] })?.items ?? []
      const keyOf = (key: unknown) => String(isScalar(key) ? (key.source ?? key.value) : key)
      const node =
        items.find(item => item.key !== undefined && keyOf(item.key) === String(last))?.key ?? items[Number(last)]
      if (isNode(node) && node.range) return { from: node.range[0], to: node.range[1] }
    }
    return undefined
  }
  const [error] = document.errors
  if (error) return { fault: { from: error.pos[0], to: error.pos[1], msg: `This is not YAML: ${error.message}` } }
  const json = JSON.stringify(document.toJS(), writable)
  return json?.[0] === '{' ? { json } : { fault: { from: 0, to: 1, msg: NO_DOCUMENT } }
}

/** Edits `text` so that it has the completed `definition`. Keeps YAML comments and the form of numbers, unless this is impossible. */
function edited(text: string, definition: string, edits: Edit[]): string {
  const [asJson, completed] = [isJson(text), parsed(definition)]
  const document = asJson ? new Document(parsed(text), OPTIONS) : parseDocument(text, OPTIONS)
  try {
    for (const { loc, after } of edits) document.setIn(loc, document.createNode(after))
    const own = document.toJS()
    if (JSON.stringify(JSON.parse(JSON.stringify(own))) === definition)
      return asJson ? JSON.stringify(own, null, 2) : String(document)
  } catch {} // an edit inside a YAML alias fails
  return asJson ? JSON.stringify(completed, null, 2) : stringify(completed, OPTIONS)
}

const isJson = (text: string) => /^\s*[{[]/.test(text)

addEventListener('message', ({ data }: MessageEvent<Task & { id: number }>) => {
  const { id } = data
  if ('paths' in data) return postMessage({ id, answer: data.paths.map(path => locate(path)) })
  if ('edits' in data) return postMessage({ id, answer: edited(data.text, data.definition, parsed(data.edits)) })
  try {
    postMessage({ id, answer: (isJson(data.text) ? readJson : readYaml)(data.text) })
  } catch (error) {
    postMessage({ id, answer: { fault: { from: 0, to: 1, msg: `This cannot be read: ${(error as Error).message}` } } })
  }
})
