import { setTimeout as sleep } from 'node:timers/promises'
import type { Transaction } from 'kysely'
import { describeSettings, InvalidConfiguration, readConfig } from '../../config.js'
import { ServerUnfit } from '../../db/connection/database-error.js'
import { describeServer } from '../../db/connection/database-server.js'
import { classifyDatabaseError } from '../../db/connection/sqlstate.js'
import { MIGRATIONS, migrate, type SchemaState, schemaState } from '../../db/migrate.js'
import { isRefusedByServer } from '../../db/open.js'
import type { Database } from '../../db/tables.js'
import { KeyRingMissing } from '../../secrets/configured-ring.js'
import type { KeyRing } from '../../secrets/key-ring.js'
import { VERSION } from '../../version.js'
import { counted } from '../counts.js'
import { readFailures } from '../failures.js'
import { createUser, firstAdministrator, keepingAdministrator, listUsers } from '../people.js'
import { Refusal } from '../refusal.js'
import { runningServices } from '../services.js'
import { readStatus } from '../status.js'
import { createToken } from '../tokens.js'
import { type Call, type Command, EXIT, JSON_OPTION, NotConfigured, PLAN_OPTIONS } from './command.js'
import { printKeys } from './keys.js'
import { listCommand, selectOf } from './list.js'
import { emailOf } from './people.js'

/** From nothing to a service that can be called, and how it stands. */
export const setupCommands: Command[] = [
  {
    name: 'init',
    summary: 'Makes a database ready: its schema, the first administrator, and a token that is shown once.',
    positionals: ['EMAIL'],
    options: JSON_OPTION,
    details:
      'EMAIL is the administrator to make. Refused where there is one already: agentctl token create makes more tokens.',
    run: initCommand,
  },
  {
    name: 'migrate',
    summary: 'Brings the schema of the database up to date.',
    positionals: [],
    options: PLAN_OPTIONS,
    details:
      'The plan names the migrations and what they lock. Forward only; several processes may start it at once. The embedded database is migrated by whoever opens it.',
    run: migrateCommand,
  },
  {
    name: 'status',
    summary: 'Says how things stand: version, schema, counts, keys, recent errors and changes.',
    positionals: [],
    options: JSON_OPTION,
    details: [
      'Errors are read from the metrics of the services that run on this machine as this user, or of the one that HOST, PORT,',
      'METRICS_PORT and METRICS_TOKEN describe.',
    ].join('\n'),
    run: statusCommand,
  },
  listCommand({
    name: 'config',
    summary: 'Lists every setting of the environment with its default.',
    offline: true,
    columns: [
      { field: 'name', title: 'NAME', whole: true },
      { field: 'default', title: 'DEFAULT' },
      { field: 'description', title: 'MEANING' },
    ],
    rows: async (call, selection) => ({ rows: selectOf(describeSettings(), selection), remark: faultsOf(call) }),
  }),
  {
    name: 'version',
    summary: 'Shows the version.',
    positionals: [],
    options: JSON_OPTION,
    offline: true,
    run: async call => {
      call.answer({ version: VERSION }, VERSION)
    },
  },
]

/** The settings are listed whatever the environment says; what is wrong with it is said beside. */
function faultsOf(call: Call): string | undefined {
  try {
    readConfig({ ...call.env })
  } catch (error) {
    if (!(error instanceof InvalidConfiguration)) throw error
    return error.message
  }
}

async function initCommand(call: Call): Promise<undefined> {
  const email = emailOf(call.argument(0))
  // A missing key ring is said before anything is made.
  await call.ring()
  const { database, description } = await call.rawDatabase()
  const state = await schemaState(database.db, VERSION)
  if (state.kind === 'ahead') throw aheadOf(state.oldestProgram)
  call.progress.at('bringing the schema up to date')
  const migrations = state.kind === 'behind' ? await migrate(database.db) : []
  await call.vault()
  const issued = await keepingAdministrator(database.db, async trx => {
    await refuseSecond(trx, email)
    await createUser(trx, { email, kind: 'person', permissions: ['admin'] }, call.actor)
    return await createToken(trx, { email }, call.actor)
  })
  call.answer({ migrations, email, ...issued }, () => {
    call.remark(`${description}: ${counted(migrations.length, 'migration')}, administrator ${email}`)
    call.remark(`token ${issued.id}, expires ${issued.expires_at ?? 'never'}; it is shown only now:`)
    call.print(issued.token)
    call.remark('Next: npm start, then agentctl agent create NAME, or agentctl apply FILE (ops/organisation.md)')
  })
}

/** Refuses where somebody administers, or where the user is there and does not. */
async function refuseSecond(trx: Transaction<Database>, email: string): Promise<void> {
  const there = await firstAdministrator(trx)
  if (there !== undefined) {
    throw new Refusal(`there is an administrator already, ${there}: agentctl token create --for ${there}`)
  }
  const alike = await listUsers(trx, { filters: [{ field: 'email', text: email }] })
  const user = alike.find(one => one.email.toLowerCase() === email.toLowerCase())
  if (user !== undefined) {
    const state = user.active ? '' : `agentctl user activate ${user.email}, `
    throw new Refusal(
      `there is a user ${user.email} already, who does not administer: ${state}agentctl user grant ${user.email} admin, ` +
        `then agentctl token create --for ${user.email}`,
    )
  }
}

function aheadOf(oldestProgram: string): NotConfigured {
  return new NotConfigured(`the schema needs at least version ${oldestProgram} of this program`)
}

/** How long `agentctl migrate` waits for a database that is just starting. */
const START_WAIT_S = 30
const START_POLL_MS = 500

/** The state of the schema, as soon as the database can be reached. */
async function awaitedState(call: Call, read: () => Promise<SchemaState>): Promise<SchemaState> {
  const deadline = performance.now() + START_WAIT_S * 1_000
  for (let isSaid = false; ; isSaid = true) {
    try {
      return await read()
    } catch (error) {
      const { kind } = classifyDatabaseError(error)
      const mayStart = (kind === 'connection_lost' || kind === 'shutting_down') && !isRefusedByServer(error)
      if (!mayStart || error instanceof ServerUnfit || performance.now() > deadline) throw error
    }
    if (!isSaid) call.remark(`the database cannot be reached yet; waiting up to ${START_WAIT_S} s for it to start`)
    await sleep(START_POLL_MS)
  }
}

async function migrateCommand(call: Call): Promise<number> {
  const { database } = await call.rawDatabase()
  const state = await awaitedState(call, () => schemaState(database.db, VERSION))
  if (state.kind === 'ahead') throw aheadOf(state.oldestProgram)
  const pending = state.kind === 'behind' ? state.pending : []
  if (call.flag('plan')) {
    const steps = pending.map(name => ({ migration: name, locks: MIGRATIONS[name]?.locks ?? [] }))
    call.answer({ pending: steps }, () => {
      if (steps.length === 0) call.print('The schema is up to date.')
      call.printTable(steps.map(step => [step.migration, `locks: ${step.locks.join('; ')}`]))
    })
    return steps.length > 0 ? EXIT.planned : EXIT.ok
  }
  call.progress.at('bringing the schema up to date')
  const ran = await migrate(database.db)
  call.answer({ applied: ran }, () => {
    if (ran.length === 0) call.print('The schema is up to date.')
    for (const name of ran) call.print(`applied ${name}`)
  })
  return EXIT.ok
}

/** The key ring, or why none is configured: everything else can be said without it. One that cannot be used is a fault. */
async function ringOrReason(call: Call): Promise<KeyRing | string> {
  try {
    return await call.ring()
  } catch (error) {
    const { keys, keysFile } = call.config.secrets
    if (error instanceof KeyRingMissing && keys === undefined && keysFile === undefined) return error.message
    throw error
  }
}

async function statusCommand(call: Call): Promise<undefined> {
  const ring = await ringOrReason(call)
  const { description, database } = await call.rawDatabase()
  const services = await Promise.all(
    runningServices(call.config, call.env).map(async ({ url, token }) => ({
      url,
      recent_errors: (await readFailures(url, token)) ?? null,
    })),
  )
  const shown = services.filter(({ recent_errors }) => recent_errors !== null)
  const errors = shown.flatMap(({ recent_errors }) => recent_errors ?? [])
  const status = {
    ...(await readStatus((await call.database()).db, typeof ring === 'string' ? null : ring)),
    server: database.server ? describeServer(database.server) : null,
    services: shown.map(({ url }) => url),
    recent_errors: shown.length === 0 ? null : errors,
  }
  call.answer(status, () => {
    const { size, read_only } = status.database
    call.print(`version   ${status.version}`)
    call.print(`database  ${description}: ${status.server}, ${size}${read_only ? ', read only' : ''}`)
    call.print(`schema    ${status.schema.kind}`)
    call.print('')
    call.printTable(Object.entries(status.counts).map(([what, count]) => [what.replaceAll('_', ' '), count]))
    call.print('')
    if (status.keys === null) call.print(`keys      unknown: ${ring}`)
    else printKeys(call, status.keys)
    call.print('')
    call.print('recent errors')
    if (status.recent_errors === null) {
      const tried = services.map(({ url }) => url).join(', ')
      call.print(`unknown: no service shows its metrics at ${tried || 'a port known here'}`)
    } else if (status.recent_errors.length === 0) call.print('none since the service started')
    else
      call.printTable(
        status.recent_errors.map(({ last_at, reason, count }) => [last_at, reason, counted(count, 'time')]),
      )
    call.print('')
    call.print('recent changes')
    if (status.recent_changes.length === 0) call.print('none')
    call.printTable(
      status.recent_changes.map(({ at, resource, version, actor, fields }) => [
        at,
        resource,
        `${resource.match(/^(agent|tool):/) ? 'version' : 'event'} ${version}`,
        actor,
        fields.join(', '),
      ]),
      [0],
    )
  })
}
