import { isDeepStrictEqual } from 'node:util'
import {
  type Document,
  isAlias,
  isMap,
  isNode,
  isScalar,
  isSeq,
  type Node,
  type Pair,
  parseDocument,
  type ScalarTag,
  type Tags,
  visit,
  type YAMLMap,
} from 'yaml'
import type { Loc } from '../errors.js'
import { numberReplacer, stringifyExact, withoutMarks } from '../schema/exact-json.js'
import type { Edit } from '../tool/definition/index.js'
import { aliasTargets, isMerge, parseSource } from './source.js'

/**
 * The text of a definition with the edits applied: JSON in the indentation it has, YAML with its comments, order and numbers.
 * `completed` is what the edits lead to; it is written anew where the definition was converted as a whole, and where an edit of
 * what an alias shares would change another place. The text must be one that `parseSource` takes.
 */
export function editedText(text: string, edits: readonly Edit[], completed: unknown): string {
  if (edits.length === 0) return text
  const withLineEnds = (written: string) => (text.includes('\r\n') ? written.replaceAll('\n', '\r\n') : written)
  const indent = jsonIndent(text)
  if (indent !== undefined) return withLineEnds(`${stringifyExact(completed, indent)}\n`)
  if (edits.some(each => each.path.length === 0)) return withLineEnds(yamlOf(text, [], completed))
  const edited = yamlOf(text, edits)
  const isSame = isDeepStrictEqual(parseSource(edited).value, completed)
  return withLineEnds(isSame ? edited : yamlOf(text, [], completed))
}

/** The YAML text with the edits, or with another content. */
function yamlOf(text: string, edits: readonly Edit[], content?: unknown): string {
  const document = parseDocument(text, {
    logLevel: 'error',
    merge: true,
    uniqueKeys: false,
    customTags: withWrittenNumbers,
  })
  if (content !== undefined) document.contents = nodeOf(document, content) as Document.Parsed['contents']
  for (const edit of edits) applyEdit(document, edit)
  // Lists that stand under their key without indentation stay so.
  const indentSeq = !/^( *)[^\s#-][^\n]*:[^\S\n]*\n\1- /m.test(text)
  return withoutMarks(document.toString({ lineWidth: 0, indentSeq }))
}

/** Tags under which a number is written as it was read: a double would change it. */
function withWrittenNumbers(tags: Tags): Tags {
  return tags.map(tag => {
    if (typeof tag !== 'object' || !('stringify' in tag) || !/:(int|float)$/.test(tag.tag)) return tag
    const { stringify } = tag
    const written: ScalarTag['stringify'] = (item, ...rest) =>
      isScalar(item) && item.type === 'PLAIN' && item.source !== undefined
        ? item.source
        : ((stringify as ScalarTag['stringify'])?.(item, ...rest) ?? String(item.value)) // a number's tag is that of a scalar
    return { ...tag, stringify: written } as ScalarTag
  })
}

function nodeOf(document: Document, value: unknown): Node {
  return document.createNode(value, numberReplacer, { aliasDuplicateObjects: false }) as Node
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
    const pair = op === 'remove' ? pairAt(document, container, key) : ownPair(container, key)
    if (op === 'remove') container.items.splice(container.items.indexOf(pair as Pair), pair === undefined ? 0 : 1)
    else if (pair === undefined) container.items.push(document.createPair(key, nodeOf(document, value)))
    else pair.value = withComments(pair.value, nodeOf(document, value))
  } else if (isSeq(container)) {
    if (op === 'remove') container.items.splice(Number(key), 1)
    else container.items[Number(key)] = withComments(container.items[Number(key)], nodeOf(document, value))
  }
}

/** What stands in the place of a scalar keeps the comments beside it. */
function withComments(replaced: unknown, node: Node): Node {
  if (isScalar(replaced) && isScalar(node)) {
    const { comment, commentBefore, spaceBefore } = replaced
    Object.assign(node, { comment, commentBefore, spaceBefore })
  }
  return node
}

/** The collection at a place. An alias on the way becomes a copy of its own, as the edit means this place alone. */
function containerAt(document: Document.Parsed, path: Loc): unknown {
  let node: unknown = document.contents
  for (const step of path) {
    if (isMap(node)) {
      const pair = pairAt(document, node, step)
      if (pair === undefined) return undefined
      pair.value = ownCopy(document, pair.value)
      node = pair.value
    } else if (isSeq(node)) {
      node.items[Number(step)] = ownCopy(document, node.items[Number(step)])
      node = node.items[Number(step)]
    } else {
      return undefined
    }
  }
  return node
}

/** The pair of a key. Where a merge (`<<`) gives it, the map gets pairs of its own in the place of the merge. */
function pairAt(document: Document, map: YAMLMap, key: string | number): Pair | undefined {
  const own = ownPair(map, key)
  if (own !== undefined || !map.items.some(pair => isMerge(pair.key))) return own
  expandMerges(document, map)
  return ownPair(map, key)
}

function ownPair(map: YAMLMap, key: unknown): Pair | undefined {
  return map.items.find(pair => isScalar(pair.key) && !isMerge(pair.key) && String(pair.key.value) === String(key))
}

function expandMerges(document: Document, map: YAMLMap): void {
  for (;;) {
    const at = map.items.findIndex(pair => isMerge(pair.key))
    if (at === -1) return
    const [merge] = map.items.splice(at, 1)
    const list = ownCopy(document, merge?.value)
    const pairs: Pair[] = []
    for (const each of isSeq(list) ? list.items : [list]) {
      const source = ownCopy(document, each)
      if (!isMap(source)) continue
      expandMerges(document, source)
      for (const pair of source.items) {
        const key = isScalar(pair.key) ? pair.key.value : pair.key
        const isTaken = pairs.some(other => isScalar(other.key) && other.key.value === key)
        if (!isTaken && ownPair(map, key) === undefined) pairs.push(pair)
      }
    }
    map.items.splice(at, 0, ...pairs)
  }
}

/** What the aliases of a text stand for, as they were read. */
const targetsOf = new WeakMap<Document, ReturnType<typeof aliasTargets>>()

function ownCopy(document: Document, node: unknown): unknown {
  if (!isAlias(node)) return node
  const targets = targetsOf.get(document) ?? aliasTargets(document)
  targetsOf.set(document, targets)
  // An alias in a copy was not read.
  const target = targets.has(node) ? targets.get(node) : node.resolve(document)
  const copy = target?.clone() as Node | undefined
  // A name that stands twice would lead the aliases behind it here.
  if (isNode(copy)) visit(copy, { Node: (_, inner) => void (isAlias(inner) || delete inner.anchor) })
  return copy
}
