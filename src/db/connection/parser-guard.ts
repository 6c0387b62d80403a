import { isAscii, isUtf8, transcode } from 'node:buffer'
import type { Duplex } from 'node:stream'
import type pg from 'pg'

/** What is used of pg's connection: where it starts to listen to its stream, which may be a socket or TLS over one. */
interface ListeningConnection {
  attachListeners(stream: Duplex): void
}

/**
 * Has what pg throws while it reads the server's bytes end this one connection. pg reads them in the stream's own event,
 * where nobody catches: a value too long for a JavaScript text, or bytes that are not a message, would end the process. A
 * message in whose fields pg would search for an end for ever is not handed to it at all.
 */
export function guardParser(connection: pg.Connection): void {
  const listening = connection as unknown as ListeningConnection // missing in pg's declarations
  const attach = listening.attachListeners
  listening.attachListeners = stream => {
    attach.call(connection, stream)
    const messages = new MessageEnds()
    for (const read of stream.listeners('data') as ((bytes: Buffer) => void)[]) {
      stream.off('data', read)
      stream.on('data', bytes => {
        try {
          for (const part of messages.check(bytes)) read(part)
        } catch (error) {
          stream.destroy(error instanceof Error ? error : new Error(String(error)))
        }
      })
    }
  }
}

const HEADER_BYTES = 5
const [ERROR, NOTICE] = ['E', 'N'].map(type => type.charCodeAt(0))

/** A longer message is collected here: pg would copy what it has of it into a buffer of twice the length, again and again. */
const COLLECTED_BYTES_MIN = 256 * 1024
/** Of a still longer one nobody knows that it comes at all. */
const COLLECTED_BYTES_MAX = 32 * 1024 * 1024

/** Follows the messages of one connection, however they are cut into chunks. */
class MessageEnds {
  readonly #header = Buffer.alloc(HEADER_BYTES)
  #headerBytes = 0
  /** Of the message under way, how many bytes are still to come, and the last two that came. */
  #bytesLeft = 0
  #tail: readonly [number | undefined, number | undefined] = [0, 0]
  /** A long message, as far as it has come. */
  #long: Buffer | undefined

  /**
   * What is to be read of these bytes, in their order: of a long message nothing until it is whole. Throws for a length that is none,
   * and for an error or a notice that does not end as the protocol says.
   */
  check(bytes: Buffer): Buffer[] {
    const parts: Buffer[] = []
    let from = 0
    for (let at = 0; at < bytes.length; ) {
      if (this.#headerBytes < HEADER_BYTES) {
        this.#header[this.#headerBytes++] = bytes[at++] as number
        if (this.#headerBytes < HEADER_BYTES) continue
        this.#bytesLeft = this.#header.readUInt32BE(1) - (HEADER_BYTES - 1)
        this.#tail = [0, undefined]
        if (this.#bytesLeft < 0) throw new Error('the server sent a message with a length that is none')
        // One of whose header a part was read before is not collected.
        const isLong = this.#bytesLeft > COLLECTED_BYTES_MIN && this.#bytesLeft <= COLLECTED_BYTES_MAX
        if (isLong && at - HEADER_BYTES >= from) {
          parts.push(bytes.subarray(from, at - HEADER_BYTES))
          from = at
          this.#long = Buffer.allocUnsafeSlow(HEADER_BYTES + this.#bytesLeft)
          this.#header.copy(this.#long)
        }
      } else {
        const taken = Math.min(this.#bytesLeft, bytes.length - at)
        if (this.#long !== undefined) {
          bytes.copy(this.#long, this.#long.length - this.#bytesLeft, at, at + taken)
          from = at + taken
        }
        at += taken
        this.#bytesLeft -= taken
        this.#tail = [taken > 1 ? bytes[at - 2] : (this.#tail[1] ?? 0), bytes[at - 1]]
        if (this.#bytesLeft === 0 && this.#long !== undefined) parts.push(withFastTexts(this.#long))
      }
      if (this.#bytesLeft === 0) this.#end()
    }
    if (from === 0) return [bytes]
    parts.push(bytes.subarray(from))
    return parts.filter(({ length }) => length > 0)
  }

  #end(): void {
    this.#headerBytes = 0
    this.#long = undefined
    const [type] = this.#header
    // The fields are texts that end with a zero, behind the last stands one more.
    if ((type === ERROR || type === NOTICE) && this.#tail.some(byte => byte !== 0)) {
      throw new Error('the server sent an error or a notice without its end')
    }
  }
}

/** A shorter text is decoded as every other. */
const LONG_TEXT_BYTES = 64 * 1024

/**
 * Has long texts of this message decoded by `transcode`. pg asks the buffer itself for them, and `toString` takes 7 ms for each MiB
 * that holds other than ASCII, in one go, this 0.2 ms.
 */
function withFastTexts(message: Buffer): Buffer {
  message.toString = (encoding, start = 0, end = message.length) => {
    const bytes = message.subarray(start, end)
    const isFast = encoding === 'utf-8' && bytes.length >= LONG_TEXT_BYTES && !isAscii(bytes) && isUtf8(bytes)
    return isFast ? transcode(bytes, 'utf8', 'utf16le').toString('utf16le') : bytes.toString(encoding)
  }
  return message
}
