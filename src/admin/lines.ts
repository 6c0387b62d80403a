/** One line of a comparison of two texts. */
export interface ComparedLine {
  sign: ' ' | '-' | '+'
  text: string
}

/** The work of a comparison, in pairs of lines; beyond it the differing middle is told as removed and added. */
const PAIRS_MAX = 4_000_000

/** Compares two texts line by line, with `context` equal lines around each difference. */
export function compareLines(before: string, after: string, context = 3): ComparedLine[] {
  const a = before.split('\n')
  const b = after.split('\n')
  let head = 0
  while (head < a.length && head < b.length && a[head] === b[head]) head++
  let tail = 0
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++
  const middle = compareMiddle(a.slice(head, a.length - tail), b.slice(head, b.length - tail))
  const lines: ComparedLine[] = [
    ...a.slice(0, head).map(text => ({ sign: ' ' as const, text })),
    ...middle,
    ...a.slice(a.length - tail).map(text => ({ sign: ' ' as const, text })),
  ]
  return withContext(lines, context)
}

function compareMiddle(a: readonly string[], b: readonly string[]): ComparedLine[] {
  if (a.length * b.length > PAIRS_MAX) return [...a.map(removed), ...b.map(added)]
  // lengths[i][j]: the longest common part of a from i and b from j.
  const width = b.length + 1
  const lengths = new Uint32Array((a.length + 1) * width)
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      const same = (lengths[(i + 1) * width + j + 1] ?? 0) + 1
      const skip = Math.max(lengths[(i + 1) * width + j] ?? 0, lengths[i * width + j + 1] ?? 0)
      lengths[i * width + j] = a[i] === b[j] ? same : skip
    }
  }
  const lines: ComparedLine[] = []
  let i = 0
  let j = 0
  while (i < a.length && j < b.length) {
    if (a[i] === b[j]) {
      lines.push({ sign: ' ', text: a[i] ?? '' })
      i++
      j++
    } else if ((lengths[(i + 1) * width + j] ?? 0) >= (lengths[i * width + j + 1] ?? 0))
      lines.push(removed(a[i++] ?? ''))
    else lines.push(added(b[j++] ?? ''))
  }
  return [...lines, ...a.slice(i).map(removed), ...b.slice(j).map(added)]
}

function removed(text: string): ComparedLine {
  return { sign: '-', text }
}

function added(text: string): ComparedLine {
  return { sign: '+', text }
}

/** Drops equal lines that are far from every difference; what is dropped shows as one line. */
function withContext(lines: readonly ComparedLine[], context: number): ComparedLine[] {
  const near = new Uint8Array(lines.length)
  for (const [index, { sign }] of lines.entries()) {
    if (sign !== ' ') near.fill(1, Math.max(0, index - context), index + context + 1)
  }
  const shown: ComparedLine[] = []
  for (const [index, line] of lines.entries()) {
    if (near[index] === 1) shown.push(line)
    else if (near[index - 1] === 1 || index === 0) shown.push({ sign: ' ', text: '...' })
  }
  return shown
}
