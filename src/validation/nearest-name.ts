/** Returns `: did you mean 'X'?` for the name nearest to `written` within `editsMax` edits (optimal string alignment, ignoring case); empty if none is near. */
export function suggestion(written: string, names: readonly string[], editsMax: number): string {
  const near = names
    .filter(name => Math.abs(name.length - written.length) <= editsMax)
    .map(name => ({ name, edits: editsBetween(written.toUpperCase(), name.toUpperCase()) }))
    .sort((one, other) => one.edits - other.edits)
    .find(({ edits }) => edits <= editsMax)
  return near === undefined ? '' : `: did you mean '${near.name}'?`
}

function editsBetween(a: string, b: string): number {
  const edits = [Array.from({ length: b.length + 1 }, (_, j) => j)]
  const at = (i: number, j: number) => edits[i]?.[j] ?? 0
  for (let i = 1; i <= a.length; i++) {
    const row = [i]
    edits.push(row)
    for (let j = 1; j <= b.length; j++) {
      row[j] = Math.min(at(i - 1, j) + 1, at(i, j - 1) + 1, at(i - 1, j - 1) + Number(a[i - 1] !== b[j - 1]))
      const isSwap = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]
      if (isSwap) row[j] = Math.min(at(i, j), at(i - 2, j - 2) + 1)
    }
  }
  return at(a.length, b.length)
}
