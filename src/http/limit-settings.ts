import type { FastifyRequest } from 'fastify'
import { unavailableFor } from '../db/unavailable.js'
import {
  BodyTooLarge,
  BrokenRequest,
  InvalidRequest,
  type RateLimit,
  RateLimited,
  SnapshotTooLarge,
  Unavailable,
} from '../errors.js'

/** Of the rate limits, where their state names none. */
const OF_RATE_LIMITS: Readonly<Record<RateLimit, string>> = {
  token: 'RATE_LIMIT_PER_MINUTE',
  'header-values': 'HEADER_TRIALS_PER_HOUR',
  'token-memory': 'TRANSFER_BYTES_MAX',
  'token-requests': 'CONCURRENT_REQUESTS_MAX',
  'failed-authentication': 'FAILED_AUTH_LIMIT_PER_MINUTE',
}

/** Of the faults of a body, by type, in requests about agents and about tools. */
const OF_FAULTS: Readonly<Record<string, { persona?: string; tool?: string }>> = {
  snapshot_too_large: { persona: 'SNAPSHOT_BYTES_MAX' },
}

/** The setting whose bound a request met, for who runs the service; undefined where it was refused for anything else. */
export function settingOf(error: unknown, { policy }: FastifyRequest): string | undefined {
  const kind = policy?.resource ?? 'persona'
  if (error instanceof InvalidRequest) {
    const bounded = error.faults.find(({ type, loc }) => OF_FAULTS[type]?.[kind] && loc[1] !== 'starter_messages') // whose bound stands
    return bounded && OF_FAULTS[bounded.type]?.[kind]
  }
  if (error instanceof RateLimited) return error.state.setting ?? OF_RATE_LIMITS[error.state.limit]
  if (error instanceof BodyTooLarge) return kind === 'tool' ? 'TOOL_BODY_LIMIT_BYTES' : undefined
  if (error instanceof SnapshotTooLarge) return 'SNAPSHOT_BYTES_MAX'
  if (error instanceof Unavailable) return error.setting
  if (error instanceof BrokenRequest) return error.fault === 'too_slow' ? 'REQUEST_TIMEOUT_MS' : undefined
  return unavailableFor(error)?.setting
}
