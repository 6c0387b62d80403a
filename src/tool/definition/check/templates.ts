/** A path's placeholders by name, in order, each once. */
export class PathTemplate {
  private accepted: Set<string> | undefined

  constructor(readonly names: ReadonlySet<string>) {}

  /** True if a path parameter of this name has a placeholder. */
  accepts(name: string): boolean {
    return this.names.has(name) || this.allNames().has(name)
  }

  /** How many names that a placeholder may be declared under are as `isDeclared` says. */
  countOf(isDeclared: (name: string) => boolean): number {
    let count = 0
    for (const name of this.allNames()) if (isDeclared(name)) count++
    return count
  }

  private allNames(): ReadonlySet<string> {
    this.accepted ??= new Set([...this.names].flatMap(declaredNames))
    return this.accepted
  }
}

const NO_PLACEHOLDERS = new PathTemplate(new Set())

/**
 * Reads the placeholders of a path such as `/tickets/{id}`. Braces must pair, may not nest and may not be empty; anything
 * else between them is a name, never a pattern and never a format. Stops after `limit` placeholders.
 */
export function readTemplate(path: string, limit: number): PathTemplate | 'invalid' | 'too-many' {
  if (!/[{}]/.test(path)) return NO_PLACEHOLDERS
  const names = new Set<string>()
  let at = 0
  for (let count = 0; ; count++) {
    const open = path.indexOf('{', at)
    const close = path.indexOf('}', at)
    if (open === -1 && close === -1) return new PathTemplate(names)
    if (open === -1 || close < open) return 'invalid'
    const name = path.slice(open + 1, close)
    if (name === '' || name.includes('{')) return 'invalid'
    if (count >= limit) return 'too-many'
    names.add(name)
    at = close + 1
  }
}

/**
 * The names under which a placeholder may be declared: as written, and without the operators of RFC 6570 and API gateways:
 * `{+name}`, `{name*}`, `{name+}`.
 */
export function declaredNames(placeholder: string): string[] {
  const bare = placeholder.replace(/^\+/, '').replace(/[*+]$/, '')
  return bare === placeholder ? [placeholder] : [placeholder, bare]
}
