import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { Metrics } from '../../src/http/metrics.js'
import { ServiceProcess } from '../faults/service.js'
import { TEST_SECRET_KEYS, worldDatabase } from '../world.js'
import { eventually, RawConnection, type Running, running } from './running.js'

const OPS = fileURLToPath(new URL('../../../ops/', import.meta.url))

const patch = ({ call, token }: Running, body = '{}', url = '/persona/999999?dry_run=true') =>
  call('PATCH', url, { token, body })

/** Formats numbers of answers by operation and status as lines of Prometheus metrics. */
function answers(counts: Record<string, number>): string[] {
  return Object.entries(counts).map(([answer, count]) => {
    const [operation, status] = answer.split(' ')
    return `agents_http_request_duration_seconds_count{operation="${operation}",status="${status}"} ${count}`
  })
}

const refusals = (counts: Record<string, number>) =>
  Object.entries(counts).map(([reason, count]) => `agents_http_refusals_total{reason="${reason}"} ${count}`)

const metrics = new Metrics()
const shared = await running(t, {}, { metrics })

t.test('requests, refusals, pool and state are counted', async t => {
  const service = await running(t, { RATE_LIMIT_PER_MINUTE: '3' })
  await service.call('PATCH', '/persona/999999', { body: '{}' })
  await patch(service, '{', '/persona/999999')
  await patch(service, '{}', '/persona/999999?update_mask=')
  await patch(service, '{}', '/persona/nonsense')
  await patch(service)
  await service.app.inject({ url: `/no/such/${'place'.repeat(20)}` })
  const lines = (await service.metrics.registry.metrics()).split('\n')
  const durations = { 'update_persona 401': 1, 'update_persona 404': 1, 'update_persona 422': 2, 'none 404': 1 }
  const reasons = { UNAUTHENTICATED: 1, INVALID_REQUEST: 2, PERSONA_NOT_FOUND: 1, RATE_LIMITED: 1, NOT_FOUND: 1 }
  const others = ['agents_database_pool_waiting 0', 'agents_http_requests_in_work 0', 'agents_ready 1']
  for (const line of [...answers({ ...durations, 'update_persona 429': 1 }), ...refusals(reasons), ...others])
    t.ok(lines.includes(line), line)
})

t.test('what is counted stands at 0 from the start, so that the first of anything is an increase', async t => {
  const lines = (await metrics.registry.metrics()).split('\n')
  const none = refusals({ INVALID_TOKEN: 0, INTERNAL_ERROR: 0, database_unreachable: 0 })
  none.push(...answers({ 'update_persona 200': 0, 'update_custom_tool 500': 0, 'validate_custom_tool 503': 0 }))
  for (const line of none) t.ok(lines.includes(line), line)
})

t.test('labels hold nothing that a caller makes up, and two applications share nothing', async t => {
  const service = shared
  const other = await running(t)
  for (let i = 0; i < 50; i++) {
    await service.app.inject({ url: `/made-up-${i}`, headers: { 'x-request-id': `made-up-${i}` } })
    await patch(service, '{}', `/persona/${i}?made-up-${i}=1`)
    await service.app.inject({ method: i % 2 ? 'PUT' : 'OPTIONS', url: '/persona/999999' })
  }
  const body = await metrics.registry.metrics()
  t.notMatch(body, /made-up/)
  const labels = new Set(body.split('\n').flatMap(line => /^agents_http_\w+_count\{(.*)\} [1-9]/.exec(line)?.[1] ?? []))
  t.strictSame([...labels].sort(), [
    'operation="none",status="404"',
    'operation="none",status="405"',
    'operation="update_persona",status="422"',
  ])
  t.notMatch(await other.metrics.registry.metrics(), /status="405"/)
})

t.test('each metric of the dashboard exists, with the labels that it asks for', async t => {
  const body = await metrics.registry.metrics()
  const dashboard = JSON.parse(readFileSync(join(OPS, 'grafana-dashboard.json'), 'utf8'))
  const queries: string[] = dashboard.panels.flatMap((panel: { targets?: { expr: string }[] }) =>
    (panel.targets ?? []).map(target => target.expr),
  )
  t.ok(queries.length > 5)
  const known = new Set(body.split('\n').flatMap(line => /^# TYPE (\S+)/.exec(line)?.[1] ?? []))
  const asked = queries.flatMap(query => query.match(/\b(?:agents|nodejs|process)_\w+/g) ?? [])
  for (const name of new Set(asked)) {
    t.ok(known.has(name) || known.has(name.replace(/_(?:bucket|count|sum)$/, '')), name)
  }
  const ours = [...known].filter(name => name.startsWith('agents_') && name !== 'agents_build_info')
  t.ok(ours.every(name => asked.some(one => one.startsWith(name))))
})

const skip = !existsSync('/usr/bin/promtool') && 'no promtool on this machine: apt-get install prometheus'

t.test('each alert is well formed, has a case in which it fires and one in which it does not', { skip }, async t => {
  execFileSync('promtool', ['check', 'rules', join(OPS, 'alerts.yaml')])
  execFileSync('promtool', ['test', 'rules', 'alerts.test.yaml'], { cwd: OPS })
  const alerts = [...readFileSync(join(OPS, 'alerts.yaml'), 'utf8').matchAll(/- alert: (\w+)/g)].map(([, name]) => name)
  const cases = readFileSync(join(OPS, 'alerts.test.yaml'), 'utf8')
  t.ok(alerts.length > 5)
  for (const name of alerts) {
    t.ok(cases.includes(`- name: ${name} fires\n`), `${name} fires`)
    t.ok(cases.includes(`- name: ${name} stays quiet\n`), `${name} stays quiet`)
  }
})

async function answerOf(port: number, path: string) {
  const response = await fetch(`http://127.0.0.1:${port}${path}`, { headers: { 'x-request-id': 'a-probe' } })
  const { status, headers } = response
  const said = ['content-type', 'retry-after', 'cache-control'].map(name => headers.get(name))
  return { status, said, body: await response.text() }
}

t.test('200 for /metrics and the probes alone on METRICS_PORT; 503 for /readyz on both ports in a drain', async t => {
  const { url } = await worldDatabase(t)
  const env = { DATABASE_URL: url, SECRET_KEYS: TEST_SECRET_KEYS, DRAIN_DELAY_MS: '2000' }
  const service = await ServiceProcess.start(env, t)
  const port = service.metricsPort
  const statusOf = async (on: number, path: string) => (await answerOf(on, path)).status
  let text = ''
  await eventually(async () => {
    const shown = await fetch(`http://127.0.0.1:${port}/metrics`)
    t.match(shown.headers.get('content-type'), /^text\/plain; version=0\.0\.4/)
    text = await shown.text()
    return /^agents_ready 1$/m.test(text)
  })
  t.match(text, /^process_cpu_seconds_total /m, 'what Node says of the process is there')
  for (const path of ['/healthz', '/readyz']) {
    t.strictSame(await answerOf(port, path), await answerOf(service.port, path))
    t.equal(await statusOf(port, `${path}?probe=1`), 200)
  }
  t.strictSame([await statusOf(port, '/docs'), await statusOf(service.port, '/metrics')], [404, 404])
  const connection = new RawConnection(port).write('GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(1_000))
  await connection.closed
  t.equal(connection.text.split('HTTP/1.1 200 OK').length, 2, 'a connection has one answer, whatever it sends')
  const stopped = service.stop('SIGTERM')
  await eventually(() => service.log.includes('"shutting down"'))
  const [own, main] = await Promise.all([port, service.port].map(each => answerOf(each, '/readyz')))
  t.match(own, { status: 503, body: /"reason":"draining"/ })
  t.strictSame(own, main)
  t.equal(await statusOf(port, '/healthz'), 200)
  t.equal(await stopped, 0)
})
