#!/usr/bin/env node
import { existsSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import closeWithGrace from 'close-with-grace'
import type { FastifyInstance } from 'fastify'
import type { Logger } from 'pino'
import { firstAdministrator } from './admin/people.js'
import { EXIT } from './admin/refusal.js'
import { harmless } from './admin/terminal.js'
import { buildApp } from './app.js'
import { type Config, InvalidConfiguration, readConfig, settingWarnings } from './config.js'
import { ServerUnfit } from './db/connection/database-error.js'
import { EmbeddedUnavailable } from './db/embedded/embedded.js'
import { type OpenedDatabase, openConfiguredDatabase } from './db/open.js'
import { LAST_ANSWERS_MS } from './http/connections.js'
import { makeLogger } from './http/logging.js'
import { listenForMetrics, Metrics } from './http/metrics.js'
import { Lifecycle } from './lifecycle.js'
import { configuredKeyRing, KeyRingMissing } from './secrets/configured-ring.js'
import { pruneContents, pruneHistory } from './updates/prune.js'
import { VERSION } from './version.js'

/** Delays the first pruning, so that the first requests are not slowed down. */
const FIRST_PRUNE_MS = 2_000
const PRUNE_INTERVAL_MS = 3_600_000
const PRUNE_GROWING_INTERVAL_MS = 60_000
/** Between full runs, pruning covers only agents and tools that were changed within this time. */
const GROWING_MINUTES = 2

/** Starts the process. The port opens first. Until the database is reachable, every operation answers 503 with the reason. */
async function main(): Promise<void> {
  const config = readConfig(process.env)
  const ring = configuredKeyRing(config)
  // A closed terminal or pipe must not end the service.
  for (const stream of [process.stdout, process.stderr]) stream.on('error', () => undefined)
  const log = makeLogger(config.server.logLevel)
  for (const warning of settingWarnings(process.env, config)) log.warn(warning)
  const metrics = new Metrics()
  const opened = await openConfiguredDatabase(
    config,
    (line, level) => log[level ?? 'info'](line),
    error => log.warn({ err: error }, 'an idle connection to the database was lost'),
  )
  const { database, isEmbedded: migrates } = opened
  const service = new Lifecycle({ config, version: VERSION, database, ring, migrates, log })
  const app = await buildApp({ config, version: VERSION, database, service, logger: log, metrics })
  closeOnSignal(app, service, opened, config, log)
  const { host, port, metricsPort } = config.server
  if (metricsPort !== undefined) {
    const shown = (await listenForMetrics(metrics, service, { host, port: metricsPort })).unref() // does not delay a shutdown
    log.info(shown.address() as AddressInfo, 'listening for metrics requests') // a TCP server's address is not a string
  }
  await app.listen({ host, port })
  log.info({ database: opened.description, version: VERSION }, 'listening')
  if (!(await service.start())) return
  pruneRegularly(opened, config, log)
  await welcome(app, service, opened, config).catch(error =>
    log.warn({ err: error }, 'the service runs, but could not load the demo or print the next steps'),
  )
}

function pruneRegularly({ database: { db } }: OpenedDatabase, { history }: Config, log: Logger): void {
  const logged = (work: () => Promise<object>) => async () => {
    try {
      const pruned = await work()
      if (Object.values(pruned).some(count => count > 0)) log.info(pruned, 'old history was removed')
    } catch (error) {
      log.warn({ err: error }, 'old history could not be removed; trying again later')
    }
  }
  const prune = logged(() => pruneHistory(db, history))
  const pruneLately = logged(async () => ({ differences: await pruneContents(db, history, GROWING_MINUTES) }))
  setTimeout(prune, FIRST_PRUNE_MS).unref() // so that processes that run for less than an hour also prune
  setInterval(prune, PRUNE_INTERVAL_MS).unref() // does not delay a shutdown
  setInterval(pruneLately, PRUNE_GROWING_INTERVAL_MS).unref()
}

/** Shuts the service down at the first signal. Ignores further signals, because npm forwards signals that the process also receives directly. */
function closeOnSignal(app: FastifyInstance, service: Lifecycle, opened: OpenedDatabase, config: Config, log: Logger) {
  const { shutdownTimeoutMs, drainDelayMs } = config.server
  let signal: NodeJS.Signals | undefined
  const options = {
    delay: shutdownTimeoutMs + drainDelayMs + 2 * LAST_ANSWERS_MS, // includes time to send the last answers and to close the database
    logger: { error: (message: unknown) => log.error(String(message)) },
    skip: [...STOP_SIGNALS, ...FAULT_SIGNALS],
  }
  const { close } = closeWithGrace(options, async ({ err }) => {
    if (err) log.fatal({ err }, 'shutting down after an uncaught error')
    else log.info({ signal }, 'shutting down')
    service.drain()
    // Gives the load balancer time to notice the failing probe. Requests are still answered.
    if (signal === 'SIGTERM' || signal === 'SIGHUP') await sleep(drainDelayMs)
    await app.close()
    await opened.close()
    log.info('stopped')
  })
  for (const one of STOP_SIGNALS)
    process.on(one, () => {
      if (signal !== undefined) return
      signal = one
      close()
    })
}

const STOP_SIGNALS = ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT', 'SIGUSR2'] satisfies NodeJS.Signals[]

/** Signals for faults of the process itself. A listener would make the faulty instruction repeat forever. */
const FAULT_SIGNALS = ['SIGILL', 'SIGTRAP', 'SIGABRT', 'SIGBUS', 'SIGFPE', 'SIGSEGV'] satisfies NodeJS.Signals[]

/** Prints the service's address and the next steps. Uses standard error, because the log on standard output consists of JSON lines. */
async function welcome(app: FastifyInstance, service: Lifecycle, opened: OpenedDatabase, config: Config) {
  const { port } = app.server.address() as AddressInfo // a TCP server's address is not a string
  const { host } = config.server
  const reached = { '0.0.0.0': '127.0.0.1', '::': '::1' }[host] ?? host // clients cannot connect to a wildcard address
  const base = `http://${reached.includes(':') ? `[${reached}]` : reached}:${port}`
  const wantsDemo = opened.isEmbedded && config.database.demo
  // Imported on demand, because the module loads large parsers.
  const demo = wantsDemo ? await (await import('./admin/demo.js')).loadDemo(opened.database, service.ring) : null
  const isInPath = (process.env.PATH ?? '').split(':').some(folder => existsSync(join(folder, 'agentctl')))
  const agentctl = isInPath ? 'agentctl' : 'npx agentctl'
  const isNew = (await firstAdministrator(opened.database.db)) === undefined
  process.stderr.write(`
  Listening on ${base}   page: ${base}/console   documentation: ${base}/docs   database: ${opened.description}
${demo === null ? '' : demoText(demo, base)}
  ${isNew ? `To create an administrator: ${agentctl} init EMAIL` : `To create a token: ${agentctl} token create --for EMAIL`}
`)
}

function demoText(token: string, base: string): string {
  return `
  The demo organisation is loaded. This is its administrator's token, which is shown only once:

    ${token}

  Try it:

    curl '${base}/persona/1' -H 'Authorization: Bearer ${token}'
`
}

/** Returns the message and exit status for a failed start. Only the message of an unexpected error includes a stack trace. */
function explain(error: unknown): { message: string; code: number } {
  if (!(error instanceof Error)) return { message: String(error), code: EXIT.error }
  const settings = [InvalidConfiguration, KeyRingMissing, ServerUnfit, EmbeddedUnavailable]
  if (settings.some(of => error instanceof of)) return { message: error.message, code: EXIT.configuration }
  if ('syscall' in error && error.syscall === 'listen')
    return { message: `${error.message}: set HOST, PORT or METRICS_PORT; 0 picks a free port.`, code: EXIT.error }
  return { message: error.stack ?? error.message, code: EXIT.error }
}

const USAGE = `Usage: agent-tool-management

Starts the service. The command has no options. Settings are environment variables; ops/configuration.md lists them.
`

const args = process.argv.slice(2)
const unknown = args.filter(each => each !== '--help' && each !== '-h')
if (unknown.length > 0) {
  process.stderr.write(`${USAGE}\nagent-tool-management: unknown argument: ${harmless(unknown.join(' '))}\n`)
  process.exitCode = EXIT.usage
} else if (args.length > 0) {
  process.stdout.write(USAGE)
} else {
  main().catch(error => {
    const { message, code } = explain(error)
    process.stderr.write(`${message}\n`)
    process.exit(code)
  })
}
