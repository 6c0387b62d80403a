import { networkInterfaces } from 'node:os'
import t from 'tap'
import { ServiceProcess } from '../faults/service.js'
import { TEST_SECRET_KEYS, worldDatabase } from '../world.js'
import { eventually, RawConnection } from './running.js'

const SECRET = 'a-metrics-token-of-some-length'
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

const TOKEN = { authorization: `Bearer ${SECRET}` }
const PROXY = { 'x-forwarded-for': '203.0.113.7' }
const outside = Object.values(networkInterfaces())
  .flat()
  .find(found => found?.family === 'IPv4' && !found.internal)?.address

t.test(
  '200 /metrics on METRICS_PORT of the process, the probes and nothing else there; 404 on PORT; 503 /readyz on both while it drains',
  async t => {
    const { service, port } = await started({ DRAIN_DELAY_MS: '2000' })
    const shown = await fetch(`http://127.0.0.1:${port}/metrics`)
    t.equal(shown.status, 200)
    const text = await shown.text()
    t.match(text, /^agents_ready 1$/m)
    t.match(text, /^process_cpu_seconds_total /m, 'what Node says of the process is there')
    t.match(text, /^agents_database_pool_wait_seconds_count [1-9]/m)
    t.equal(await statusOf('127.0.0.1', port, '/metrics', PROXY), 200, 'whoever reaches the port may read')
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
  const { service, port } = await started({ METRICS_TOKEN: SECRET, HOST: '0.0.0.0' })
  const hosts = ['127.0.0.1', ...(outside ? [outside] : [])]
  for (const host of hosts) {
    t.equal(await statusOf(host, port, '/metrics'), 403, host)
    t.equal(await statusOf(host, port, '/metrics', { authorization: `Bearer ${SECRET}x` }), 403)
    t.equal(await statusOf(host, port, '/metrics', TOKEN), 200)
    t.equal(await statusOf(host, port, '/readyz'), 200, 'probes need none')
    t.equal(await statusOf(host, service.port, '/metrics', TOKEN), 404)
  }
})
