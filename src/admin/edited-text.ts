import { type Document, isAlias, isMap, isScalar, isSeq, type Node, parseDocument } from 'yaml'
import type { Loc } from '../errors.js'
import { stringifyExact } from '../schema/exact-json.js'
import type { Edit } from '../tool/definition/index.js'

/**
 * The text of a definition with the edits applied: JSON in the indentation it has, YAML with its comments and order. `completed` is
 * what the edits lead to; it is written anew where the definition was converted as a whole. The text must be one that
 * `parseSource` takes.
 */
export function editedText(text: string, edits: readonly Edit[], completed: unknown): string {
  if (edits.length === 0) return text
  const indent = jsonIndent(text)
  if (indent !== undefined) return `${stringifyExact(completed, indent)}\n`
  const document = parseDocument(text, { logLevel: 'error' })
  for (const edit of edits) {
    if (edit.path.length === 0) document.contents = document.createNode(completed) as Document.Parsed['contents']
    else applyEdit(document, edit)
    // What follows the conversion of the whole is in its result already.
    if (edit.path.length === 0) break
  }
  return document.toString({ lineWidth: 0 })
}

/** Spaces of the first indentation of a JSON text, 0 for one on a single line; undefined for a text that is not JSON. */
function jsonIndent(text: string): number | undefined {
  try {
    JSON.parse(text)
  } catch {
    return undefined
  }
  return /^[{[]\s*?\n( +)/.exec(text.trimStart())?.[1]?.length ?? (text.trim().includes('\n') ? 2 : 0)
}

function applyEdit(document: Document.Parsed, { op, path, value }: Edit): void {
  const key = path.at(-1) as string | number // an edit of the whole was handled before
  const container = containerAt(document, path.slice(0, -1))
  if (isMap(container)) {
    const index = container.items.findIndex(pair => isScalar(pair.key) && String(pair.key.value) === String(key))
    const pair = container.items[index]
    if (op === 'remove') container.items.splice(index, index === -1 ? 0 : 1)
    else if (pair === undefined) container.items.push(document.createPair(key, value))
    else pair.value = document.createNode(value)
  } else if (isSeq(container)) {
    if (op === 'remove') container.items.splice(Number(key), 1)
    else container.items[Number(key)] = document.createNode(value)
  }
}

/** The collection at a place. An alias on the way becomes a copy of its own, as the edit means this place alone. */
function containerAt(document: Document.Parsed, path: Loc): Node | null | undefined {
  let node: Node | null | undefined = document.contents
  for (const step of path) {
    if (isMap(node)) {
      const pair = node.items.find(each => isScalar(each.key) && String(each.key.value) === String(step))
      if (pair === undefined) return undefined
      pair.value = ownCopy(document, pair.value)
      node = pair.value as Node | null
    } else if (isSeq(node)) {
      node.items[Number(step)] = ownCopy(document, node.items[Number(step)])
      node = node.items[Number(step)] as Node | null | undefined
    } else {
      return undefined
    }
  }
  return node
}

function ownCopy(document: Document.Parsed, node: unknown): unknown {
  if (!isAlias(node)) return node
  const copy = node.resolve(document)?.clone() as Node | undefined
  if (copy !== undefined && 'anchor' in copy) delete copy.anchor
  return copy
}
