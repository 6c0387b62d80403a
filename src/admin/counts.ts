/** A count with its noun, which is given in the singular: `1 fault`, `2 faults`. */
export function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`
}

/** Counts by their nouns, without those of nothing, behind `before`: `, with 2 tools, 1 group`. Empty where all are of nothing. */
export function countedAll(before: string, counts: Readonly<Record<string, number>>): string {
  const there = Object.entries(counts).filter(([, count]) => count > 0)
  return there.length === 0 ? '' : before + there.map(([noun, count]) => counted(count, noun)).join(', ')
}
