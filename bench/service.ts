/**
 * The service as the benchmark runs it: built, started and configured as `src/server.ts` does it, without the demo. Its
 * parent process asks it for counts over the channel between them.
 */
import type { AddressInfo } from 'node:net'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { buildApp } from '../src/app.js'
import { readConfig } from '../src/config.js'
import { openConfiguredDatabase } from '../src/db/open.js'
import { makeLogger } from '../src/http/logging.js'
import { Metrics } from '../src/http/metrics.js'
import { Lifecycle } from '../src/lifecycle.js'
import { configuredKeyRing } from '../src/secrets/configured-ring.js'
import { VERSION } from '../src/version.js'

/** What the service answers to `counts`: since its start, but the delay of its event loop since the last question. */
export interface ServiceCounts {
  statements: number
  roundTrips: number
  eventLoopDelayP99Ms: number
  eventLoopDelayMaxMs: number
}

async function main(): Promise<void> {
  const config = readConfig(process.env)
  const log = makeLogger(config.server.logLevel)
  const metrics = new Metrics()
  metrics.collectProcess()
  const opened = await openConfiguredDatabase(
    config,
    {
      onStatement: exchange => metrics.databaseExchange(exchange),
      onPoolWait: durationMs => metrics.poolWait(durationMs),
    },
    line => log.info(line),
  )
  const { database } = opened
  const service = new Lifecycle({
    config,
    version: VERSION,
    database,
    ring: await configuredKeyRing(config),
    migrates: true,
    log,
  })
  const app = await buildApp({ config, version: VERSION, database, service, logger: log, metrics })
  await app.listen({ host: config.server.host, port: config.server.port })
  await service.start()
  const delay = monitorEventLoopDelay({ resolution: 10 })
  delay.enable()
  // The benchmark is gone, by whatever ended it.
  process.on('disconnect', () => process.exit(1))
  process.on('message', message => {
    if (message === 'end')
      return void app
        .close()
        .then(() => opened.close())
        .then(() => process.exit(0))
    const counts: ServiceCounts = {
      ...database.counters,
      eventLoopDelayP99Ms: delay.percentile(99) / 1e6,
      eventLoopDelayMaxMs: delay.max / 1e6,
    }
    delay.reset()
    process.send?.(counts)
  })
  process.send?.({ port: (app.server.address() as AddressInfo).port }) // it listens on TCP
}

await main()
