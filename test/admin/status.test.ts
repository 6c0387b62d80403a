import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { metricsUrl } from '../../src/admin/failures.js'
import { readConfig } from '../../src/config.js'
import { agentctl } from '../cli/agentctl.js'
import { ServiceProcess } from '../faults/service.js'
import { METRICS_TOKEN, running } from '../http/running.js'
import { TEST_SECRET_KEYS, worldDatabase } from '../world.js'

t.test('status tells what failed in the running service: the reason, how often, when last', async t => {
  const { url } = await worldDatabase(t)
  const service = await running(t, {}, { listen: true })
  const env = { PORT: String(service.port), METRICS_TOKEN }
  t.match((await agentctl({ url, args: ['status'], env })).stdout, 'recent errors\nnone since the service started')

  const before = Date.now()
  await service.database.close()
  for (let i = 0; i < 3; i++) {
    const { status } = await fetch(`http://127.0.0.1:${service.port}/persona/1`, {
      method: 'PATCH',
      headers: { authorization: `Bearer ${service.token}`, 'content-type': 'application/json' },
      body: '{}',
    })
    t.equal(status, 503)
  }
  const told = JSON.parse((await agentctl({ url, args: ['status', '--json'], env })).stdout)
  t.match(told.recent_errors, [{ reason: 'draining', count: 3 }])
  t.ok(Date.parse(told.recent_errors[0].last_at) >= before)
  t.match((await agentctl({ url, args: ['status'], env })).stdout, /^\S+Z {2}draining {2}3 times$/m)
})

t.test('status without a service says that errors are unknown, and the rest', async t => {
  const { url } = await worldDatabase(t)
  const { status, stdout } = await agentctl({ url, args: ['status'], env: { PORT: '1' } })
  t.equal(status, 0)
  t.match(stdout, 'unknown: no service shows its metrics at http://127.0.0.1:1/metrics')
  t.match(stdout, 'recent changes')
})

t.test('status counts everything that it lists as a change: audit rows and access events', async t => {
  const { url } = await worldDatabase(t)
  t.equal((await agentctl({ url, args: ['user', 'create', 'dora@example.com'] })).status, 0)
  const { counts, recent_changes } = JSON.parse((await agentctl({ url, args: ['status', '--json'] })).stdout)
  t.match(recent_changes[0], { resource: /^user:/ })
  const listed = JSON.parse((await agentctl({ url, args: ['audit', 'list', '--limit', '10000', '--json'] })).stdout)
  t.equal(counts.audit_rows + counts.access_events, listed.length)
})

t.test('status finds the running service of its database without PORT, and no other', async t => {
  const { url } = await worldDatabase(t)
  const folder = mkdtempSync(join(tmpdir(), 'services-'))
  t.teardown(() => rmSync(folder, { recursive: true }))
  const env = { XDG_RUNTIME_DIR: folder }
  const service = await ServiceProcess.start({ DATABASE_URL: url, SECRET_KEYS: TEST_SECRET_KEYS, ...env })
  const at = `http://127.0.0.1:${service.port}/metrics`
  const services = async (ofUrl: string) =>
    JSON.parse((await agentctl({ url: ofUrl, args: ['status', '--json'], env })).stdout).services
  t.same(await services(url), [at], 'it tells its own token')
  t.equal((await fetch(at)).status, 403, 'to nobody else')
  t.not((await services((await worldDatabase(t)).url))[0], at)
  await service.stop()
  t.not((await services(url))[0], at)
  t.same(readdirSync(join(folder, readdirSync(folder)[0] ?? '')), [])
})

t.test('the address of the metrics follows the settings of the service', async t => {
  const at = (env: Record<string, string>) => metricsUrl(readConfig(env))
  t.equal(at({}), 'http://127.0.0.1:8080/metrics')
  t.equal(at({ HOST: '0.0.0.0', METRICS_PORT: '9100' }), 'http://127.0.0.1:9100/metrics')
  t.equal(at({ HOST: '::1' }), 'http://[::1]:8080/metrics')
  t.equal(at({ PORT: '0' }), undefined)
})
