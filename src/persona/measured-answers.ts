/** An answer counts as estimated where it takes no more beyond that. */
const BEYOND_BYTES = 64 * 1024
/** So many agents are noted; then all are measured anew. */
const AGENTS_MAX = 10_000

/**
 * What the answers of some agents took that are much larger than their links say: the document sets of an agent may have
 * thousands of connections, which nobody counts in each request. By these the next answer of the agent is weighed.
 */
export class MeasuredAnswers {
  readonly #bytes = new Map<number, number>()

  /** How many bytes the answer of this agent takes, where about so many were estimated. */
  weigh(agentId: number, estimatedBytes: number): number {
    return Math.max(this.#bytes.get(agentId) ?? 0, estimatedBytes)
  }

  /** Notes an answer that was made. */
  note(agentId: number, estimatedBytes: number, bytes: number): void {
    if (bytes <= estimatedBytes + BEYOND_BYTES) {
      if (this.#bytes.size > 0) this.#bytes.delete(agentId)
      return
    }
    if (this.#bytes.size >= AGENTS_MAX) this.#bytes.clear()
    this.#bytes.set(agentId, bytes)
  }
}
