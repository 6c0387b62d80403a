import type { Config } from '../config.js'

/** Why requests failed (5xx) in a running service: an error code or the reason of a 503, how often, and when last. */
export interface Failure {
  reason: string
  count: number
  /** ISO 8601, UTC. */
  last_at: string
}

const ANSWER_LIMIT_MS = 2_000

/** Where the service with these settings shows its metrics to this machine; undefined where it picks a port by itself. */
export function metricsUrl({ server }: Config): string | undefined {
  const port = server.metricsPort ?? server.port
  const host = server.host === '0.0.0.0' || server.host === '::' ? '127.0.0.1' : server.host
  return port === 0 ? undefined : `http://${host.includes(':') ? `[${host}]` : host}:${port}/metrics`
}

/** What failed since the service started, the latest first. Undefined when no service shows its metrics there. */
export async function readFailures(url: string, token: string | undefined): Promise<Failure[] | undefined> {
  try {
    const headers: Record<string, string> = token === undefined ? {} : { authorization: `Bearer ${token}` }
    const answer = await fetch(url, { headers, signal: AbortSignal.timeout(ANSWER_LIMIT_MS) })
    const text = answer.ok ? await answer.text() : ''
    return text.includes('agents_build_info') ? failuresIn(text) : undefined
  } catch {
    return undefined // nobody listens, or not in time
  }
}

function failuresIn(metrics: string): Failure[] {
  const counts = byReason(metrics, 'agents_http_refusals_total')
  return [...byReason(metrics, 'agents_http_last_failure_timestamp_seconds')]
    .sort(([, one], [, other]) => other - one)
    .map(([reason, lastS]) => ({
      reason,
      count: counts.get(reason) ?? 0,
      last_at: new Date(lastS * 1000).toISOString(),
    }))
}

function byReason(metrics: string, name: string): Map<string, number> {
  const lines = metrics.matchAll(new RegExp(`^${name}\\{reason="([^"]*)"\\} (\\S+)$`, 'gm'))
  return new Map([...lines].map(([, reason = '', value]) => [reason, Number(value)]))
}
