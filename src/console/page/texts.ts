import { diffArrays } from 'diff'

const MAX = { words: 100_000, differences: 1_000 } // two texts with more than `words` characters in total are compared line by line

/** Characters that are invisible or change the order of the surrounding text. They are shown as code points. */
const UNSEEN = /(?![\n\t])[\p{Cc}\p{Default_Ignorable_Code_Point}\u2028-\u202e\u2066-\u2069\ufff9-\ufffb]/gu
const numbered = (found: string) => `[U+${(found.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}]`
export const visible = (text: unknown) => String(text ?? '').replace(UNSEEN, numbered)
export const counted = (count: number, noun: string) => `${count.toLocaleString('en')} ${noun}${count === 1 ? '' : 's'}`
const TITLES: Record<string, string> = { system_prompt: 'Prompt', is_public: 'Open to everybody', tool_ids: 'Tools' }
export const titled = (name: string) =>
  TITLES[name] ?? (name.charAt(0).toUpperCase() + name.slice(1)).replaceAll('_', ' ')
export const dated = (at: string) => new Date(at).toLocaleString()

/** Formats a value with one line for each property or item. Indents nested values. */
export function outline(value: unknown, indent = ''): string {
  if (typeof value !== 'object' || value === null || Object.hasOwn(value, 'rawJSON'))
    return String((value as { rawJSON?: string })?.rawJSON ?? value)
  const entries = Object.entries(value)
  if (entries.length === 0) return Array.isArray(value) ? 'none' : 'empty'
  const row = ([name, part]: [string, unknown]) => {
    const text = outline(part, `${indent}  `)
    const isDeep = typeof part === 'object' && part !== null && text.includes(':')
    const start = Array.isArray(value) ? `${indent}- ` : `${indent}${name}:`
    if (Array.isArray(value)) return start + text.trimStart()
    return isDeep || text.includes('\n')
      ? `${start}\n${text.startsWith(' ') ? text : `${indent}  ${text}`}`
      : `${start} ${text.trimStart()}`
  }
  return entries.map(row).join('\n')
}

/** Matches the names of fields that refer to records. The value is not considered, because a value in a definition can look like a reference. */
const REFERENCES = /^(owner|users?|groups|tools?|document_sets?|labels?|oauth_config)(_ids?)?$/
interface Named {
  name?: string
  email?: string
  id?: unknown
}
const named = (one: Named) => (one?.name ? `${one.name} (${one.id})` : (one?.email ?? one?.id ?? one))

export function textOf(name: string, value: unknown): string {
  if (value === null || value === undefined) return ''
  if (typeof value === 'boolean') return value ? 'yes' : 'no'
  if (REFERENCES.test(name))
    return [value]
      .flat()
      .map(one => named(one as Named))
      .join('\n')
  if (name === 'custom_headers')
    return (value as { key: string; value: string }[]).map(h => `${h.key}: ${h.value}`).join('\n')
  if (name === 'starter_messages')
    return (value as { name: string; message: string }[]).map(m => `${m.name}\n${m.message}`).join('\n\n')
  return typeof value === 'object' ? outline(value) : String(value)
}

type Parts = Record<string, unknown>
const METHODS = /^(get|put|post|delete|options|head|patch|trace)$/i
const isParts = (value: unknown): value is Parts => typeof value === 'object' && value !== null

/** Splits a definition into titled parts: operations, components and the other properties. */
function partsOf(definition: Parts): [title: string, value: unknown][] {
  return Object.entries(definition).flatMap(([name, value]) => {
    if (!['paths', 'components'].includes(name) || !isParts(value)) return [[`Definition, ${name}`, value]]
    return Object.entries(value).flatMap(([path, item]) =>
      Object.entries(isParts(item) ? item : {}).map(([key, part]): [string, unknown] => {
        const isOperation = name === 'paths' && METHODS.test(key)
        return [isOperation ? `${key.toUpperCase()} ${path}` : `${path}, ${key}`, part]
      }),
    )
  })
}

/** The fields of a record, each with a title and text. A definition becomes several fields. */
export function fieldsOf(record: object): [title: string, text: string][] {
  return Object.entries(record).flatMap(([name, value]): [string, string][] => {
    if (name === 'id') return []
    if (name === 'definition' && isParts(value)) return partsOf(value).map(([title, part]) => [title, outline(part)])
    return [[titled(name), textOf(name, value)]]
  })
}

export interface Difference {
  title: string
  runs: Run[]
}

export function differencesOf(before: object, after: object): Difference[] {
  const [old, next] = [new Map(fieldsOf(before)), new Map(fieldsOf(after))]
  return [...new Set([...old.keys(), ...next.keys()])].flatMap(title => {
    const [from = '', to = ''] = [old.get(title), next.get(title)]
    return from === to ? [] : [{ title, runs: runsOf(from, to) }]
  })
}

export interface Run {
  as: 'span' | 'del' | 'ins'
  text: string
}

/** Compares two texts by words and URLs, or by lines if they are long. If they differ too much, marks the whole text as replaced. */
export function runsOf(before: string, after: string): Run[] {
  const tokens =
    before.length + after.length > MAX.words
      ? /[^\n]*\n|[^\n]+/g
      : /\s*[\p{L}\p{N}_]+(?:[-.:@/]+[\p{L}\p{N}_]+)*|\s+|./gsu
  const options = { maxEditLength: MAX.differences }
  const parts = diffArrays(before.match(tokens) ?? [], after.match(tokens) ?? [], options) ?? []
  const runs = parts.map(({ value, added, removed }): Run => {
    return { as: removed ? 'del' : added ? 'ins' : 'span', text: value.join('') }
  })
  const same = runs.reduce((sum, { as, text }) => sum + (as === 'span' ? text.length : 0), 0)
  const whole: Run[] = [
    { as: 'del', text: before },
    { as: 'span', text: before && after && '\n' },
    { as: 'ins', text: after },
  ]
  return (3 * same < Math.min(before.length, after.length) ? whole : runs).filter(({ text }) => text !== '')
}

export async function readText(file: File): Promise<string> {
  const bytes = await file.arrayBuffer()
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    const [before = ''] = new TextDecoder().decode(bytes).split('\ufffd', 1)
    throw `${file.name} is not UTF-8: see line ${before.split('\n').length}. Save it as UTF-8 and open it again.`
  }
}
