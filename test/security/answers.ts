import type { LightMyRequestResponse } from 'fastify'
import type { WorldApp } from '../app.js'
import type { HostileRequest } from './requests.js'

/** No request may take longer. */
export const HANG_MS = 1_000

const STATUSES = [200, 302, 304, 400, 401, 403, 404, 405, 412, 413, 414, 415, 422, 428]
const ERROR_MEMBERS = ['error_code', 'detail', 'request_id', 'reason', 'current_etag', 'changed', 'applied_etag']

/**
 * Sends a request; one that seems to hang is sent once more, because the machine may have been busy with something else.
 * Processor time is that of the whole process, the collector's threads included.
 */
export async function timed({ app }: WorldApp, request: HostileRequest, attempts = 2) {
  for (let attempt = 1; ; attempt++) {
    const start = performance.now()
    const before = process.cpuUsage()
    const answer = await app.inject({
      method: request.method as 'GET', // tests ask with unusual ones too
      url: request.url,
      headers: request.headers,
      ...(request.payload !== undefined && { payload: request.payload }),
    })
    const { user, system } = process.cpuUsage(before)
    const [ms, cpuMs] = [performance.now() - start, (user + system) / 1000]
    if (ms < HANG_MS || attempt === attempts) return { answer, ms, cpuMs }
  }
}

type Refuse = (why: string) => never

/** Throws unless the answer is one that DECISIONS section 2 knows. */
export function requireShape(answer: LightMyRequestResponse, method: string): void {
  const { statusCode, headers, body } = answer
  const refuse: Refuse = why => {
    throw new Error(`${why}: ${statusCode} ${JSON.stringify(headers)} ${body.slice(0, 2_000)}`)
  }
  if (!STATUSES.includes(statusCode)) refuse('this status is not expected')
  if (headers['cache-control'] !== 'no-store') refuse('Cache-Control is not no-store')
  if (headers['x-request-id'] === undefined) refuse('there is no request id')
  for (const [name, value] of Object.entries(headers)) {
    if (/[^\t\x20-\x7e]/.test(String(value))) refuse(`the header ${name} is not plain ASCII`)
  }
  // Generated addresses such as /persona/.. are sent as /, which leads to the page.
  if (statusCode === 302 && headers.location !== 'docs') refuse('this leads somewhere else than / does')
  if (method === 'HEAD' || statusCode === 302 || statusCode === 304) return
  const content: unknown = JSON.parse(body)
  if (typeof content !== 'object' || content === null) refuse('the body is no object')
  if (statusCode === 200) return
  if (statusCode === 422) {
    requireFaults(content, refuse)
    return
  }
  const { error_code: code, detail, request_id: id } = content as Record<string, unknown>
  if (typeof code !== 'string' || typeof detail !== 'string') refuse('this is no error')
  if (id !== headers['x-request-id']) refuse('the two request ids differ')
  if (Object.keys(content).some(member => !ERROR_MEMBERS.includes(member))) refuse('an unknown member')
}

function requireFaults(content: object, refuse: Refuse): void {
  const { detail, ...others } = content as { detail?: unknown }
  if (Object.keys(others).length > 0 || !Array.isArray(detail)) refuse('this is no list of faults')
  if (detail.length === 0 || detail.length > 100) refuse(`${detail.length} faults`)
  for (const { loc, msg, type, ...rest } of detail) {
    const placed = Array.isArray(loc) && ['body', 'path', 'query', 'header'].includes(loc[0])
    const known = placed && loc.every((part: unknown) => typeof part === 'string' || Number.isInteger(part))
    if (!known || typeof msg !== 'string' || msg === '' || !/^[a-z_]+$/.test(type)) refuse('this is no fault')
    if (Object.keys(rest).length > 0) refuse('a fault with another member')
  }
}
