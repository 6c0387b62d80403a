import { readFileSync } from 'node:fs'
import { buffer } from 'node:stream/consumers'
import { type Document, isCollection, isMap, isNode, isScalar, LineCounter, type Pair, parseDocument } from 'yaml'
import type { Loc } from '../errors.js'
import { Refusal } from './refusal.js'

/** A parsed JSON or YAML document. */
export interface Source {
  value: unknown
  isJson: boolean
  /** Returns the line number (from 1) of the value at each path. A missing value gets the line of its nearest existing parent. */
  linesOf(locs: readonly Loc[]): number[]
}

/** Reads a JSON or YAML file. Throws `Refusal` if the file is unreadable, not UTF-8, or neither JSON nor YAML. */
export function readSource(path: string): Source {
  let bytes: Buffer
  try {
    bytes = readFileSync(path)
  } catch (error) {
    throw new Refusal(`${path} cannot be read (${(error as NodeJS.ErrnoException).code}): check the path`) // errors of readFileSync have a code
  }
  return parseSource(decoded(bytes, path))
}

/** Like `readSource`, for a path from the command line. `-` means standard input. */
export async function readGivenSource(path: string): Promise<Source> {
  if (path !== '-') return readSource(path)
  return parseSource(decoded(await buffer(process.stdin), 'standard input'))
}

function decoded(bytes: Buffer, name: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    throw new Refusal(`${name} is not UTF-8: convert it to UTF-8`)
  }
}

/** YAML warnings that count as errors, because the parser drops part of the text. */
const LOSING: ReadonlySet<string> = new Set(['TAG_RESOLVE_FAILED', 'BAD_DIRECTIVE', 'BAD_COLLECTION_TYPE'])

/**
 * Parses JSON, or YAML 1.2 with merge keys (`<<`). Throws `Refusal` with the lines of the syntax errors. The messages do not quote the text, because
 * it may contain secrets.
 */
export function parseSource(text: string): Source {
  try {
    return { value: JSON.parse(text), isJson: true, linesOf: locs => linesIn(parsed(text, false), locs) }
  } catch {
    // JSON is tried first, because parsing JSON is much faster than parsing YAML.
  }
  try {
    const found = parsed(text, true)
    // Nested aliases can expand a few lines to gigabytes, so the number of aliases is limited.
    return { value: found.document.toJS({ maxAliasCount: 100 }), isJson: false, linesOf: locs => linesIn(found, locs) }
  } catch (error) {
    if (error instanceof Refusal) throw error
    const { message } = error as Error // may quote the text, so the message is not shown
    if (message.startsWith('Merge')) throw new Refusal('a merge (<<) must refer to a mapping')
    if (message.startsWith('Excessive'))
      throw new Refusal('the aliases (*name) expand to too many values: write the values instead')
    throw new Refusal('an alias (*name) has no anchor (&name) before it, or refers to itself: write the value instead')
  }
}

interface Parsed {
  document: Document
  counter: LineCounter
}

function parsed(text: string, uniqueKeys: boolean): Parsed {
  const counter = new LineCounter()
  const document = parseDocument(text, {
    merge: true,
    prettyErrors: false,
    logLevel: 'error',
    lineCounter: counter,
    uniqueKeys,
  })
  const losses = document.warnings.filter(({ code }) => LOSING.has(code))
  const faults = [...document.errors, ...losses].map(({ code, pos: [offset] }) => {
    const words = code === 'BAD_INDENT' ? 'wrong indent or unclosed bracket' : code.toLowerCase().replaceAll('_', ' ')
    return `line ${counter.linePos(offset).line}: ${words}`
  })
  if (faults.length > 0) throw new Refusal(`the text cannot be read as JSON or YAML: ${faults.slice(0, 20).join('; ')}`)
  return { document, counter }
}

function linesIn({ document, counter }: Parsed, locs: readonly Loc[]): number[] {
  return locs.map(loc => {
    let node: unknown = document.contents
    let offset = isNode(node) ? (node.range?.[0] ?? 0) : 0
    for (const step of loc) {
      if (!isCollection(node)) break
      const isStep = ({ key }: Pair) => isScalar(key) && String(key.value) === String(step)
      const pair = isMap(node) ? node.items.find(isStep) : undefined
      node = isMap(node) ? pair?.value : node.get(step, true)
      // Uses the line of the key, because the value may begin on a later line.
      const place = pair?.key ?? node
      if (isNode(place) && place.range) offset = place.range[0]
    }
    return counter.linePos(offset).line
  })
}
