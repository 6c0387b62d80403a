/** The placeholders of a path, the parameter keys that declare each one, and the keys of all. */
export interface PathTemplate {
  readonly path: string
  readonly keys: ReadonlyMap<string, readonly string[]>
  readonly declared: ReadonlySet<string>
  /** The path without the names of its placeholders. */
  readonly bare: string
}

/** Longer names and paths are not guessed at. */
const NAME_CHARACTERS = 256

/** The types that frameworks' routers allow after the colon of a placeholder. */
const ROUTE_TYPES =
  /^(?:u?int\d*|integer|long|float|double|decimal|number|str|string|text|uuid|guid|slug|path|bool|boolean|alpha|datetime|date)$/i

/** Matches a step that is a path parameter for the router of another framework: `:id`, `:id(\\d+)`, `<int:id>`, `[id]`, `$id`. */
const ROUTE =
  /^(?::([a-z_][\w-]*)(?:\(.*\))?[?*+]?|<(?:[^<>]*:)?([a-z_][\w-]*)>|\[(?:\.{3})?([a-z_][\w-]*)\]|\$([a-z_][\w-]*))(\.[a-z]+)?$/i

/**
 * Parses the placeholders of a path; undefined if braces do not pair, are empty, or are nested other than in a pattern such as
 * `{year:\d{4}}`. Any other text between braces is a name.
 */
export function templateOf(path: string): PathTemplate | undefined {
  const keys = new Map<string, readonly string[]>()
  const declared = new Set<string>()
  let bare = ''
  let end = 0
  for (let open = path.indexOf('{'); open !== -1; open = path.indexOf('{', end)) {
    if (path.slice(end, open).includes('}')) return undefined
    const close = closeOf(path, open)
    const name = path.slice(open + 1, close)
    if (name === '') return undefined
    bare += `${path.slice(end, open)}{}`
    end = close + 1
    const placeholder = keysOfPlaceholder(name)
    keys.set(name, placeholder)
    for (const key of placeholder) declared.add(key)
  }
  return path.includes('}', end) ? undefined : { path, keys, declared, bare: bare + path.slice(end) }
}

/** Returns the index of the brace that closes the one at `open`; `open` itself if none does. */
function closeOf(path: string, open: number): number {
  const first = path.indexOf('}', open)
  if (first > open && path.lastIndexOf('{', first) === open) return first
  let depth = 0
  let isPattern = false
  for (let at = open; at < path.length; at++) {
    const unit = path[at]
    if (unit === ':' || unit === '=') isPattern = true
    else if (unit === '{' && ++depth > 1 && !isPattern) return open
    else if (unit === '}' && --depth === 0) return at
  }
  return open
}

/**
 * Returns the parameter keys that declare a placeholder: its name as written, or without the operators of RFC 6570 and API gateways:
 * `{+name}`, `{name*}`, `{name+}`.
 */
function keysOfPlaceholder(name: string): string[] {
  const start = name.startsWith('+') ? 1 : 0
  const end = name.endsWith('*') || name.endsWith('+') ? -1 : undefined
  const key = `path ${name}`
  return start === 0 && end === undefined ? [key] : [key, `path ${name.slice(start, end)}`]
}

/** The probable meaning of an undeclared placeholder. */
export interface Meant {
  /** The replacement: `{id}`, or the empty text for the template of a query. */
  readonly text: string
  readonly names: readonly string[]
}

/**
 * Returns the meaning of a placeholder in another dialect: `{id:int}`, `{id:[0-9]+}`, `{id?}`, `{name=projects/*}`, `{/path}`, `{?q}`, `{
 * id }`, or `PetId` for `petId`. Undefined for an ordinary name and for doubtful cases. `declared` contains keys such as `query q` and
 * `path id`; `unused` the names of path parameters without a placeholder.
 */
export function meantBy(
  name: string,
  declared: (key: string) => boolean,
  unused: readonly string[],
): Meant | undefined {
  if (name.length > NAME_CHARACTERS) return undefined
  const text = name.trim()
  if (/^[?&]/.test(text)) {
    const names = text.slice(1).split(',').map(clean)
    return names.every(each => declared(`query ${each}`)) ? { text: '', names } : undefined
  }
  const [whole = '', value] = text.split('=', 2)
  const colon = whole.indexOf(':')
  const [before, after] =
    colon === -1 ? [clean(whole), ''] : [clean(whole.slice(0, colon)), clean(whole.slice(colon + 1))]
  const candidates = [before, after].filter(each => each !== '')
  const isTyped = value !== undefined || after === '' || /[^\w-]/.test(after) || ROUTE_TYPES.test(after)
  const alone = isTyped && before !== name && isOrdinaryName(before) ? before : undefined
  const meant =
    candidates.find(each => declared(`path ${each}`)) ??
    unused.find(each => candidates.some(candidate => letters(candidate) === letters(each))) ??
    alone
  const lead = /^[/.]/.exec(text)?.[0] ?? ''
  return meant === undefined || meant === name ? undefined : { text: `${lead}{${meant}}`, names: [meant] }
}

/** True for a name without the syntax of any dialect: it can be declared as it is. */
export function isOrdinaryName(name: string): boolean {
  return /^[^\s:=?*+/;,&#<>{}\\]+$/.test(name)
}

/** Returns the steps of a path that are path parameters in the syntax of other frameworks, by their names, and what OpenAPI has for them. */
export function routesOf(path: string): Map<string, { step: string; written: string }> {
  const routes = new Map<string, { step: string; written: string }>()
  for (const step of path.length > NAME_CHARACTERS ? [] : path.split('/')) {
    const [, ...names] = ROUTE.exec(step) ?? []
    const suffix = names.pop() ?? ''
    const name = names.find(Boolean)
    if (name !== undefined) routes.set(name, { step, written: `{${name}}${suffix}` })
  }
  return routes
}

function clean(text: string): string {
  return text.replace(/^[\s*+#./;]+|[\s*+?.]+$/g, '')
}

function letters(name: string): string {
  return name.toLowerCase().replace(/[\s_.-]/g, '')
}
