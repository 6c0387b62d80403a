import type { FastifyInstance } from 'fastify'
import type { Readiness } from '../readiness.js'
import { JSON_TYPE } from './json-type.js'

/** How things stand now. */
export type ReadinessSource = () => Promise<Readiness>

/** What a probe is answered, whichever port it asks. */
export interface ProbeAnswer {
  status: 200 | 503
  headers: Record<string, string>
  body: string
}

type Probe = (requestId: string) => Promise<ProbeAnswer>

/**
 * `GET /healthz`: this process is alive, nothing else. `GET /readyz`: it can serve; 503 names its own reason and what to
 * do about it. A missing key is 200 `degraded`: most requests do not need it.
 */
export function probes(readiness: ReadinessSource): [path: string, answer: Probe][] {
  const headers = { 'content-type': JSON_TYPE }
  const alive: Probe = async () => ({ status: 200, headers, body: '{"status":"alive"}' })
  const ready: Probe = async requestId => {
    const found = await readiness()
    if (found.status !== 'unavailable') return { status: 200, headers, body: JSON.stringify(found) }
    const body = JSON.stringify({ ...found, error_code: 'SERVICE_UNAVAILABLE', request_id: requestId })
    return { status: 503, headers: { ...headers, 'retry-after': '1' }, body }
  }
  return [
    ['/healthz', alive],
    ['/readyz', ready],
  ]
}

/** The probes on the main port. */
export function registerHealth(app: FastifyInstance, readiness: ReadinessSource): void {
  const config = { policy: { permission: 'public' } } as const
  for (const [path, probe] of probes(readiness)) {
    app.get(path, { config, schema: { hide: true } }, async (request, reply) => {
      const { status, headers, body } = await probe(request.id)
      return reply.code(status).headers(headers).send(body)
    })
  }
}
