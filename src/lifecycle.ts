import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger } from 'pino'
import { isForeign, resetFeed } from './changes/feed.js'
import type { Config } from './config.js'
import { isAboutConnecting, rootOf, ServerUnfit } from './db/connection/database-error.js'
import type { Database } from './db/database.js'
import { migrate, schemaAdvice, schemaState } from './db/migrate.js'
import { connectAdvice, isRefusedByServer } from './db/open.js'
import type { Readiness, UnavailableReason } from './errors.js'
import { KeyRingMissing } from './secrets/configured-ring.js'
import type { KeyRing } from './secrets/key-ring.js'
import { unusableKeys } from './secrets/stored-keys.js'
import { unavailableFor } from './updates/unavailable.js'

const RETRY_MS = 500

/** The database counts as not ready if it does not answer within this time. */
const PROBE_TIMEOUT_MS = 2_000

const STARTING = unavailable('database_unreachable', 'The service is starting and has not reached its database yet.')
const DRAINING = unavailable('draining', 'This process is shutting down.')

export interface StartupOptions {
  config: Config
  version: string
  database: Database
  ring: KeyRing
  migrates: boolean
  log: Logger
}

/** Determines whether this process can serve requests. Waits for the database, checks or updates the schema, and answers probes. */
export class Lifecycle {
  /** True while the process shuts down. */
  isDraining = false
  readonly ring: KeyRing
  readonly #options: StartupOptions
  #state: Readiness = STARTING
  #logged: Readiness = STARTING
  #hasStarted = false
  #probing: Promise<Readiness> | undefined

  constructor(options: StartupOptions) {
    this.#options = options
    this.ring = options.ring
  }

  /**
   * Retries until the database is reachable and the schema is current. Returns false if the shutdown begins first. Throws `KeyRingMissing` or
   * `ServerUnfit`, because waiting does not resolve them.
   */
  async start(): Promise<boolean> {
    while (!this.isDraining) {
      this.#state = await this.#check(() => this.#begin())
      if (this.#hasStarted) break
      await sleep(RETRY_MS)
    }
    return !this.isDraining
  }

  current(): Readiness {
    return this.isDraining ? DRAINING : this.#state
  }

  /** Checks whether requests can be served now. Concurrent calls share one check. Never throws. */
  async readiness(): Promise<Readiness> {
    if (this.isDraining || !this.#hasStarted) return this.current()
    this.#probing ??= this.#check(() => this.#probe()).finally(() => {
      this.#probing = undefined
    })
    const found = await Promise.race([this.#probing, sleep(PROBE_TIMEOUT_MS, undefined, { ref: false })])
    return found ?? this.#note(this.#whyNot(undefined))
  }

  /** Starts the shutdown. Probes fail from now on, and running requests continue. */
  drain(): void {
    this.isDraining = true
  }

  async #check(look: () => Promise<Readiness>): Promise<Readiness> {
    try {
      return this.#note(await look())
    } catch (error) {
      if (this.isDraining) return DRAINING // the shutdown has closed the pool
      if (!this.#hasStarted && (error instanceof KeyRingMissing || error instanceof ServerUnfit)) throw error
      return this.#note(this.#whyNot(error), error)
    }
  }

  async #begin(): Promise<Readiness> {
    const { database, ring, log, migrates, version } = this.#options
    if (migrates && (await schemaState(database.db, version)).kind === 'behind') {
      this.#state = unavailable('migrating', 'The database schema is being updated, by this or another process.')
      const names = await migrate(database)
      if (names.length > 0) log.info({ migrations: names }, 'the schema was updated')
    }
    const schema = await this.#schema()
    if (schema.status === 'unavailable') return schema
    if (await isForeign(database.db)) await resetFeed(database.db)
    const keys = await unusableKeys(database.db, ring)
    if (keys.length > 0) log.warn({ keys }, 'keys for stored secrets are missing or wrong: run agentctl keys status')
    this.#hasStarted = true
    return schema
  }

  /** Checks the schema again, because another process can migrate the schema to a version that this program cannot use. */
  async #probe(): Promise<Readiness> {
    this.#state = await this.#schema()
    return this.#state
  }

  async #schema(): Promise<Readiness> {
    const { database, version } = this.#options
    const found = await schemaState(database.probe, version)
    if (found.kind === 'current') return { status: 'ready' }
    if (found.kind === 'behind') {
      const { lack, command } = schemaAdvice(found)
      return unavailable('schema_behind', `${lack.replace('the', 'The')}. The operator must run: ${command}`)
    }
    const advice = `The database schema needs version ${found.oldestProgram} or later of this service. The operator must update the service.`
    return unavailable('schema_ahead', advice)
  }

  /** Returns why the database cannot be used, with a remedy. `error` is undefined if the database did not answer. */
  #whyNot(error: unknown): Readiness {
    if (error instanceof ServerUnfit)
      return unavailable('database_unreachable', `${error.message.replace('the', 'The')}.`)
    const known = unavailableFor(error)
    // `migrating` and `database_full` have their own messages, because advice about the connection would not help.
    if (known?.reason === 'migrating' || known?.reason === 'database_full')
      return unavailable(known.reason, known.message)
    const fault = isRefusedByServer(error) ? 'refuses this service' : 'does not answer'
    const advice = connectAdvice(this.#options.config.database.url, error)
    return unavailable('database_unreachable', `The database ${fault}: ${advice}.`)
  }

  #note(found: Readiness, error?: unknown): Readiness {
    if (this.isDraining || JSON.stringify(found) === JSON.stringify(this.#logged)) return found
    this.#logged = found
    const { status: state, ...why } = found
    const cause =
      error === undefined ? {} : isAboutConnecting(error) ? { cause: rootOf(error).message } : { err: error }
    if (state === 'ready') this.#options.log.info({ state }, 'ready')
    else this.#options.log.warn({ state, ...why, ...cause }, 'not ready')
    return found
  }
}

function unavailable(reason: UnavailableReason, detail: string): Readiness {
  return { status: 'unavailable', reason, detail }
}
