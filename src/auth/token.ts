/**
 * The format of an access token (DECISIONS section 7): a prefix (`pat_` person, `sa_` service account, `ro_` read-only, `rt_` runtime, `pp_`
 * proposals only), 22 random base-62 characters, and a CRC-32 in 6 characters. A mistyped token is refused without a lookup, and secret scanners can
 * find tokens by `\b(?:pat|sa|ro|rt|pp)_[0-9A-Za-z]{28}\b`. Only the SHA-256 is stored.
 */
import { hash, randomInt } from 'node:crypto'
import { crc32 } from 'node:zlib'
import { NotAuthenticated } from '../errors.js'

export type TokenKind = 'person' | 'service_account' | 'read_only' | 'runtime' | 'proposals_only'

const BASE_62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
const RANDOM_LENGTH = 22
const CHECKSUM_LENGTH = 6
const PREFIX = {
  ...{ person: 'pat_', service_account: 'sa_', read_only: 'ro_', runtime: 'rt_', proposals_only: 'pp_' },
} as const
const TOKEN_FORM = /^(?:pat|sa|ro|rt|pp)_[0-9A-Za-z]{28}$/

/** Makes a new token and the hash to store. */
export function mintToken(kind: TokenKind): { token: string; hash: Buffer } {
  const body = PREFIX[kind] + randomCharacters(RANDOM_LENGTH)
  const token = body + checksumOf(body)
  return { token, hash: hashToken(token) }
}

/** Returns the hash of a token; undefined if its format or checksum is wrong. */
export function parseToken(text: string): Buffer | undefined {
  const isRight = TOKEN_FORM.test(text) && checksumOf(text.slice(0, -CHECKSUM_LENGTH)) === text.slice(-CHECKSUM_LENGTH)
  return isRight ? hashToken(text) : undefined
}

/** Returns the SHA-256 of the bearer token in an `Authorization` header. Throws `NotAuthenticated` if the header has no well-formed token. */
export function bearerTokenHash(authorization: string | undefined): Buffer {
  if (authorization === undefined) {
    throw new NotAuthenticated('UNAUTHENTICATED', 'Send a token in the header Authorization: Bearer <token>.')
  }
  const token = /^bearer +(\S+) *$/i.exec(authorization)?.[1]
  if (token === undefined) {
    throw new NotAuthenticated('UNAUTHENTICATED', 'The header with the token must have the form: Bearer <token>.')
  }
  const hash = parseToken(token)
  if (hash === undefined) throw invalidToken()
  return hash
}

/** The error for a token that is malformed, unknown or revoked, or whose user is inactive. */
export function invalidToken(): NotAuthenticated {
  return new NotAuthenticated(
    'INVALID_TOKEN',
    'This token is not valid. Ask the operator for a new token (agentctl token create).',
  )
}

/** The number of hex digits of a token's SHA-256 that identify the token in the log. */
export const DIGEST_DIGITS = 12

/** The first hex digits of a token's SHA-256, for the log. `agentctl token list --json` shows them too. */
export function tokenDigest(hash: Buffer): string {
  return hash.toString('hex').slice(0, DIGEST_DIGITS)
}

/** Returns the stored form of a token's SHA-256. The hash of a read-only token begins with an additional zero byte (migration 0015). */
export function hashToken(token: string): Buffer {
  const digest = hash('sha256', token, 'buffer')
  return token.startsWith(PREFIX.read_only) ? Buffer.concat([Buffer.alloc(1), digest]) : digest
}

function checksumOf(body: string): string {
  let rest = crc32(body)
  let digits = ''
  for (let place = 0; place < CHECKSUM_LENGTH; place++) {
    digits = BASE_62.charAt(rest % 62) + digits
    rest = Math.floor(rest / 62)
  }
  return digits
}

function randomCharacters(length: number): string {
  return Array.from({ length }, () => BASE_62.charAt(randomInt(62))).join('')
}
