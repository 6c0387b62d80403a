import type { Loc } from '../errors.js'

/** Limits of a JSON text. `nodesMax` counts objects, lists, texts (including keys) and commas: a measure of parsing time. */
export type JsonBounds = Readonly<Record<'depthMax' | 'nodesMax', number>>

const NUMBER = /-?(?:0|[1-9]\d*)?(?:(?<=\d)\.\d*)?(?:(?<=\d)[eE][+-]?\d*)?/y
const WORD = /true|false|null/y
const ESCAPE = /["\\/bfnrt]|u[\da-fA-F]{0,4}/y
const ESCAPED = /"(?:[^"\\]*\\.)+[^"\\]*"/g
const STRING_OR_BLANKS = /("[^"\\]*(?:\\.[^"\\]*)*")|\s+/g
const [BLANK, QUOTE, COMMA, COLON, OPENS_LIST, BACKSLASH, OPENS, CLOSES] = [
  0x20, 0x22, 0x2c, 0x3a, 0x5b, 0x5c, 0x7b, 0x7d,
]

/** A text that is not JSON (`json_invalid`) or beyond a limit. `offset` counts UTF-16 units from 0. */
export class JsonRefused extends Error {
  constructor(
    readonly type: 'json_invalid' | 'json_too_deep' | 'json_too_many_nodes',
    readonly offset: number,
    reason: string,
  ) {
    super(reason)
  }
}

/**
 * Checks a JSON text before `JSON.parse` reads it. Finds keys that could change a prototype and, of one `member` of the outermost object,
 * repeated keys (at most 100) and its text, without blanks and with escapes as `JSON.stringify` writes them. Throws `JsonRefused`.
 */
export function scanJson(text: string, { depthMax, nodesMax }: JsonBounds, member?: string) {
  const [forbidden, repeated]: [Loc[], Loc[]] = [[], []]
  const path: (string | number)[] = []
  let [at, nodes] = [0, 0]
  let memberText: string | undefined
  let [isInMember, isCompact] = [false, true]

  skipBlanks()
  value()
  if (at < text.length) throw expected('the end of the text')
  return { forbidden, repeated, memberText }

  function expected(what: string): JsonRefused {
    return new JsonRefused('json_invalid', at, at < text.length ? `Expected ${what}` : 'Unexpected end of JSON input')
  }

  function value(): void {
    const first = text.charCodeAt(at)
    if (first === QUOTE) string()
    else if (first === OPENS || first === OPENS_LIST)
      members(first + 2) // `}` and `]` are two characters later
    else if (matches(NUMBER)) {
      if (!/\d/.test(text.charAt(at - 1))) throw expected('a digit')
    } else if (!matches(WORD)) throw expected(`a value and not '${text.charAt(at)}'`)
    skipBlanks()
  }

  function members(end: number): void {
    if (path.push(0) > depthMax) throw new JsonRefused('json_too_deep', at, `is nested more than ${depthMax} deep`)
    const keys = isInMember && end === CLOSES ? new Set<string>() : undefined
    for (let index = 0; index === 0 || text.charCodeAt(at) === COMMA; index++) {
      count()
      step()
      if (index === 0 && text.charCodeAt(at) === end) break
      if (end === CLOSES) key(keys)
      else path[path.length - 1] = index
      if (end === CLOSES && path.length === 1 && path[0] === member) memberValue()
      else value()
    }
    if (text.charCodeAt(at) !== end) throw expected(`',' or '${String.fromCharCode(end)}'`)
    at++
    path.pop()
  }

  function key(keys: Set<string> | undefined): void {
    if (text.charCodeAt(at) !== QUOTE) throw expected('double-quoted property name')
    const start = at
    string()
    const written = text.slice(start, at)
    const name = written.includes('\\') ? String(JSON.parse(written)) : written.slice(1, -1)
    const isForbidden = name === '__proto__' || (name === 'prototype' && path.at(-2) === 'constructor')
    path[path.length - 1] = name
    if (isForbidden) forbidden.push([...path])
    if (keys?.has(name) && repeated.length < 100) repeated.push([...path])
    keys?.add(name)
    skipBlanks()
    if (text.charCodeAt(at) !== COLON) throw expected("':' after property name")
    step()
  }

  /** If the member is repeated, the last one counts, as in parsing. */
  function memberValue(): void {
    const start = at
    ;[isInMember, isCompact, repeated.length] = [true, true, 0]
    value()
    const own = text.slice(start, at)
    memberText = isCompact
      ? own
      : own.replace(STRING_OR_BLANKS, '$1').replace(ESCAPED, each => JSON.stringify(JSON.parse(each)))
    isInMember = false
  }

  function string(): void {
    count()
    let i = at + 1
    for (let unit = text.charCodeAt(i); unit !== QUOTE; unit = text.charCodeAt(++i)) {
      if (unit >= BLANK && unit !== BACKSLASH) continue
      at = i
      if (unit !== BACKSLASH) throw expected('no control character') // or the end of the text
      isCompact = false
      const escaped = ++at
      if (!matches(ESCAPE) || (text.charAt(escaped) === 'u' && at - escaped < 5)) throw expected('another escape')
      i = at - 1
    }
    at = i + 1
  }

  function step(): void {
    at++
    skipBlanks()
  }

  function skipBlanks(): void {
    for (; isBlank(text.charCodeAt(at)); at++) isCompact = false
  }

  function matches(pattern: RegExp): boolean {
    pattern.lastIndex = at
    if (!pattern.test(text) || pattern.lastIndex === at) return false
    at = pattern.lastIndex
    return true
  }

  function count(): void {
    if (++nodes <= nodesMax) return
    const reason = `holds more than ${nodesMax} objects, lists, texts and commas together`
    throw new JsonRefused('json_too_many_nodes', at, reason)
  }
}

function isBlank(unit: number): boolean {
  return unit === BLANK || unit === 0x0a || unit === 0x0d || unit === 0x09
}
