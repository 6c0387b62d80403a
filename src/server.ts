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
import { describeServer } from './db/connection/database-server.js'
import { EmbeddedDiskFull, EmbeddedUnavailable } from './db/embedded/embedded.js'
import { type OpenedDatabase, openConfiguredDatabase } from './db/open.js'
import { unavailableFor } from './db/unavailable.js'
import { LAST_ANSWERS_MS } from './http/connections.js'
import { makeLogger } from './http/logging.js'
import { Metrics } from './http/metrics.js'
import { listenForMetrics } from './http/probes.js'
import { Lifecycle } from './lifecycle.js'
import { addedSources } from './persona/snapshot.js'
import { SecretCorrupt } from './secrets/cipher.js'
import { configuredKeyRing, KeyFileDiskFull, KeyRingMissing, keyFileWarnings } from './secrets/configured-ring.js'
import { pruneGrowing, pruneHistory } from './updates/prune.js'
import { VERSION } from './version.js'

/** The first requests of a process run code that is not compiled yet: they have the thread for themselves. */
const FIRST_PRUNE_MS = 2_000
const PRUNE_INTERVAL_MS = 3_600_000
const PRUNE_GROWING_INTERVAL_MS = 60_000

/** The process. The port is open before the database is there: until then every operation answers 503 and says why. */
async function main(): Promise<void> {
  const config = readConfig(process.env)
  const ring = await configuredKeyRing(config)
  // A terminal that was closed, or a reader that left, takes no more lines: that ends no service.
  for (const stream of [process.stdout, process.stderr]) stream.on('error', () => undefined)
  const log = makeLogger(config.server.logLevel)
  for (const warning of [...settingWarnings(process.env, config), ...keyFileWarnings(config)]) log.warn(warning)
  const metrics = new Metrics()
  metrics.collectProcess()
  const opened = await openConfiguredDatabase(
    config,
    {
      onError: error => log.warn({ err: error }, 'an idle connection to the database was lost'),
      onStatement: exchange => metrics.databaseExchange(exchange),
      onPoolWait: durationMs => metrics.poolWait(durationMs),
      onServer: server => log.info({ server: describeServer(server) }, 'connected to the database'),
    },
    (line, level) => log[level ?? 'info'](line),
  )
  const migrates = opened.embedded !== null || config.database.migrateOnStart
  const { database, embedded } = opened
  const isDiskFull = () => embedded?.isDiskFull() ?? false
  const service = new Lifecycle({ config, version: VERSION, database, ring, migrates, log, isDiskFull })
  const app = await buildApp({ config, version: VERSION, database: opened.database, service, logger: log, metrics })
  closeOnSignal(app, service, opened, config, log)
  await showMetrics(metrics, service, config, log)
  const { host } = config.server
  await listening(config, 'PORT', () => app.listen({ host, port: config.server.port }))
  log.info({ database: opened.description, version: VERSION }, 'listening')
  if (!(await service.start())) return
  pruneRegularly(opened, config, log)
  await welcome(app, service, opened, config, log)
}

/** Takes away history beyond its retention, outside of requests. Several instances may do it at once. */
function pruneRegularly({ database: { db } }: OpenedDatabase, { history }: Config, log: Logger): void {
  const logged = (work: () => Promise<object>) => async () => {
    try {
      const pruned = await work()
      if (Object.values(pruned).some(count => count > 0)) log.info(pruned, 'history beyond its retention was removed')
    } catch (error) {
      log.warn({ err: error }, 'history could not be pruned; trying again later')
    }
  }
  const prune = logged(() => pruneHistory(db, history))
  const pruneLately = logged(async () => ({ differences: await pruneGrowing(db, history) }))
  setTimeout(prune, FIRST_PRUNE_MS).unref() // also where the process runs for less than an hour at a time
  setInterval(prune, PRUNE_INTERVAL_MS).unref() // holds up no shutdown
  setInterval(pruneLately, PRUNE_GROWING_INTERVAL_MS).unref()
}

/** Opens the port of the metrics, if they have one of their own, and answers it. It ends with the process and holds up no shutdown. */
async function showMetrics(metrics: Metrics, service: Lifecycle, config: Config, log: Logger): Promise<void> {
  if (config.server.metricsPort === undefined) return
  const open = () => listenForMetrics(metrics, config.server, service)
  const server = await listening(config, 'METRICS_PORT', open)
  server.unref()
  log.info(server.address() as AddressInfo, 'the metrics are listening') // it listens on TCP
}

/** The address that the configuration names cannot be listened on. The message says why and which setting to change. */
class CannotListen extends Error {}

async function listening<T>(config: Config, setting: 'PORT' | 'METRICS_PORT', open: () => Promise<T>): Promise<T> {
  try {
    return await open()
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException // what Node's listen rejects with
    const reason = code === 'EADDRINUSE' ? 'is in use' : `cannot be listened on (${code ?? message})`
    const { host, port, metricsPort } = config.server
    const place = `${host} port ${setting === 'PORT' ? port : metricsPort}`
    throw new CannotListen(`${place} ${reason}: set HOST or ${setting}; 0 picks a free port.`, { cause: error })
  }
}

/** Ends the service in order at the first signal. Only one that comes later than the same stop could send it twice forces the end. */
function closeOnSignal(app: FastifyInstance, service: Lifecycle, opened: OpenedDatabase, config: Config, log: Logger) {
  const { shutdownTimeoutMs, drainDelayMs } = config.server
  let first: { signal: NodeJS.Signals; at: number } | undefined
  const options = {
    delay: shutdownTimeoutMs + drainDelayMs + END_MS,
    logger: { error: (message: unknown) => log.error(String(message)) },
    skip: [...STOP_SIGNALS, ...FAULT_SIGNALS],
  }
  const { close } = closeWithGrace(options, async ({ err }) => {
    if (err) log.fatal({ err }, 'an error nobody caught; shutting down')
    else log.info({ signal: first?.signal }, 'shutting down')
    service.drain()
    // A balancer needs a moment to see the failing probe; until it does, its requests are still answered.
    if (first?.signal === 'SIGTERM' || first?.signal === 'SIGHUP') await sleep(drainDelayMs)
    await app.close()
    await opened.close()
    log.info('stopped')
  })
  for (const signal of STOP_SIGNALS) {
    process.on(signal, () => {
      if (first === undefined) {
        first = { signal, at: performance.now() }
        close()
      } else if (performance.now() - first.at > ECHO_MS) {
        log.error(`second ${signal}, exiting`)
        process.exit(EXIT.error)
      }
    })
  }
}

/** After the time for requests in work, how long the last answers and the connections to the database have to end. */
const END_MS = 2 * LAST_ANSWERS_MS

const STOP_SIGNALS = ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT', 'SIGUSR2'] satisfies NodeJS.Signals[]

/** A fault of the process itself ends it: a listener would let the same instruction fail for ever. */
const FAULT_SIGNALS = ['SIGILL', 'SIGTRAP', 'SIGABRT', 'SIGBUS', 'SIGFPE', 'SIGSEGV'] satisfies NodeJS.Signals[]

/** A signal to a whole process group arrives twice, as npm hands its own on. */
const ECHO_MS = 1_000

const WELCOME_PAUSE_MS = 2_000

/** Says where the service is and how to make the first call, once the database can tell: the service runs meanwhile. */
async function welcome(app: FastifyInstance, service: Lifecycle, opened: OpenedDatabase, config: Config, log: Logger) {
  while (!service.isDraining()) {
    try {
      const sources = await addedSources(opened.database.db)
      if (sources.length > 0) log.warn({ sources }, 'stored sources beyond the interface are answered as they stand')
      process.stderr.write(await welcomeText(app, service, opened, config))
      return
    } catch (error) {
      if (unavailableFor(error) === undefined) throw error
      log.warn({ err: error }, 'the database was lost before it told how to make the first call; asking again')
      await sleep(WELCOME_PAUSE_MS, undefined, { ref: false })
    }
  }
}

/** Text for a person: standard output may be a log of JSON lines. */
async function welcomeText(app: FastifyInstance, service: Lifecycle, opened: OpenedDatabase, config: Config) {
  const { port } = app.server.address() as AddressInfo // it listens on TCP
  const { host } = config.server
  const reached = { '0.0.0.0': '127.0.0.1', '::': '::1' }[host] ?? host // an address to listen on is none to call
  const base = `http://${reached.includes(':') ? `[${reached}]` : reached}:${port}`
  const page = config.server.console ? `   page: ${base}/console` : ''
  const lines = [`\n  Listening on ${base}${page}   documentation: ${base}/docs   database: ${opened.description}`]
  const wantsDemo = opened.embedded !== null && config.database.demo
  // Loaded where it is wanted: it brings all that reads an organisation from a file.
  const demo = wantsDemo ? await (await import('./admin/demo.js')).loadDemo(opened.database, service.vault()) : null
  if (demo !== null) {
    lines.push(
      '',
      "  The demo organisation is loaded. Its administrator's token, shown only now:",
      '',
      `    ${demo}`,
      '',
    )
    lines.push('  Try it:', '', `    curl '${base}/persona/1' -H 'Authorization: Bearer ${demo}'`)
  }
  const isInPath = (process.env.PATH ?? '').split(':').some(folder => existsSync(join(folder, 'agentctl')))
  const agentctl = isInPath ? 'agentctl' : 'npx agentctl'
  const isNew = (await firstAdministrator(opened.database.db)) === undefined
  const next = isNew
    ? `No administrator yet: ${agentctl} init EMAIL`
    : `Another token: ${agentctl} token create --for EMAIL`
  lines.push('', `  ${next}`, '')
  return `${lines.join('\n')}\n`
}

/** What ends the start, for people: only an error of the program has its stack. */
function explain(error: unknown): { message: string; code: number } {
  const isOne = (...classes: (abstract new (...args: never[]) => Error)[]) => classes.some(of => error instanceof of)
  const isFull = isOne(EmbeddedDiskFull, KeyFileDiskFull)
  const isSetting = isOne(InvalidConfiguration, KeyRingMissing, SecretCorrupt, ServerUnfit, EmbeddedUnavailable)
  const code = isFull ? EXIT.unavailable : isSetting ? EXIT.configuration : EXIT.error
  if (!(error instanceof Error)) return { message: String(error), code }
  const isExpected = code !== EXIT.error || error instanceof CannotListen
  return { message: isExpected ? error.message : (error.stack ?? error.message), code }
}

const USAGE = `Usage: agent-tool-management

Starts the service. It has no options: its settings are environment variables, which ops/configuration.md lists.
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
