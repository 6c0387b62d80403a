/** Longer names are compared with nothing. */
const NAME_CHARACTERS = 64

/** Of so many names that are not known in one request it is looked for which one was meant. */
export const SUGGESTIONS_MAX = 20

/**
 * Of `names` the one that `written` was most likely meant to be, or undefined where none is near: at most a third of its characters
 * differ. An edit is a character too many, one too few, another one, or two that changed places (optimal string alignment).
 */
function nearestName(written: string, names: readonly string[]): string | undefined {
  if (written.length > NAME_CHARACTERS) return undefined
  let nearest: string | undefined
  let least = Math.floor(written.length / 3) + 1
  for (const name of names) {
    if (Math.abs(name.length - written.length) >= least) continue
    const edits = editsBetween(written.toLowerCase(), name)
    if (edits < least) {
      least = edits
      nearest = name
    }
  }
  return nearest
}

/** `: did you mean 'x'?`, to stand behind what is said of a name that is none of these; nothing where none of them is near. */
export function suggestion(written: string, names: readonly string[]): string {
  const nearest = nearestName(written, names)
  return nearest === undefined ? '' : `: did you mean '${nearest}'?`
}

function editsBetween(a: string, b: string): number {
  let before: number[] = []
  let last = Array.from({ length: b.length + 1 }, (_, j) => j)
  for (let i = 1; i <= a.length; i++) {
    const row = [i]
    for (let j = 1; j <= b.length; j++) {
      const isSame = a[i - 1] === b[j - 1]
      // The rows before have an entry for every j.
      let edits = Math.min(
        (last[j] as number) + 1,
        (row[j - 1] as number) + 1,
        (last[j - 1] as number) + Number(!isSame),
      )
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1])
        edits = Math.min(edits, (before[j - 2] as number) + 1)
      row[j] = edits
    }
    before = last
    last = row
  }
  return last[b.length] as number
}
