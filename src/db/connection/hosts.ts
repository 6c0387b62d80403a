/**
 * The database servers of a deployment, in the order to try them. New connections go to the last one that worked; when
 * one fails, they go to the next in the order, round and round.
 */
export class HostList<H> {
  #current = 0

  constructor(readonly hosts: readonly [H, ...H[]]) {}

  get size(): number {
    return this.hosts.length
  }

  /** The place of the host to connect to. */
  get current(): number {
    return this.#current
  }

  at(place: number): H {
    return this.hosts[place] ?? this.hosts[0]
  }

  /** From now on, connections go to the host at that place. */
  choose(place: number): void {
    this.#current = place
  }

  /** Notes that the host at that place failed. Only the first of several failures of the same host moves on. */
  failed(place: number): void {
    if (place === this.#current) this.#current = (place + 1) % this.hosts.length
  }
}
