import type { RateLimitState } from '../errors.js'

/**
 * What an answer says of these limits and of what is left of them, in the form of draft-ietf-httpapi-ratelimit-headers since its
 * version 8; `@fastify/rate-limit` writes older ones.
 */
export function rateLimitHeaders(states: readonly RateLimitState[]): { 'ratelimit-policy': string; ratelimit: string } {
  return {
    'ratelimit-policy': states.map(policyOf).join(', '),
    ratelimit: states.map(({ limit, remaining, resetS }) => `"${limit}";r=${remaining};t=${resetS}`).join(', '),
  }
}

function policyOf({ limit, quota, unit, windowS }: RateLimitState): string {
  const counted = unit === undefined ? '' : `;qu="${unit}"`
  return `"${limit}";q=${quota}${counted}${windowS === undefined ? '' : `;w=${windowS}`}`
}
