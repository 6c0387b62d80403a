/* Values as texts that people read, and how two of them differ. */
const MAX = { words: 100_000, differences: 1_000 } // texts in characters

/** What a reader cannot see, or what changes the order of the text around it, is shown by its number. */
const UNSEEN = /(?![\n\t])[\p{Cc}\p{Default_Ignorable_Code_Point}\u2028-\u202e\u2066-\u2069\ufff9-\ufffb]/gu
const numbered = (found: string) => `[U+${(found.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}]`
export const visible = (text: unknown) => String(text ?? '').replace(UNSEEN, numbered)
export const counted = (count: number, noun: string) => `${count.toLocaleString('en')} ${noun}${count === 1 ? '' : 's'}`
const TITLES: Record<string, string> = { system_prompt: 'Prompt', is_public: 'Open to everybody', tool_ids: 'Tools' }
export const titled = (name: string) =>
  TITLES[name] ?? (name.charAt(0).toUpperCase() + name.slice(1)).replaceAll('_', ' ')
export const dated = (at: string) => new Date(at).toLocaleString()

/** A value without the punctuation of JSON: a line for each member, deeper ones indented. */
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

/** How a value is written is decided by its field: a user may store a definition of any form. */
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

/** A definition by what people know of it: its operations, its components, and the rest by name. */
function partsOf(definition: Parts): [string, string, unknown][] {
  const parts: [string, string, unknown][] = []
  for (const [name, value] of Object.entries(definition)) {
    if (name !== 'paths' && name !== 'components') parts.push([`Definition, ${name}`, outline(value), value])
    for (const [path, item] of name === 'paths' || name === 'components' ? Object.entries((value ?? {}) as Parts) : [])
      for (const [key, part] of Object.entries((item ?? {}) as Parts)) {
        const title =
          name === 'components'
            ? `${path}, ${key}`
            : METHODS.test(key)
              ? `${key.toUpperCase()} ${path}`
              : `${path}, ${key}`
        parts.push([title, outline(part), part])
      }
  }
  return parts
}

/** The fields of a record by title and text. A definition is many. */
export function fieldsOf(record: object): [title: string, text: string, value: unknown][] {
  return Object.entries(record).flatMap(([name, value]): [string, string, unknown][] => {
    if (name === 'id') return []
    if (name === 'definition' && value !== null && typeof value === 'object') return partsOf(value as Parts)
    return [[titled(name), textOf(name, value), value]]
  })
}

export interface Difference {
  title: string
  runs: Run[]
}

/** The fields that differ. */
export function differencesOf(before: object, after: object): Difference[] {
  const [old, next] = [before, after].map(
    record => new Map(fieldsOf(record).map(([title, text]) => [title, text])),
  ) as [Map<string, string>, Map<string, string>]
  const titles = [...new Set([...old.keys(), ...next.keys()])].filter(
    title => (old.get(title) ?? '') !== (next.get(title) ?? ''),
  )
  return titles.map(title => ({ title, runs: runsOf(old.get(title) ?? '', next.get(title) ?? '') }))
}

export interface Run {
  as: 'span' | 'del' | 'ins'
  text: string
}

interface End {
  i: number
  start: number
  from?: End
  as: Run['as']
  text: string
}

/** The words that differ (Myers 1986), of long texts the lines. What differs too much is replaced whole. */
export function runsOf(before: string, after: string): Run[] {
  const whole: Run[] = [
    { as: 'del', text: before },
    { as: 'ins', text: after },
  ]
  if (before === '' || after === '') return whole.filter(({ text }) => text !== '')
  const pattern = before.length + after.length > MAX.words ? /[^\n]*\n|[^\n]+/g : /\s*[\p{L}\p{N}_]+|\s+|./gsu
  const [a, b] = [before.match(pattern) ?? [], after.match(pattern) ?? []]
  const ends: Record<number, End> = { 1: { i: 0, start: 0, as: 'span', text: '' } } // by diagonal: how many words of `a` are done
  for (let d = 0; d <= MAX.differences; d++) {
    for (let k = -d; k <= d; k += 2) {
      const isAdded = k === -d || (k !== d && (ends[k - 1]?.i ?? 0) < (ends[k + 1]?.i ?? 0))
      const from = ends[isAdded ? k + 1 : k - 1] as End // a way leads to each diagonal
      const start = isAdded ? from.i : from.i + 1
      let i = start
      while (i < a.length && i - k < b.length && a[i] === b[i - k]) i++
      const end: End = {
        i,
        start,
        from,
        as: isAdded ? 'ins' : 'del',
        text: (isAdded ? b[start - k - 1] : a[start - 1]) ?? '',
      }
      ends[k] = end
      if (i >= a.length && i - k >= b.length) return runsTo(end, a)
    }
  }
  return whole
}

function runsTo(last: End, words: string[]): Run[] {
  const ways: End[] = []
  for (let end: End | undefined = last; end !== undefined; end = end.from) ways.unshift(end)
  const runs: Run[] = []
  const add = (as: Run['as'], text: string) => {
    const before = runs.at(-1)
    if (before?.as === as) before.text += text
    else if (text !== '') runs.push({ as, text })
  }
  for (const { i, start, from, as, text } of ways) {
    if (from?.from) add(as, text)
    add('span', words.slice(start, i).join(''))
  }
  return runs
}

/** The text of a file. Throws a sentence with the line if it is not UTF-8. */
export async function readText(file: File): Promise<string> {
  const bytes = new Uint8Array(await file.arrayBuffer())
  const decode = (part: Uint8Array) => new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(part)
  try {
    return decode(bytes).replace(/^\ufeff/, '')
  } catch {
    for (let [line, at] = [1, 0]; at <= bytes.length; line++) {
      const end = (bytes.indexOf(10, at) + 1 || bytes.length + 1) - 1
      try {
        decode(bytes.subarray(at, end))
      } catch {
        throw `${file.name} is not UTF-8: see line ${line}. Save it as UTF-8 and open it again.`
      }
      at = end + 1
    }
    return ''
  }
}
