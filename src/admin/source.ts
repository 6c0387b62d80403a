import { closeSync, openSync, readSync } from 'node:fs'
import {
  Composer,
  type CST,
  type Document,
  isCollection,
  isMap,
  isScalar,
  Lexer,
  LineCounter,
  Parser,
  type Scalar,
  visit,
} from 'yaml'
import type { Loc } from '../errors.js'
import { placeIn } from '../validation/json-body.js'
import { JsonRefused, scanJson } from '../validation/json-scanner.js'
import { Refusal } from './refusal.js'
import { markedNumber, parseMarked, unmarked } from './written-numbers.js'

/** A parsed JSON or YAML text. */
export interface Source {
  value: unknown
  /** The YAML document with its comments; undefined for JSON. */
  document?: Document
  /** The lines (from 1) of the values at these places, or of their nearest parents. */
  linesOf(locs: readonly Loc[]): number[]
}

/** The most bytes read from a file or standard input. A device or pipe may never end. */
const BYTES_MAX = 256 * 2 ** 20

/** Reads a JSON or YAML file. Throws `Refusal` if it is unreadable or neither. */
export function readSource(path: string): Source {
  return parseSource(readText(path))
}

/** The text of a file. Throws `Refusal` if it is unreadable, too large, or not text. */
export function readText(path: string): string {
  const pieces = new Pieces(path)
  try {
    const file = openSync(path, 'r')
    try {
      while (pieces.add(readPiece(file)));
    } finally {
      closeSync(file)
    }
  } catch (error) {
    if (error instanceof Refusal) throw error
    throw new Refusal(`${path} cannot be read (${reasonOf(error)})`)
  }
  return pieces.text()
}

function readPiece(file: number): Buffer {
  const piece = Buffer.allocUnsafe(2 ** 16)
  return piece.subarray(0, readSync(file, piece))
}

/** `readSource` for an argument of the command line, where `-` is standard input. */
export async function readGivenSource(path: string): Promise<Source> {
  if (path !== '-') return readSource(path)
  // Read as a stream: synchronous reads fail on a non-blocking pipe.
  const pieces = new Pieces('standard input')
  for await (const piece of process.stdin) pieces.add(piece)
  return parseSource(pieces.text())
}

/** Collects the pieces of an input. `name` is for messages. */
class Pieces {
  readonly #pieces: Buffer[] = []
  #bytes = 0

  constructor(readonly name: string) {}

  /** Returns false at the end. Throws `Refusal` if there is too much. */
  add(piece: Buffer): boolean {
    this.#pieces.push(piece)
    this.#bytes += piece.length
    if (this.#bytes > BYTES_MAX) throw new Refusal(`${this.name} has more than ${BYTES_MAX / 2 ** 20} MiB`)
    return piece.length > 0
  }

  /**
   * Decodes UTF-8, or UTF-16 with its byte order mark, which Windows shells write. Throws `Refusal` for other encodings: a guess could
   * store another text than was written.
   */
  text(): string {
    const bytes = Buffer.concat(this.#pieces)
    const [first, second] = bytes
    const encoding =
      first === 0xff && second === 0xfe ? 'utf-16le' : first === 0xfe && second === 0xff ? 'utf-16be' : 'utf-8'
    const text = decoded(bytes, encoding)
    if (text !== undefined && !text.includes('\0')) return text
    if (encoding !== 'utf-8') throw new Refusal(`${this.name} has the byte order mark of UTF-16, and is not UTF-16`)
    // In UTF-8 a newline or NUL byte is never part of another character.
    for (let line = 1, start = 0; ; line++) {
      const end = bytes.indexOf('\n', start)
      const content = decoded(bytes.subarray(start, end < 0 ? bytes.length : end), encoding)
      if (content === undefined || content.includes('\0')) {
        const what = content === undefined ? 'is not UTF-8' : 'has a NUL character, so this is not UTF-8 text'
        throw new Refusal(`line ${line} of ${this.name} ${what}: save it as UTF-8`)
      }
      start = end + 1
    }
  }
}

function decoded(bytes: Buffer, encoding: string): string | undefined {
  try {
    return new TextDecoder(encoding, { fatal: true }).decode(bytes)
  } catch {
    return undefined
  }
}

/** The code of a system error, without the path. */
export function reasonOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : String(error)
}

/**
 * Parses JSON or YAML. Valid JSON is read by the rules of JSON, as over HTTP (the last of duplicate keys counts). A text that starts like
 * JSON, with a brace and a quoted key, must be JSON. Other texts are YAML 1.2 with merge keys (`<<`). Throws `Refusal` with the line of
 * each syntax fault. Messages never quote the text, which may contain a secret.
 */
export function parseSource(given: string): Source {
  const text = given.replace(/^\uFEFF/, '') // editors and shells of Windows write this mark
  const json = jsonValue(text)
  if (json !== undefined) {
    return { value: json.value, linesOf: locs => linesInJson(text, locs) }
  }
  if (/^\s*\{\s*"/.test(text)) {
    throw new UnreadableText([syntaxFault(text)])
  }
  const counter = new LineCounter()
  counter.addNewLine(0)
  const [document, ...others] = new Composer({ merge: true, logLevel: 'error' }).compose(
    tokensOf(text, counter),
    true,
    text.length,
  )
  if (document === undefined) throw new Error('a text has one document at least') // as the composer is asked for it
  const found = [...document.errors, ...document.warnings.filter(({ code }) => LOSING.has(code))].map(
    ({ code, pos: [offset] }) => ({ line: counter.linePos(offset).line, msg: SYNTAX[code] ?? wordsOf(code) }),
  )
  for (const { range } of others) found.push({ line: counter.linePos(range[0]).line, msg: 'a second document begins' })
  const [left = { line: 0 }] = found.splice(FAULTS_MAX)
  if (left.line > 0) found.push({ line: left.line, msg: 'more faults follow, which are not listed' })
  if (found.length > 0) throw new UnreadableText(found)
  const linesOf = (locs: readonly Loc[]) => locs.map(loc => lineAt(document.contents, loc, counter))
  return { value: plainValue(document), document, linesOf }
}

/** The most syntax faults that are listed. */
const FAULTS_MAX = 100

/** The deepest nesting of a text, as of a JSON body. */
const DEPTH_MAX = 256

/**
 * The syntax tokens of a YAML text. Throws `UnreadableText` where it nests too deep, before anything recursive reads it: a recursion to the
 * end of the stack can end the process.
 */
function* tokensOf(text: string, counter: LineCounter): Generator<CST.Token, void> {
  const parser = new Parser(counter.addNewLine)
  for (const lexeme of new Lexer().lex(text)) {
    yield* parser.next(lexeme)
    if (parser.stack.length <= DEPTH_MAX) continue
    const { line } = counter.linePos(parser.offset)
    throw new UnreadableText([{ line, msg: `it nests more than ${DEPTH_MAX} deep` }])
  }
  yield* parser.end()
}

/** Messages for the error codes of `yaml`. Other codes are shown as words. */
const SYNTAX: Readonly<Record<string, string>> = {
  DUPLICATE_KEY: 'this key stands in its mapping twice',
  TAB_AS_INDENT: 'a tab indents this line: indent with spaces',
  BAD_INDENT: 'this line is not indented as its neighbours are',
  MISSING_CHAR: 'a character is missing, such as a closing quote or bracket',
  BLOCK_AS_IMPLICIT_KEY: 'a value on the line of its key begins another mapping: quote it',
  MULTILINE_IMPLICIT_KEY: 'a key or its quotes do not end on their line',
  UNEXPECTED_TOKEN: 'this is not expected here',
  TAG_RESOLVE_FAILED: 'the tag (!name) of this value is not known',
}
const wordsOf = (code: string) => code.toLowerCase().replaceAll('_', ' ')

/** A text is neither JSON nor YAML. `faults` has all syntax faults, with lines from 1. */
export class UnreadableText extends Refusal {
  constructor(readonly faults: { line: number; msg: string }[]) {
    super(`the text cannot be read: ${faults.map(({ line, msg }) => `line ${line}: ${msg}`).join('; ')}`)
  }
}

function syntaxFault(text: string): { line: number; msg: string } {
  try {
    scanJson(text, { depthMax: DEPTH_MAX, nodesMax: Number.POSITIVE_INFINITY })
  } catch (error) {
    if (!(error instanceof JsonRefused)) throw error
    const { line, column } = placeIn(text, error.offset)
    return { line, msg: `it begins as JSON, and is not JSON from column ${column} on: ${error.message}` }
  }
  return { line: 1, msg: 'it is not JSON' }
}

function jsonValue(text: string): { value: unknown } | undefined {
  try {
    return { value: unmarked(parseMarked(text)) }
  } catch {
    return undefined
  }
}

/** The value of a YAML document, with numbers as written. Throws `Refusal` for aliases that are unresolved, circular or too many, and for a merge of something else than mappings. */
export function plainValue(document: Document): unknown {
  try {
    visit(document, { Scalar: (_, scalar) => markNumber(scalar) })
    // Nested aliases can expand a few lines to gigabytes, so their number is limited.
    return unmarked(document.toJS({ maxAliasCount: 100 }))
  } catch (error) {
    // The library's message contains the name of the alias, which is replaced.
    if (error instanceof ReferenceError)
      throw new Refusal('the text has a YAML alias (*name) without its anchor, or too many')
    if (error instanceof RangeError)
      throw new Refusal('a YAML alias (*name) leads into itself, or the text nests too deep')
    if (error instanceof Error && error.message.startsWith('Merge sources'))
      throw new Refusal('a YAML merge (<<) takes a mapping, an alias of one, or a list of these')
    throw error
  }
}

/** Marks a number that JavaScript would write differently, so that its form is kept as in JSON. */
function markNumber(scalar: Scalar): void {
  if (typeof scalar.value === 'number') scalar.value = markedNumber(scalar.source ?? '') ?? scalar.value
}

/** A key or index to find in a JSON text, its offset once found, and the steps below it. */
interface Step {
  offset?: number | undefined
  next: Map<string, Step>
}

/**
 * Finds the line of each place in one pass over a JSON text. If a place does not exist, it is the line of its nearest parent; of repeated
 * keys the last counts.
 */
function linesInJson(text: string, locs: readonly Loc[]): number[] {
  const root: Step = { offset: Math.max(0, text.search(/\S/)), next: new Map() }
  const ways = locs.map(loc => {
    let step = root
    return [root, ...loc.map(key => (step = madeStep(step, String(key))))]
  })
  const open: { isList: boolean; index: number; isNext: boolean; step: Step | undefined; member?: Step | undefined }[] =
    []
  for (const { 0: token, index } of text.matchAll(/"[^"\\]*(?:\\.[^"\\]*)*"|[[\]{},]|[^\s[\]{},:"]+/gs)) {
    const around = open.at(-1)
    if (token === '}' || token === ']') open.pop()
    else if (token === ',' && around !== undefined) {
      around.index++
      around.isNext = true
    } else {
      if (around?.isNext) {
        around.isNext = false
        around.member = around.step?.next.get(around.isList ? String(around.index) : JSON.parse(token))
        if (around.member !== undefined) around.member.offset = index
        for (const below of around.member?.next.values() ?? []) below.offset = undefined
      }
      const isList = token === '['
      if (isList || token === '{')
        open.push({ isList, index: 0, isNext: true, step: around === undefined ? root : around.member })
    }
  }
  const counter = new LineCounter()
  for (let start = 0; start === 0 || text[start - 1] === '\n'; start = text.indexOf('\n', start) + 1 || -1)
    counter.addNewLine(start)
  return ways.map(way => {
    const end = way.findIndex(({ offset }) => offset === undefined)
    return counter.linePos(way.at(end < 0 ? -1 : end - 1)?.offset ?? 0).line
  })
}

function madeStep({ next }: Step, key: string): Step {
  const made = next.get(key) ?? { next: new Map() }
  next.set(key, made)
  return made
}

function lineAt(root: unknown, loc: Loc, counter: LineCounter): number {
  let node = root
  let offset = hasRange(root) ? root.range[0] : 0
  for (const step of loc) {
    if (!isCollection(node)) break
    const pair = isMap(node)
      ? node.items.find(item => isScalar(item.key) && String(item.key.value) === String(step))
      : undefined
    // The line of the key, because the value may begin on a later one.
    if (isScalar(pair?.key) && pair.key.range) offset = pair.key.range[0]
    node = pair === undefined ? node.get(step, true) : pair.value
    if (node === undefined) break
    if (pair === undefined && hasRange(node)) offset = node.range[0]
  }
  return counter.linePos(offset).line
}

function hasRange(node: unknown): node is { range: [number, number, number] } {
  return typeof node === 'object' && node !== null && 'range' in node && Array.isArray(node.range)
}

/** Warnings about parts that `yaml` would drop. A secret that begins with "!" would be cut, for example. */
const LOSING: ReadonlySet<string> = new Set(['TAG_RESOLVE_FAILED', 'BAD_DIRECTIVE', 'BAD_COLLECTION_TYPE'])
