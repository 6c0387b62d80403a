import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { networkInterfaces } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { Metrics } from '../../src/http/metrics.js'
import { ServiceProcess } from '../faults/service.js'
import { TEST_SECRET_KEYS, worldDatabase } from '../world.js'
import { eventually, METRICS_TOKEN, metricsOf, RawConnection, type Running, running } from './running.js'

const OPS = fileURLToPath(new URL('../../../ops/', import.meta.url))

const patch = ({ app }: Running, token: string | undefined, payload = '{}', url = '/persona/999999?dry_run=true') =>
  app.inject({
    method: 'PATCH',
    url,
    headers: { 'content-type': 'application/json', ...(token !== undefined && { authorization: `Bearer ${token}` }) },
    payload,
  })

/** The value of a metric, by its whole name with labels as Prometheus writes them; undefined when it is not there. */
function metricIn(text: string, name: string): number | undefined {
  const line = text.split('\n').find(line => line.startsWith(`${name} `))
  return line === undefined ? undefined : Number(line.slice(name.length))
}

const metrics = new Metrics()
metrics.collectProcess()
const shared = await running(t, { TRUST_PROXY: '192.0.2.1' }, { metrics })

t.test('200 /metrics counts requests, refusals, statements, pool and state', async t => {
  const service = await running(t, { RATE_LIMIT_PER_MINUTE: '3' })
  await patch(service, undefined)
  await patch(service, service.token, '{', '/persona/999999')
  await patch(service, service.token, '{}', '/persona/999999?update_mask=')
  await patch(service, service.token, '{}', '/persona/nonsense')
  await patch(service, service.token)
  await service.app.inject({ url: `/no/such/${'place'.repeat(20)}` })
  const { statusCode, headers, body } = await metricsOf(service)
  t.equal(statusCode, 200)
  t.match(headers['content-type'], /^text\/plain; version=0\.0\.4/)
  const count = (operation: string, status: number) =>
    metricIn(body, `agents_http_request_duration_seconds_count{operation="${operation}",status="${status}"}`)
  t.equal(count('update_persona', 401), 1)
  t.equal(count('update_persona', 422), 2)
  t.equal(count('update_persona', 404), 1)
  t.equal(count('update_persona', 429), 1)
  t.equal(count('none', 404), 1)
  for (const [reason, wanted] of Object.entries({
    UNAUTHENTICATED: 1,
    INVALID_REQUEST: 2,
    PERSONA_NOT_FOUND: 1,
    RATE_LIMITED: 1,
    NOT_FOUND: 1,
  })) {
    t.equal(metricIn(body, `agents_http_refusals_total{reason="${reason}"}`), wanted, reason)
  }
  t.equal(metricIn(body, 'agents_rate_limited_total{limit="token"}'), 1)
  t.ok(Number(metricIn(body, 'agents_database_statements_total')) > 5)
  t.ok(Number(metricIn(body, 'agents_database_round_trip_duration_seconds_count{outcome="ok"}')) > 3)
  t.equal(metricIn(body, 'agents_database_pool_size_max'), 4)
  t.ok(Number(metricIn(body, 'agents_database_pool_connections{state="idle"}')) >= 1)
  t.equal(metricIn(body, 'agents_database_pool_waiting'), 0)
  t.ok(Number(metricIn(body, 'agents_database_pool_wait_seconds_count')) > 3)
  t.equal(metricIn(body, 'agents_http_requests_in_work'), 0)
  await eventually(async () => metricIn((await metricsOf(service)).body, 'agents_ready') === 1)
  t.equal(metricIn(body, 'agents_database_accepts_writes'), 1, 'in the first answer')
})

t.test('what is counted stands at 0 from the start, so that the first of anything is an increase', async t => {
  const { body } = await metrics.text()
  for (const name of [
    'agents_rate_limited_total{limit="token"}',
    'agents_rate_limited_total{limit="token-requests"}',
    'agents_http_connections_refused_total',
    'agents_http_refusals_total{reason="INVALID_TOKEN"}',
    'agents_http_refusals_total{reason="INTERNAL_ERROR"}',
    'agents_http_refusals_total{reason="database_unreachable"}',
    'agents_http_requests_abandoned_total{operation="validate_custom_tool"}',
    'agents_http_request_duration_seconds_count{operation="update_persona",status="200"}',
    'agents_http_request_duration_seconds_count{operation="update_custom_tool",status="500"}',
    'agents_http_request_duration_seconds_count{operation="validate_custom_tool",status="503"}',
    'agents_database_round_trip_duration_seconds_count{outcome="failed"}',
  ]) {
    t.equal(metricIn(body, name), 0, name)
  }
})

t.test('agents_database_pool_wait_seconds tells the wait for a connection, be it granted or refused', async t => {
  const service = await running(t, { DATABASE_POOL_SIZE: '1', DATABASE_CONNECT_TIMEOUT_MS: '1000' })
  const waits = async (seconds: number) => {
    const { body } = await service.metrics.text()
    const all = metricIn(body, 'agents_database_pool_wait_seconds_count')
    return Number(all) - Number(metricIn(body, `agents_database_pool_wait_seconds_bucket{le="${seconds}"}`))
  }
  const ask = () => patch(service, service.token, '{}', '/persona/999999?update_mask=')
  await ask()
  t.equal(await waits(0.5), 0, 'nobody waited')
  const client = await service.database.pool.connect()
  const served = ask()
  await eventually(() => service.database.pool.waitingCount > 0)
  await sleep(600)
  client.release()
  t.equal((await served).statusCode, 404)
  t.equal(await waits(0.5), 1, 'one waited until the connection was given back')
  const again = await service.database.pool.connect()
  const refused = await ask()
  again.release()
  t.equal(refused.statusCode, 503)
  t.match(refused.json(), { reason: 'overloaded', outcome: 'not_applied' })
  t.equal(await waits(0.5), 2, 'another in vain')
})

t.test('labels hold nothing that a caller makes up, and two applications share nothing', async t => {
  const service = shared
  const other = await running(t, { METRICS_TOKEN: '' })
  for (let i = 0; i < 50; i++) {
    await service.app.inject({ url: `/made-up-${i}`, headers: { 'x-request-id': `made-up-${i}` } })
    await patch(service, service.token, '{}', `/persona/${i}?made-up-${i}=1`)
    await service.app.inject({ method: i % 2 ? 'PUT' : 'OPTIONS', url: '/persona/999999' })
  }
  const { body } = await metricsOf(service)
  t.notMatch(body, /made-up/)
  const labels = new Set(body.split('\n').flatMap(line => /^agents_http_\w+_count\{(.*)\} [1-9]/.exec(line)?.[1] ?? []))
  t.strictSame([...labels].sort(), [
    'operation="none",status="404"',
    'operation="none",status="405"',
    'operation="update_persona",status="422"',
  ])
  t.notMatch((await other.metrics.text()).body, /status="405"/)
  t.equal((await metricsOf(other)).statusCode, 403, 'shown to nobody where no token is configured')
})

t.test('403 /metrics on the main port without METRICS_TOKEN, from any address', async t => {
  const service = shared
  const ask = async (remoteAddress: string, headers = {}) =>
    (await service.app.inject({ url: '/metrics', remoteAddress, headers })).statusCode
  for (const peer of ['127.0.0.1', '::1', '::ffff:127.0.0.1', '192.0.2.1', '192.0.2.9', '2001:db8::1']) {
    t.equal(await ask(peer), 403, 'a proxy beside us that adds no header looks like this machine')
    t.equal(await ask(peer, { host: 'agents.example.com' }), 403)
    t.equal(await ask(peer, { 'x-forwarded-for': '127.0.0.1' }), 403)
    t.equal(await ask(peer, { authorization: `Bearer ${METRICS_TOKEN}` }), 200)
    t.equal(await ask(peer, { authorization: `Bearer ${METRICS_TOKEN}x` }), 403)
    t.equal(await ask(peer, { authorization: `Bearer ${service.token}` }), 403)
  }
  const refused = await service.app.inject({ url: '/metrics' })
  t.match(refused.json(), { error_code: 'INSUFFICIENT_PERMISSIONS', request_id: refused.headers['x-request-id'] })
})

t.test('each metric of the dashboard exists, with the labels that it asks for', async t => {
  const { body } = await metricsOf(shared)
  const dashboard = JSON.parse(readFileSync(join(OPS, 'grafana-dashboard.json'), 'utf8'))
  const queries: string[] = dashboard.panels.flatMap((panel: { targets?: { expr: string }[] }) =>
    (panel.targets ?? []).map(target => target.expr),
  )
  t.ok(queries.length > 10)
  const known = new Set(body.split('\n').flatMap(line => /^# TYPE (\S+)/.exec(line)?.[1] ?? []))
  const asked = queries.flatMap(query => query.match(/\b(?:agents|nodejs|process)_\w+/g) ?? [])
  for (const name of new Set(asked)) {
    t.ok(known.has(name) || known.has(name.replace(/_(?:bucket|count|sum)$/, '')), name)
  }
  t.ok(
    [...known]
      .filter(name => name.startsWith('agents_'))
      .every(name => asked.some(one => one.startsWith(name)) || name === 'agents_build_info'),
  )
})

const skip = !existsSync('/usr/bin/promtool') && 'no promtool on this machine: apt-get install prometheus'

t.test('each alert is well formed, has a case in which it fires and one in which it does not', { skip }, async t => {
  execFileSync('promtool', ['check', 'rules', join(OPS, 'alerts.yaml')])
  execFileSync('promtool', ['test', 'rules', 'alerts.test.yaml'], { cwd: OPS })
  const alerts = [...readFileSync(join(OPS, 'alerts.yaml'), 'utf8').matchAll(/- alert: (\w+)/g)].map(([, name]) => name)
  const cases = readFileSync(join(OPS, 'alerts.test.yaml'), 'utf8')
  t.ok(alerts.length > 10)
  for (const name of alerts) {
    t.ok(cases.includes(`- name: ${name} fires\n`), `${name} fires`)
    t.ok(cases.includes(`- name: ${name} stays quiet\n`), `${name} stays quiet`)
  }
})

const world = await worldDatabase(t)
const { url } = world

/** The real process with METRICS_PORT=0, and the port that its log tells. */
async function started(env: Record<string, string> = {}): Promise<{ service: ServiceProcess; port: number }> {
  const service = await ServiceProcess.start({
    DATABASE_URL: url,
    SECRET_KEYS: TEST_SECRET_KEYS,
    METRICS_PORT: '0',
    DRAIN_DELAY_MS: '0',
    ...env,
  })
  t.teardown(() => service.stop('SIGKILL'))
  const line = service.log.split('\n').find(text => text.includes('the metrics are listening'))
  return { service, port: JSON.parse(line ?? '{}').port }
}

/** What a probe is answered. */
async function answerOf(port: number, path: string) {
  const response = await fetch(`http://127.0.0.1:${port}${path}`, { headers: { 'x-request-id': 'a-probe' } })
  const { status, headers } = response
  const said = ['content-type', 'retry-after', 'cache-control'].map(name => headers.get(name))
  return { status, said, body: await response.text() }
}

async function statusOf(host: string, port: number, path: string, headers = {}): Promise<number> {
  return (await fetch(`http://${host}:${port}${path}`, { headers })).status
}

const TOKEN = { authorization: `Bearer ${METRICS_TOKEN}` }
const PROXY = { 'x-forwarded-for': '203.0.113.7' }
const outside = Object.values(networkInterfaces())
  .flat()
  .find(found => found?.family === 'IPv4' && !found.internal)?.address

t.test(
  '200 /metrics on METRICS_PORT of the process, the probes and nothing else there; 404 on PORT; 503 /readyz on both while it drains',
  async t => {
    const { service, port } = await started({ DRAIN_DELAY_MS: '2000' })
    let text = ''
    await eventually(async () => {
      const shown = await fetch(`http://127.0.0.1:${port}/metrics`)
      t.equal(shown.status, 200)
      text = await shown.text()
      return /^agents_ready 1$/m.test(text)
    })
    t.match(text, /^process_cpu_seconds_total /m, 'what Node says of the process is there')
    t.match(text, /^agents_database_pool_wait_seconds_count [1-9]/m)
    t.equal(await statusOf('127.0.0.1', port, '/metrics', PROXY), 200, 'the port needs no token')
    for (const path of ['/healthz', '/readyz']) {
      t.strictSame(await answerOf(port, path), await answerOf(service.port, path))
      t.equal(await statusOf('127.0.0.1', port, `${path}?probe=1`), 200)
    }
    t.equal(await statusOf('127.0.0.1', port, '/docs'), 404)
    t.equal(await statusOf('127.0.0.1', service.port, '/metrics'), 404)
    t.equal(await statusOf('127.0.0.1', service.port, '/readyz'), 200)
    const connection = new RawConnection(port).write('GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(1_000))
    await connection.closed
    t.equal(connection.text.split('HTTP/1.1 200 OK').length, 2, 'a connection has one answer, whatever it sends')
    const stopped = service.stop('SIGTERM')
    await eventually(() => service.log.includes('"shutting down"'))
    const [own, main] = await Promise.all([port, service.port].map(each => answerOf(each, '/readyz')))
    t.match(own, { status: 503, body: /"reason":"draining"/ })
    t.strictSame(own, main)
    t.equal(await statusOf('127.0.0.1', port, '/healthz'), 200)
    t.equal(await stopped, 0)
  },
)

t.test('403 on METRICS_PORT without METRICS_TOKEN where one is set; 404 on PORT with it', async t => {
  const { service, port } = await started({ METRICS_TOKEN, HOST: '0.0.0.0' })
  const hosts = ['127.0.0.1', ...(outside ? [outside] : [])]
  for (const host of hosts) {
    t.equal(await statusOf(host, port, '/metrics'), 403, host)
    t.equal(await statusOf(host, port, '/metrics', { authorization: `Bearer ${METRICS_TOKEN}x` }), 403)
    t.equal(await statusOf(host, port, '/metrics', TOKEN), 200)
    t.equal(await statusOf(host, port, '/readyz'), 200, 'probes need none')
    t.equal(await statusOf(host, service.port, '/metrics', TOKEN), 404)
  }
})
