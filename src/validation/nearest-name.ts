/** Returns `: did you mean 'X'?` for the name closest to `written`, ignoring case; empty if it differs in more than `editsMax` edits. */
export function suggestion(written: string, names: readonly string[], editsMax: number): string {
  const near = names
    .filter(name => Math.abs(name.length - written.length) <= editsMax)
    .map(name => ({ name, edits: editsBetween(written.toUpperCase(), name.toUpperCase()) }))
    .sort((one, other) => one.edits - other.edits)
  return near[0] !== undefined && near[0].edits <= editsMax ? `: did you mean '${near[0].name}'?` : ''
}

function editsBetween(a: string, b: string): number {
  let before = Array.from({ length: b.length + 1 }, (_, j) => j)
  for (let i = 1; i <= a.length; i++) {
    const row = [i]
    for (let j = 1; j <= b.length; j++) {
      const replaced = (before[j - 1] ?? 0) + Number(a[i - 1] !== b[j - 1])
      row[j] = Math.min((before[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1, replaced)
    }
    before = row
  }
  return before[b.length] ?? 0
}
