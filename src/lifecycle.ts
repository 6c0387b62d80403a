import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger } from 'pino'
import type { Config } from './config.js'
import {
  classifyDatabaseError,
  type DatabaseErrorKind,
  isAboutConnecting,
  rootCause,
  ServerUnfit,
} from './db/connection/database-error.js'
import type { Database } from './db/database.js'
import { migrate, schemaAdvice, schemaState, schemaSteps } from './db/migrate.js'
import { connectAdvice, isRefusedByServer } from './db/open.js'
import { type Readiness, Unavailable, type UnavailableReason } from './errors.js'
import { KeyRingMissing } from './secrets/configured-ring.js'
import type { KeyRing } from './secrets/key-ring.js'
import { unusableKeys } from './secrets/stored-keys.js'

/** The pause between attempts to reach the database, in ms. It doubles from the minimum to the maximum. */
const RETRY_MIN_MS = 100
const RETRY_MAX_MS = 2_000

/** A database that is silent for longer counts as not ready. */
const PROBE_TIMEOUT_MS = 2_000

const STARTING = unavailable('database_unreachable', 'The service is starting and has not reached its database yet.')

export interface StartupOptions {
  config: Config
  version: string
  database: Database
  ring: KeyRing
  /** True if this process migrates the schema before it serves. */
  migrates: boolean
  log: Logger
  /** True if the disk of the embedded server is full. */
  isDiskFull?: () => boolean
}

/** Decides whether this process can serve: waits for the database, checks or migrates the schema, checks the key ring, and answers probes. */
export class Lifecycle {
  readonly #options: StartupOptions
  #state: Readiness = STARTING
  #hasStarted = false
  #draining = false
  #told: Readiness = STARTING
  /** The result of the last schema check, and the number of steps that it was made for. */
  #checked: { steps: number; state: Promise<Readiness> } | undefined
  #probing: Promise<Readiness> | undefined
  #writes = false

  constructor(options: StartupOptions) {
    this.#options = options
  }

  /**
   * Tries until the database is reachable and the schema fits; false once the service drains. Throws `KeyRingMissing` and `ServerUnfit`,
   * which waiting cannot resolve.
   */
  async start(): Promise<boolean> {
    for (let pauseMs = RETRY_MIN_MS; !this.#draining; pauseMs = Math.min(pauseMs * 2, RETRY_MAX_MS)) {
      if (await this.#tryToServe()) return !this.#draining
      await sleep(pauseMs)
    }
    return false
  }

  /** The last known state, without a query. */
  current(): Readiness {
    return this.#draining ? DRAINING : this.#state
  }

  get ring(): KeyRing {
    return this.#options.ring
  }

  /**
   * Checks whether requests can be answered now, without writing. Never throws. Concurrent probes share one check, so that a hung database
   * occupies one connection.
   */
  async readiness(): Promise<Readiness> {
    if (this.#draining || !this.#hasStarted) return this.current()
    this.#probing ??= this.#answerInTime(this.#probe())
    return await this.#probing
  }

  async #answerInTime(probe: Promise<Readiness>): Promise<Readiness> {
    const found = await Promise.race([probe, sleep(PROBE_TIMEOUT_MS, undefined, { ref: false })])
    return found ?? this.#note(this.#unreachable())
  }

  /** Throws `Unavailable` if the schema does not fit this program. Checks again only if the number of steps has changed. */
  async requireSchema(steps: number): Promise<void> {
    if (this.#checked?.steps !== steps) {
      this.#checked = { steps, state: this.#changedSchema(steps) }
      this.#checked.state.catch(() => {
        this.#checked = undefined
      })
    }
    const found = await this.#checked.state
    if (found.status === 'unavailable') throw new Unavailable(found.reason, found.detail, 'not_applied')
  }

  /** True if the database accepted changes at the last probe and stored the last one. Otherwise updates answer 503. */
  acceptsWrites(): boolean {
    return this.#writes && this.#options.database.storesChanges
  }

  isDraining(): boolean {
    return this.#draining
  }

  /** Starts the shutdown: probes fail from now on, and running requests continue. */
  drain(): void {
    this.#draining = true
  }

  #unreachable(error?: unknown): Readiness {
    if (this.#options.isDiskFull?.()) return DISK_FULL
    const fault = isRefusedByServer(error) ? 'answers and refuses this service' : 'does not answer'
    return unavailable(
      'database_unreachable',
      `The database ${fault}: ${connectAdvice(this.#options.config.database.url, error)}.`,
    )
  }

  /** A server without disk space starts but refuses connections; a read-only one refuses migrations. */
  #whyUnreachable(error: unknown): Readiness {
    if (error instanceof ServerUnfit)
      return unavailable('database_unreachable', `The database cannot be used: ${error.message}.`)
    if (error instanceof Unavailable) return unavailable(error.reason, error.message)
    return NO_WRITES[classifyDatabaseError(error).kind] ?? this.#unreachable(error)
  }

  async #tryToServe(): Promise<boolean> {
    const { database, ring, log } = this.#options
    try {
      if (this.#options.migrates) await this.#migrate()
      const steps = await schemaSteps(database.db)
      const schema = await this.#schema()
      this.#checked = { steps, state: Promise.resolve(schema) }
      if (schema.status === 'ready') {
        const keys = await unusableKeys(database.db, ring)
        if (keys.length > 0)
          log.warn({ keys }, 'SECRET_KEYS lacks the right keys of stored secrets: agentctl keys status')
        this.#writes = await database.acceptsWrites()
        this.#hasStarted = true
      }
      this.#state = this.#note(schema)
      return schema.status === 'ready'
    } catch (error) {
      if (this.#draining) return false // the pool was closed by the shutdown
      if (error instanceof KeyRingMissing || error instanceof ServerUnfit) throw error
      log.debug({ err: error }, 'the database cannot be used yet')
      this.#state = this.#note(this.#whyUnreachable(error), error)
      return false
    }
  }

  async #migrate(): Promise<void> {
    const { database, log, version } = this.#options
    const found = await schemaState(database.db, version)
    if (found.kind !== 'behind') return
    this.#state = MIGRATING
    const names = await migrate(database, { onWait: sentence => log.warn(sentence) })
    if (names.length > 0) log.info({ migrations: names }, 'the schema was brought up to date')
  }

  async #schema(): Promise<Readiness> {
    const found = await schemaState(this.#options.database.probe, this.#options.version)
    if (found.kind === 'current') return { status: 'ready' }
    if (found.kind === 'ahead')
      return unavailable(
        'schema_ahead',
        `The schema needs at least version ${found.oldestProgram} of this program: update it.`,
      )
    const { lack, command } = schemaAdvice(found)
    return unavailable('schema_behind', `${lack.replace('the', 'The')}. Run: ${command}`)
  }

  async #changedSchema(steps: number): Promise<Readiness> {
    const found = await this.#schema()
    this.#options.log.warn({ steps, ...found }, 'the schema has changed while this process runs')
    return found
  }

  async #probe(): Promise<Readiness> {
    try {
      const schema = await this.#schema()
      if (schema.status === 'unavailable') return this.#note(schema)
      this.#writes = await this.#options.database.acceptsWrites()
      return this.#note({ status: 'ready' })
    } catch (error) {
      this.#writes = false
      return this.#note(this.#whyUnreachable(error), error)
    } finally {
      this.#probing = undefined
    }
  }

  /** Logs a readiness that differs from the last logged one. */
  #note(found: Readiness, error?: unknown): Readiness {
    const before = this.#told
    this.#told = found
    if (this.#draining || !isOther(before, found)) return found
    const { status: state, ...why } = found
    const cause = error === undefined ? {} : isAboutConnecting(error) ? { cause: rootCause(error) } : { err: error }
    if (state === 'ready') this.#options.log.info({ state }, 'ready')
    else this.#options.log.warn({ state, ...why, ...cause }, 'not ready')
    return found
  }
}

function isOther(before: Readiness, now: Readiness): boolean {
  if (before.status === 'ready' || now.status === 'ready') return before.status !== now.status
  return before.reason !== now.reason || before.detail !== now.detail
}

function unavailable(reason: UnavailableReason, detail: string): Readiness {
  return { status: 'unavailable', reason, detail }
}

const DRAINING = unavailable('draining', 'This process is shutting down.')

const MIGRATING = unavailable('migrating', 'The schema is being brought up to date, by this process or another one.')

const DISK_FULL = unavailable(
  'database_full',
  'The database has no space left: its disk is full. Make space there; nothing else is needed.',
)

const NO_WRITES: Partial<Record<DatabaseErrorKind, Readiness>> = {
  read_only: unavailable(
    'database_unreachable',
    'The database accepts no changes: it is a standby, was replaced as the primary, or is set to read only.',
  ),
  disk_full: DISK_FULL,
}
