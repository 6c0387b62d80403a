import type { UnavailableReason } from './errors.js'

/** Whether the service can do its work now, and if not, why and what helps. */
export type Readiness =
  | { status: 'ready' }
  | { status: 'degraded'; reason: 'key_missing'; detail: string }
  | { status: 'unavailable'; reason: UnavailableReason; detail: string }
