import type { Loc } from '../errors.js'

/** The limits of a JSON text. `nodesMax` limits the total number of objects, lists, strings (including keys) and commas. */
export type JsonBounds = Readonly<Record<'depthMax' | 'nodesMax', number>>

const NUMBER = /-?(?:0|[1-9]\d*)?(?:(?<=\d)\.\d*)?(?:(?<=\d)[eE][+-]?\d*)?/y
const WORD = /true|false|null/y
const BLANKS = /[ \t\r\n]+/y
const ESCAPE = /["\\/bfnrt]|u[\da-fA-F]{0,4}/y
const [QUOTE, COMMA, COLON, OPENS_LIST, BACKSLASH, OPENS, CLOSES] = [0x22, 0x2c, 0x3a, 0x5b, 0x5c, 0x7b, 0x7d]

/** The text is not JSON (`json_invalid`) or exceeds a limit. `offset` counts UTF-16 units from 0. */
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
 * Checks a JSON text. Returns the paths of keys that could change a prototype, and the paths of at most 100 repeated keys in the property `member`.
 * Throws `JsonRefused`.
 */
export function scanJson(text: string, { depthMax, nodesMax }: JsonBounds, member: string) {
  const [forbidden, repeated]: [Loc[], Loc[]] = [[], []]
  const path: (string | number)[] = []
  let [at, nodes] = [0, 0]

  matches(BLANKS)
  value()
  if (at < text.length) throw expected('the end of the text')
  return { forbidden, repeated }

  function expected(what: string): JsonRefused {
    return new JsonRefused('json_invalid', at, at < text.length ? `Expected ${what}` : 'Unexpected end of JSON input')
  }

  function value(): void {
    const first = text.charCodeAt(at)
    if (first === QUOTE) string()
    else if (first === OPENS || first === OPENS_LIST)
      members(first + 2) // a closing bracket's code is its opening bracket's code plus 2
    else if (matches(NUMBER)) {
      if (!/\d/.test(text.charAt(at - 1))) throw expected('a digit')
    } else if (!matches(WORD)) throw expected(`a value and not '${text.charAt(at)}'`)
    matches(BLANKS)
  }

  function members(end: number): void {
    if (path.push(0) > depthMax)
      throw new JsonRefused('json_too_deep', at, `is nested more than ${depthMax} levels deep`)
    const keys = new Set<string>()
    for (let index = 0; index === 0 || text.charCodeAt(at) === COMMA; index++) {
      count()
      step()
      if (index === 0 && text.charCodeAt(at) === end) break
      if (end === CLOSES) key(keys)
      else path[path.length - 1] = index
      value()
    }
    if (text.charCodeAt(at) !== end) throw expected(`',' or '${String.fromCharCode(end)}'`)
    at++
    path.pop()
  }

  function key(keys: Set<string>): void {
    if (text.charCodeAt(at) !== QUOTE) throw expected('double-quoted property name')
    const start = at
    string()
    const name = String(JSON.parse(text.slice(start, at)))
    const isForbidden = name === '__proto__' || (name === 'prototype' && path.at(-2) === 'constructor')
    path[path.length - 1] = name
    if (isForbidden) forbidden.push([...path])
    // If `member` itself is repeated, only its last value counts, as in `JSON.parse`.
    if (path.length === 1 && name === member) repeated.length = 0
    else if (path[0] === member && keys.has(name) && repeated.length < 100) repeated.push([...path])
    keys.add(name)
    matches(BLANKS)
    if (text.charCodeAt(at) !== COLON) throw expected("':' after property name")
    step()
  }

  function string(): void {
    count()
    let i = at + 1
    for (let unit = text.charCodeAt(i); unit !== QUOTE; unit = text.charCodeAt(++i)) {
      if (unit >= 0x20 && unit !== BACKSLASH) continue
      at = i
      if (unit !== BACKSLASH) throw expected(String.raw`an escape such as \n instead of a control character`) // NaN at the end of the text
      const escaped = ++at
      if (!matches(ESCAPE) || (text.charAt(escaped) === 'u' && at - escaped < 5))
        throw expected('a valid escape sequence')
      i = at - 1
    }
    at = i + 1
  }

  function step(): void {
    at++
    matches(BLANKS)
  }

  function matches(pattern: RegExp): boolean {
    pattern.lastIndex = at
    if (!pattern.test(text) || pattern.lastIndex === at) return false
    at = pattern.lastIndex
    return true
  }

  function count(): void {
    if (++nodes <= nodesMax) return
    const reason = `exceeds the total limit of ${nodesMax} objects, lists, strings and commas`
    throw new JsonRefused('json_too_many_nodes', at, reason)
  }
}
