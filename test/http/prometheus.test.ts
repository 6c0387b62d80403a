import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'
import { Metrics } from '../../src/http/metrics.js'
import { freePort } from '../faults/cluster.js'
import { METRICS_TOKEN, running } from './running.js'

const OPS = fileURLToPath(new URL('../../../ops/', import.meta.url))
const skip =
  existsSync('/usr/bin/promtool') && existsSync('/usr/bin/prometheus')
    ? false
    : 'no prometheus on this machine: apt-get install prometheus'

t.test(
  'each alert is well formed, has a case in which it fires and one in which it does not, and they hold',
  { skip },
  async t => {
    execFileSync('promtool', ['check', 'rules', join(OPS, 'alerts.yaml')])
    execFileSync('promtool', ['test', 'rules', 'alerts.test.yaml'], { cwd: OPS })
    const alerts = [...readFileSync(join(OPS, 'alerts.yaml'), 'utf8').matchAll(/- alert: (\w+)/g)].map(
      ([, name]) => name,
    )
    const cases = readFileSync(join(OPS, 'alerts.test.yaml'), 'utf8')
    t.ok(alerts.length > 10)
    for (const name of alerts) {
      t.ok(cases.includes(`- name: ${name} fires\n`), `${name} fires`)
      t.ok(cases.includes(`- name: ${name} stays quiet\n`), `${name} stays quiet`)
    }
  },
)

t.test(
  'in a real Prometheus every panel of the dashboard has data, and the first tried tokens make the alert fire',
  { skip },
  async t => {
    const metrics = new Metrics()
    metrics.collectProcess()
    const settings = { RATE_LIMIT_PER_MINUTE: '7', FAILED_AUTH_LIMIT_PER_MINUTE: '3' }
    const service = await running(t, settings, { listen: true, metrics })
    const ask = await prometheus(t, service.port)
    const send = (headers: Record<string, string>, signal?: AbortSignal) =>
      fetch(`http://127.0.0.1:${service.port}/persona/999999?dry_run=true`, {
        method: 'PATCH',
        headers: { 'content-type': 'application/json', ...headers },
        body: '{}',
        ...(signal !== undefined && { signal }),
      })

    // The counters are seen at 0 first, as they are in a service that runs for a while.
    await until(async () => (await ask('agents_rate_limited_total == 0')).length > 1)
    for (let i = 0; i < 6; i++) {
      await send({ authorization: `Bearer ${service.token}` })
      await send({ authorization: 'Bearer pat_0000000000000000000000000000' })
    }
    metrics.brokenRequest('BAD_REQUEST')
    await service.database.close()
    t.equal((await send({ authorization: `Bearer ${service.token}` })).status, 503)
    t.equal((await send({ authorization: `Bearer ${service.token}` })).status, 429)

    const firing = 'ALERTS{alertname="AgentsTokensTried", alertstate="firing"}'
    await until(async () => (await ask(firing)).length === 1)
    t.pass('the alert fires')

    const dashboard = JSON.parse(await readFile(join(OPS, 'grafana-dashboard.json'), 'utf8'))
    const panels: { title: string; targets?: { expr: string }[] }[] = dashboard.panels
    for (const { title, targets = [] } of panels) {
      for (const { expr } of targets) {
        const query = expr.replaceAll('$job', '.+').replaceAll('$__rate_interval', '1m')
        await until(async () => (await ask(query)).length > 0, `${title}: ${query}`)
      }
    }
  },
)

/** A Prometheus that reads the metrics of the service at that port twice a second; answers how to ask it. */
async function prometheus(t: Test, servicePort: number): Promise<(query: string) => Promise<unknown[]>> {
  const folder = await mkdtemp(join(tmpdir(), 'prometheus-'))
  const config = join(folder, 'prometheus.yml')
  await writeFile(
    config,
    JSON.stringify({
      global: { scrape_interval: '500ms', evaluation_interval: '500ms' },
      rule_files: [join(OPS, 'alerts.yaml')],
      scrape_configs: [
        {
          job_name: 'agents',
          authorization: { credentials: METRICS_TOKEN },
          static_configs: [{ targets: [`127.0.0.1:${servicePort}`] }],
        },
      ],
    }),
  )
  const port = await freePort()
  const options = [
    `--config.file=${config}`,
    `--storage.tsdb.path=${folder}/data`,
    `--web.listen-address=127.0.0.1:${port}`,
  ]
  const child = spawn('prometheus', options, { stdio: 'ignore' })
  t.teardown(async () => {
    const ended = once(child, 'exit')
    child.kill('SIGKILL')
    await ended
    await rm(folder, { recursive: true, force: true, maxRetries: 5 })
  })
  const ask = async (query: string): Promise<unknown[]> => {
    const response = await fetch(`http://127.0.0.1:${port}/api/v1/query?query=${encodeURIComponent(query)}`)
    const { data } = (await response.json()) as { data?: { result: unknown[] } } // the API's own shape
    return data?.result ?? []
  }
  await until(async () => (await ask('up').catch(() => [])).length === 1, 'prometheus reads the service')
  return ask
}

/** Waits until it holds; throws after a minute. */
async function until(holds: () => Promise<boolean>, what = 'what was waited for'): Promise<void> {
  for (const start = performance.now(); performance.now() - start < 60_000; await sleep(200)) {
    if (await holds()) return
  }
  throw new Error(`never came: ${what}`)
}
