import { IncomingMessage } from 'node:http'

/** So many pieces of a body are handed on as they come: most have fewer. */
const FREE_PIECES = 16

/** A piece of so many bytes is worth a buffer of its own: it takes about so much memory beside its bytes. */
const LARGE_PIECE_BYTES = 512

/** In one buffer. */
const PACK_BYTES = 4 * 1024

/**
 * A request whose body, where it comes in many small pieces, is handed on in larger ones. The parser makes a buffer and an event of
 * each chunk, and of all that one read of the socket brings at once: of chunks of one byte ten thousand, each of which takes 330
 * bytes for as long as nobody reads them.
 */
export class PackedMessage extends IncomingMessage {
  /** How many pieces the parser has made of the body so far. */
  pieces = 0
  /** How long that took, of those that are packed; in ms. */
  piecesMs = 0
  /** Why the rest of the body will not be read; undefined while it may. */
  fault: Error | undefined
  /** Why the rest of its chunks is not there, where they are too many: nobody may take what came for the whole. */
  cut: Error | undefined
  /** When the last of these came. */
  #pieceAt = 0
  #pack: Buffer | undefined
  #packedBytes = 0

  /** The parser's pieces, then null. Answers whether there is room for more. */
  override push(piece: Buffer | null): boolean {
    if (piece === null) {
      this.#handOn()
      return super.push(null)
    }
    this.pieces++
    if (this.pieces <= FREE_PIECES || piece.length >= LARGE_PIECE_BYTES) {
      this.#handOn()
      return super.push(piece)
    }
    this.#noteTime()
    if (this.#packedBytes + piece.length > PACK_BYTES) this.#handOn()
    this.#pack ??= Buffer.allocUnsafeSlow(PACK_BYTES)
    this.#packedBytes += piece.copy(this.#pack, this.#packedBytes)
    return this.readableLength + this.#packedBytes < this.readableHighWaterMark
  }

  /** No more of it can be read. Who reads its body learns it by the event `error`, and by `fault` who comes to that later. */
  break(fault: Error): void {
    this.fault = fault
    if (this.listenerCount('error') > 0) this.emit('error', fault)
  }

  /** The parser does nothing else between two pieces of one read. */
  #noteTime(): void {
    const now = performance.now()
    if (this.#pieceAt > 0) this.piecesMs += now - this.#pieceAt
    else setImmediate(this.#endRead) // comes when the whole read is parsed, unlike a tick
    this.#pieceAt = now
  }

  readonly #endRead = (): void => {
    this.#pieceAt = 0
    this.#handOn()
  }

  #handOn(): void {
    if (this.#pack === undefined) return
    const pack = this.#pack.subarray(0, this.#packedBytes)
    this.#pack = undefined
    this.#packedBytes = 0
    super.push(pack)
  }
}
