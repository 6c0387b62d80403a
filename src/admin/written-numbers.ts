import { randomBytes } from 'node:crypto'

/* Keeps the numbers of definitions as they are written: JavaScript would write 1 for 1.0, and round large integers. */

const MARK = `number-${randomBytes(12).toString('base64url')}:`
const MARKED = new RegExp(`(["']?)${MARK}([-+.\\deE]+)\\1`, 'g')
const STRING_OR_NUMBER = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d[\d.eE+-]*/g
const JSON_NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/
const texts = new WeakMap<object, string>()

/** Returns the marked string for a number that JavaScript writes differently, else undefined. */
export function markedNumber(text: string): string | undefined {
  return JSON_NUMBER.test(text) && String(Number(text)) !== text ? MARK + text : undefined
}

/** Parses JSON, with marked strings in the place of numbers that JavaScript writes differently. Throws a `SyntaxError`. */
export function parseMarked(text: string): unknown {
  const replaced = (found: string) => {
    const marked = found.startsWith('"') ? undefined : markedNumber(found)
    return marked === undefined ? found : `"${marked}"`
  }
  return JSON.parse(text.replace(STRING_OR_NUMBER, replaced))
}

/** Replaces the marked strings of a JSON or YAML text by their numbers. */
export function withoutMarks(text: string): string {
  return text.includes(MARK) ? text.replaceAll(MARKED, '$2') : text
}

/** Returns a marked value with numbers. The texts of the value, and of definitions of its `tools`, are remembered for `writtenText`. */
export function unmarked(marked: unknown): unknown {
  const text = JSON.stringify(marked)
  if (!text?.includes(MARK)) return marked
  const value: unknown = JSON.parse(withoutMarks(text))
  remember(value, marked)
  const [tools, markedTools] = [value, marked].map(each => (each as { tools?: unknown })?.tools)
  if (!Array.isArray(tools) || !Array.isArray(markedTools)) return value
  for (const [i, tool] of tools.entries()) remember(tool?.definition, markedTools[i]?.definition)
  return value
}

/** Returns the JSON text of a definition with its numbers as they were read. */
export function writtenText(definition: unknown): string {
  return texts.get(definition as object) ?? JSON.stringify(definition)
}

function remember(value: unknown, marked: unknown): void {
  if (typeof value === 'object' && value !== null) texts.set(value, withoutMarks(JSON.stringify(marked)))
}
