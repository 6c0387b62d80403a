import { hash } from 'node:crypto'

/*
 * The Merkle tree of RFC 9162, section 2.1: its root says everything about its leaves and their order. A tree that grows is held by
 * the roots of its perfect subtrees from left to right, largest first: as many as its size has ones in binary.
 */

const LEAF = Buffer.of(0)
const NODE = Buffer.of(1)

function sha256(...parts: readonly Buffer[]): Buffer {
  return hash('sha256', Buffer.concat(parts), 'buffer')
}

/** The root over some leaves, which are added from left to right. */
export class HashTree {
  /** `subtrees` are those of `size` leaves. */
  constructor(
    public size = 0,
    readonly subtrees: Buffer[] = [],
  ) {}

  add(data: Buffer): void {
    let node = sha256(LEAF, data)
    for (let ones = this.size; ones % 2 === 1; ones = (ones - 1) / 2) {
      node = sha256(NODE, this.subtrees.pop() ?? NODE, node)
    }
    this.subtrees.push(node)
    this.size++
  }

  root(): Buffer {
    return (
      this.subtrees.reduceRight<Buffer | null>(
        (right, left) => (right === null ? left : sha256(NODE, left, right)),
        null,
      ) ?? sha256()
    )
  }
}

/** The leaves below one node of a tree: from `start`, before `end`. */
export interface LeafRange {
  start: number
  end: number
}

/** The nodes beside the way from a leaf to the root of a tree, from the leaf up: their roots are its inclusion proof. */
export function siblingsOf(index: number, size: number, start = 0): LeafRange[] {
  if (size <= 1) return []
  let left = 1
  while (left * 2 < size) left *= 2
  const [middle, end] = [start + left, start + size]
  return index < middle
    ? [...siblingsOf(index, left, start), { start: middle, end }]
    : [...siblingsOf(index, size - left, middle), { start, end: middle }]
}
