import type { Readable } from 'node:stream'
import { errorCodes } from 'fastify'
import { BodyTooLarge, type Fault, RETRY_AFTER_S, TinyChunks, Unavailable } from '../errors.js'
import { type JsonBounds, JsonScan } from '../schema/json-scan.js'

/** What the body of a request may be. */
export interface BodyBounds extends JsonBounds {
  limitBytes: number
  /** When more than so much came a turn is waited for. */
  turnBytes: number
}

/** What the sender of a body shares with others. */
export interface BodyShares {
  /** Learns how many bytes came. */
  onRead(bytes: number): void
  /** Reserves memory for more bytes; throws when there is none. */
  reserveMemory(bytes: number): void
  /** Gives it back: what came is dropped. */
  releaseMemory(): void
  /** Takes note that a large body begins, and answers whether no other of the same sender is on its way. */
  beginLarge(): boolean
  /** Waits for a turn on this thread: so many milliseconds of it were used before. Calls back once, with an error where none came. */
  takeTurn(usedMs: number, turn: (error?: Error) => void): void
  /** Has the client send, where it waits for that. */
  askForBody(): void
}

/** The whole body, and what the scan saw of it. Its bytes have a buffer of their own where they are more than `SMALL_BYTES`. */
export interface WholeBody {
  bytes: Buffer
  nodes: number
  hasPlainNumbers: boolean
}

/** The whole body; or the bound that it passed: then the rest was not read. */
export type ReadBody = WholeBody | { beyond: Fault }

/** So much of a body needs no reservation: what most requests send whole. */
export const FREE_BYTES = 64 * 1024

/** Nor does it take long to parse what is no larger than this, or to work on it. */
export const SMALL_BYTES = 8 * 1024

/**
 * What is read in one turn counts as at least so many milliseconds of this thread: most of what it takes is spent outside of this
 * program, in the socket's reads and, later, in the collection of their buffers.
 */
const TURN_MS_MIN = 1.5

/**
 * How small the chunks of a body without a length may be: so many of any size, and beyond that so many bytes each on average.
 * What a chunk costs does not depend on its size: four megabytes in chunks of one byte would take seconds.
 */
const FREE_CHUNKS = 4_000
const MEAN_CHUNK_BYTES_MIN = 64

/**
 * Reads a request's body into one buffer that grows with what arrives, whatever length was announced and however small the
 * pieces are. Looks at each piece as it comes: a body beyond its bounds, or without memory, is read no further, and its stream is
 * paused.
 *
 * Reads a large body in turns, `turnBytes` in each: at once, as fast as it comes, it would keep the thread from everybody else. The
 * first so many bytes need no turn, unless another of its sender is on its way: who sends many at once has nothing read of those that
 * get no turn.
 *
 * Calls `done` once. Errors: `BodyTooLarge`, that of Fastify for a body that is not as long as was said or cut short, `TinyChunks`,
 * `Unavailable` when it is abandoned, and what `reserveMemory` throws.
 */
export class BodyReader {
  readonly #stream: Readable
  readonly #announcedBytes: number
  readonly #bounds: BodyBounds
  readonly #shares: BodyShares
  readonly #done: (error: Error | null, body?: ReadBody) => void
  readonly #scan: JsonScan
  #buffer = NOTHING
  #bytes = 0
  #chunks = 0
  #isDone = false
  /** What came since the last turn, and how long the work on it took. */
  #turnBytes = 0
  #turnMs = 0

  /** `announced` is the text of the Content-Length header, if there is one. */
  constructor(
    stream: Readable,
    announced: string | undefined,
    bounds: BodyBounds,
    shares: BodyShares,
    done: (error: Error | null, body?: ReadBody) => void,
  ) {
    this.#stream = stream
    this.#announcedBytes = Number(announced ?? Number.NaN)
    this.#bounds = bounds
    this.#shares = shares
    this.#done = done
    this.#scan = new JsonScan(bounds)
  }

  /** Reads no further: others need the place, or the memory. `taken`: how much there is of it, in words. */
  abandon(taken: string): void {
    const message = `The body was still on its way when others needed room: ${taken} of all callers together are taken.`
    this.#finish(new Unavailable('overloaded', `${message} Try again in ${RETRY_AFTER_S} s.`, 'not_applied'))
  }

  start(): void {
    if (this.#announcedBytes > this.#bounds.limitBytes) {
      this.#done(new BodyTooLarge(this.#bounds.limitBytes, this.#announcedBytes))
      return
    }
    this.#stream.pause().on('data', this.#onData).on('end', this.#onEnd).on('error', this.#onError)
    const isSmall = this.#announcedBytes <= this.#bounds.turnBytes
    if (isSmall || this.#shares.beginLarge()) this.#begin()
    else this.#shares.takeTurn(0, error => (error === undefined ? this.#begin() : this.#finish(error)))
  }

  #begin(): void {
    if (this.#isDone) return // abandoned meanwhile
    this.#shares.askForBody()
    this.#stream.resume()
  }

  readonly #onData = (piece: Buffer): void => {
    const start = performance.now()
    this.#shares.onRead(piece.length)
    this.#read(piece)
    if (this.#isDone) return
    this.#turnMs += performance.now() - start
    this.#turnBytes += piece.length
    if (this.#turnBytes > this.#bounds.turnBytes) this.#waitForTurn()
  }

  /** Nothing is read meanwhile. */
  #waitForTurn(): void {
    const usedMs = Math.max(TURN_MS_MIN, this.#turnMs)
    this.#turnMs = 0
    this.#turnBytes = 0
    this.#stream.pause()
    this.#shares.takeTurn(usedMs, error => {
      if (error !== undefined) this.#finish(error)
      else if (!this.#isDone) this.#stream.resume()
    })
  }

  #read(piece: Buffer): void {
    try {
      this.#countChunk(piece)
      if (this.#bytes + piece.length > this.#bounds.limitBytes) throw new BodyTooLarge(this.#bounds.limitBytes)
      const beyond = this.#scan.push(piece)
      if (beyond === undefined) this.#keep(piece)
      else this.#finish(null, { beyond })
    } catch (error) {
      this.#finish(error as Error) // all of the above throw nothing else
    }
  }

  #countChunk({ length }: Buffer): void {
    if (!Number.isNaN(this.#announcedBytes)) return
    this.#chunks++
    if (this.#chunks > FREE_CHUNKS + (this.#bytes + length) / MEAN_CHUNK_BYTES_MIN) throw new TinyChunks()
  }

  readonly #onEnd = (): void => {
    const isWhole = Number.isNaN(this.#announcedBytes) || this.#bytes === this.#announcedBytes
    if (isWhole) this.#finish(null, this.#wholeBody())
    else this.#finish(new errorCodes.FST_ERR_CTP_INVALID_CONTENT_LENGTH())
  }

  #wholeBody(): WholeBody {
    const { nodes, hasPlainNumbers } = this.#scan
    return { bytes: this.#buffer.subarray(0, this.#bytes), nodes, hasPlainNumbers }
  }

  /** The connection is gone: nobody reads the answer, but the log has it. */
  readonly #onError = (): void => {
    this.#finish(new errorCodes.FST_ERR_CTP_INVALID_CONTENT_LENGTH())
  }

  #keep(piece: Buffer): void {
    const bytes = this.#bytes + piece.length
    if (bytes > this.#buffer.length) {
      const size = this.#sizeFor(bytes)
      if (size > FREE_BYTES) this.#shares.reserveMemory(size - Math.max(FREE_BYTES, this.#buffer.length))
      const larger = size > SMALL_BYTES ? Buffer.allocUnsafeSlow(size) : Buffer.allocUnsafe(size)
      this.#buffer.copy(larger, 0, 0, this.#bytes)
      this.#buffer = larger
    }
    piece.copy(this.#buffer, this.#bytes)
    this.#bytes = bytes
  }

  /**
   * Grows fourfold, but takes no more than was announced or is allowed. Each buffer that is left behind brings the next collection of
   * all garbage nearer.
   */
  #sizeFor(bytes: number): number {
    const whole = Number.isNaN(this.#announcedBytes) ? this.#bounds.limitBytes : this.#announcedBytes
    if (whole <= FREE_BYTES) return Math.max(bytes, whole)
    return Math.max(bytes, Math.min(whole, Math.max(FREE_BYTES, 4 * this.#buffer.length)))
  }

  #finish(error: Error | null, body?: ReadBody): void {
    if (this.#isDone) return
    this.#isDone = true
    this.#stream.off('data', this.#onData).off('end', this.#onEnd).off('error', this.#onError)
    this.#buffer = NOTHING
    if (body === undefined || 'beyond' in body) {
      this.#stream.pause()
      this.#shares.releaseMemory()
    }
    this.#done(error, body)
  }
}

const NOTHING = Buffer.alloc(0)
