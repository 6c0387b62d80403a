/** Longer names get no suggestion. */
const NAME_CHARACTERS = 64

/** The most unknown names of one request that get a suggestion. */
export const SUGGESTIONS_MAX = 20

const third = (written: string) => Math.floor(written.length / 3)

/** Returns the name nearest to `written` (optimal string alignment, ignoring case) within `editsMax` edits, by default a third of its characters. */
export function nearestName(written: string, names: readonly string[], editsMax = third): string | undefined {
  if (written.length > NAME_CHARACTERS) return undefined
  let nearest: string | undefined
  let least = editsMax(written) + 1
  for (const name of names) {
    if (Math.abs(name.length - written.length) >= least) continue
    const edits = editsBetween(written.toLowerCase(), name.toLowerCase())
    if (edits < least) {
      least = edits
      nearest = name
    }
  }
  return nearest
}

/** Returns `: did you mean 'x'?` to append to a message about an unknown name; empty if no name is near. */
export function suggestion(written: string, names: readonly string[], editsMax = third): string {
  const nearest = nearestName(written, names, editsMax)
  return nearest === undefined ? '' : `: did you mean '${nearest}'?`
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
