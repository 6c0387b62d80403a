import type { Readable } from 'node:stream'
import { errorCodes } from 'fastify'
import { BodyTooLarge, ClientGone, type Fault, TinyChunks, type Unavailable } from '../errors.js'
import { type JsonBounds, JsonScan } from '../schema/json-scan.js'
import { PackedMessage } from './packed-message.js'
import { CHUNKS } from './parser-bounds.js'

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
  /** Reserves memory for more bytes that come; throws when there is none. */
  reserveMemory(bytes: number): void
  /** Reserves it for all of a body, and calls `begin`, when there is some; `failed` learns why there is none. */
  awaitMemory(bytes: number, begin: () => void, failed: (error: Error) => void): void
  /** Gives all of it back, and waits for none: what came is dropped. Or so many bytes. */
  releaseMemory(bytes?: number): void
  /** Takes note that a large body begins, and answers whether no other of the same sender is on its way. */
  beginLarge(): boolean
  /** Does work in a turn on this thread, of which so many milliseconds are used outside of it. `failed` learns why none came. */
  takeTurn(usedMs: number, work: () => void, failed: (error: Error) => void): void
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

/** So much of a body needs no reservation: most are smaller. Nor does it take long to parse, or to work on. */
export const SMALL_BYTES = 8 * 1024

/** The first buffer of a body that is larger, and whose length nobody knows. */
const FIRST_BYTES = 64 * 1024

/**
 * To read so much takes about a millisecond of this thread beside the work of this program on it: in the socket's reads and, later,
 * in the collection of their buffers.
 */
const READ_BYTES_PER_MS = 250_000

/** What one read of a socket brings. */
const READ_AT_ONCE_BYTES = 64 * 1024

/** What the parser did for small chunks was in no turn: all that one read of the socket brings is parsed in one go. So it counts threefold. */
const CHUNKS_COUNT_TIMES = 3

/**
 * Reads a request's body into one buffer that grows with what arrives, whatever length was announced and however small the
 * pieces are. A length that was announced is reserved before anything is read, so that nothing is read in vain; else memory is taken as it
 * grows. Looks at each piece as it comes: a body beyond its bounds, or without memory, is read no further, and its stream is
 * paused.
 *
 * Reads a large body in turns, `turnBytes` in each: at once, as fast as it comes, it would keep the thread from everybody else. A
 * turn is asked for when the bytes for it are there: who sends slowly keeps nobody from theirs. The first so many bytes need none,
 * unless another of its sender is on its way: that takes a turn for all of them ahead, so that of many at once nothing is read of those
 * that get none.
 *
 * Calls `done` once. Errors: `BodyTooLarge`, that of Fastify for a body that is not as long as was said, `ClientGone`, `TinyChunks`,
 * `BrokenRequest`, `Unavailable` when it is abandoned or has no room among the chunks of all, and what `reserveMemory` throws.
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
  #reservedBytes = 0
  #scannedBytes = 0
  #chunks = 0
  #isDone = false
  #chunksMs = 0
  /** What came since the last turn; chunks count as what could have been read meanwhile. */
  #turnBytes = 0

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

  /** Reads no further, for this reason. */
  abandon(reason: Unavailable): void {
    this.#finish(reason)
  }

  start(): void {
    if (this.#announcedBytes > this.#bounds.limitBytes) {
      this.#done(new BodyTooLarge(this.#bounds.limitBytes, this.#announcedBytes))
      return
    }
    if (this.#stream instanceof PackedMessage && this.#stream.fault !== undefined) {
      this.#fail(this.#stream.fault)
      return
    }
    if (this.#stream.destroyed) {
      this.#onError() // its client left before it was its turn, and no event comes any more
      return
    }
    this.#stream.on('broken', this.#fail)
    this.#stream.pause().on('data', this.#onData).on('end', this.#onEnd).on('error', this.#onError)
    const bytes = this.#announcedBytes
    const haveMemory = () => {
      this.#reservedBytes = bytes
      this.#takeTurn()
    }
    if (bytes > SMALL_BYTES) this.#shares.awaitMemory(bytes, haveMemory, this.#fail)
    else this.#takeTurn()
  }

  /** Gives back the memory that was reserved for what has not come. The rest has it when it comes, if there is some. Answers how many bytes. */
  shrink(): number {
    const unused = this.#reservedBytes - this.#buffer.length
    if (this.#isDone || unused <= 0) return 0
    this.#reservedBytes -= unused
    this.#shares.releaseMemory(unused)
    return unused
  }

  #takeTurn(): void {
    const isSmall = this.#announcedBytes <= this.#bounds.turnBytes
    if (isSmall || this.#shares.beginLarge()) {
      this.#begin()
      return
    }
    const bytes = this.#wholeBytes
    const begin = () => {
      if (bytes <= READ_AT_ONCE_BYTES) this.#turnBytes = -bytes // it was its turn
      this.#begin()
    }
    this.#shares.takeTurn(readMs(bytes), begin, this.#fail)
  }

  #begin(): void {
    if (this.#isDone) return // abandoned meanwhile
    this.#shares.askForBody()
    this.#stream.resume()
  }

  readonly #onData = (piece: Buffer): void => {
    this.#shares.onRead(piece.length)
    this.#turnBytes += piece.length + CHUNKS_COUNT_TIMES * this.#newChunksMs() * READ_BYTES_PER_MS
    try {
      this.#admit(piece)
      this.#keep(piece)
      if (this.#turnBytes > this.#bounds.turnBytes) this.#waitForTurn()
      else this.#scanNew()
    } catch (error) {
      this.#fail(error as Error) // all of the above throw nothing else
    }
  }

  /** Nothing is read meanwhile. */
  #waitForTurn(): void {
    const usedMs = readMs(this.#turnBytes)
    this.#turnBytes = 0
    this.#stream.pause()
    const goOn = () => {
      if (this.#isDone) return // abandoned meanwhile
      this.#scanNew()
      if (!this.#isDone) this.#stream.resume()
    }
    this.#shares.takeTurn(usedMs, goOn, this.#fail)
  }

  /** How long its chunks took since this was last called: those that are read, and those that wait to be. */
  #newChunksMs(): number {
    if (!(this.#stream instanceof PackedMessage)) return 0
    const beforeMs = this.#chunksMs
    this.#chunksMs = this.#stream.piecesMs
    if (Number.isNaN(this.#announcedBytes)) this.#chunks = this.#stream.pieces
    return this.#chunksMs - beforeMs
  }

  #scanNew(): void {
    const cut = this.#cut
    if (cut !== undefined) {
      this.#finish(cut)
      return
    }
    const beyond = this.#scan.push(this.#buffer.subarray(this.#scannedBytes, this.#bytes))
    this.#scannedBytes = this.#bytes
    if (beyond !== undefined) this.#finish(null, { beyond })
  }

  #admit({ length }: Buffer): void {
    if (this.#bytes + length > this.#bounds.limitBytes) throw new BodyTooLarge(this.#bounds.limitBytes)
  }

  readonly #onEnd = (): void => {
    const isWhole = Number.isNaN(this.#announcedBytes) || this.#bytes === this.#announcedBytes
    const cut = this.#cut
    if (cut !== undefined) this.#finish(cut)
    else if (isWhole) this.#finish(null, this.#wholeBody())
    else this.#finish(new errorCodes.FST_ERR_CTP_INVALID_CONTENT_LENGTH())
  }

  /** Why there is no more of it; where the parser cannot be bounded, the count of chunks here does the same later. */
  get #cut(): Error | undefined {
    if (this.#stream instanceof PackedMessage && this.#stream.cut !== undefined) return this.#stream.cut
    return this.#chunks > CHUNKS.free + this.#bytes / CHUNKS.meanBytesMin ? new TinyChunks() : undefined
  }

  #wholeBody(): WholeBody {
    const { nodes, hasPlainNumbers } = this.#scan
    return { bytes: this.#buffer.subarray(0, this.#bytes), nodes, hasPlainNumbers }
  }

  readonly #onError = (): void => {
    this.#fail(new ClientGone())
  }

  #keep(piece: Buffer): void {
    const bytes = this.#bytes + piece.length
    if (bytes > this.#buffer.length) {
      const size = this.#sizeFor(bytes)
      if (size > SMALL_BYTES && size > this.#reservedBytes) {
        this.#shares.reserveMemory(size - this.#reservedBytes)
        this.#reservedBytes = size
      }
      const larger = size > SMALL_BYTES ? Buffer.allocUnsafeSlow(size) : Buffer.allocUnsafe(size)
      this.#buffer.copy(larger, 0, 0, this.#bytes)
      this.#buffer = larger
    }
    piece.copy(this.#buffer, this.#bytes)
    this.#bytes = bytes
  }

  /** What was announced, else what is allowed. */
  get #wholeBytes(): number {
    return Number.isNaN(this.#announcedBytes) ? this.#bounds.limitBytes : this.#announcedBytes
  }

  /**
   * Grows fourfold, but takes no more than was announced or is allowed, and all of it where it is not twice as much. Each buffer that is
   * left behind brings the next collection of all garbage nearer.
   */
  #sizeFor(bytes: number): number {
    const whole = this.#wholeBytes
    const grown = bytes <= SMALL_BYTES ? SMALL_BYTES : Math.max(FIRST_BYTES, 4 * this.#buffer.length)
    return whole <= Math.max(FIRST_BYTES, 2 * grown) ? Math.max(bytes, whole) : Math.max(bytes, grown)
  }

  readonly #fail = (error: Error): void => this.#finish(error)

  #finish(error: Error | null, body?: ReadBody): void {
    if (this.#isDone) return
    this.#isDone = true
    this.#stream.off('data', this.#onData).off('end', this.#onEnd).off('error', this.#onError).off('broken', this.#fail)
    this.#buffer = NOTHING
    if (body === undefined || 'beyond' in body) {
      this.#stream.pause()
      this.#shares.releaseMemory()
    }
    this.#done(error, body)
  }
}

const NOTHING = Buffer.alloc(0)

/** About how long it takes to read so much, in ms. */
function readMs(bytes: number): number {
  return bytes / READ_BYTES_PER_MS
}
