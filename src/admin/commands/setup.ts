import type { Command } from 'commander'
import type { Transaction } from 'kysely'
import { describeServer } from '../../db/connection/database-server.js'
import { MIGRATIONS, migrate, schemaState } from '../../db/migrate.js'
import type { Database } from '../../db/tables.js'
import { KeyRingMissing } from '../../secrets/configured-ring.js'
import type { KeyRing } from '../../secrets/key-ring.js'
import { VERSION } from '../../version.js'
import { createUser, firstAdministrator, keepingAdministrator, listUsers } from '../people.js'
import { counted, Refusal } from '../refusal.js'
import { readStatus } from '../status.js'
import { createToken } from '../tokens.js'
import { type Call, type CommandLine, EXIT, schemaAhead } from './command.js'
import { printKeys } from './keys.js'
import { checkedEmail } from './people.js'

export function addSetupCommands(program: Command, line: CommandLine): void {
  line
    .add(program, 'init <EMAIL>', 'writes', 'alice@example.com', initCommand)
    .description(
      'Makes a database ready: schema, first administrator, token.\n' +
        'The token is shown once.\n' +
        'Refused where there is an administrator already: agentctl token create makes more tokens.',
    )
    .option('--embedded', 'make an embedded database where there is none yet')
  line
    .add(program, 'migrate', 'writes', '--plan', migrateCommand)
    .description('Brings the schema of the database up to date.\nForward only; several processes may run it at once.')
    .option('--plan', 'only name the migrations and what they lock; exit status 2 where there are some')
  line
    .add(program, 'status', 'reads', '--json', statusCommand)
    .description('Says how things stand: schema, counts, keys, recent changes.')
}

async function initCommand(call: Call, _: object, given: string): Promise<undefined> {
  const email = checkedEmail(given)
  // A missing key ring is said before anything is made.
  await call.ring()
  const { database, description } = await call.rawDatabase()
  const state = await schemaState(database.db, VERSION)
  if (state.kind === 'ahead') throw schemaAhead(state)
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
  const user = (await listUsers(trx)).find(one => one.email.toLowerCase() === email.toLowerCase())
  if (user !== undefined) {
    throw new Refusal(
      `there is a user ${user.email} already, who does not administer: agentctl apply a document with the entry ` +
        `{email: ${user.email}, active: true, permissions: [admin]} in users, then agentctl token create --for ${user.email}`,
    )
  }
}

async function migrateCommand(call: Call, { plan }: { plan?: boolean }): Promise<number> {
  const { database } = await call.rawDatabase()
  const state = await schemaState(database.db, VERSION)
  if (state.kind === 'ahead') throw schemaAhead(state)
  const pending = state.kind === 'behind' ? state.pending : []
  if (plan) {
    const steps = pending.map(name => ({ migration: name, locks: MIGRATIONS[name]?.locks ?? [] }))
    call.answer({ pending: steps }, () => {
      if (steps.length === 0) call.print('The schema is up to date.')
      call.printTable(steps.map(step => [step.migration, `locks: ${step.locks.join('; ')}`]))
    })
    return steps.length > 0 ? EXIT.differs : EXIT.ok
  }
  const applied = await migrate(database.db)
  call.answer({ applied }, () => {
    if (applied.length === 0) call.print('The schema is up to date.')
    for (const name of applied) call.print(`applied ${name}`)
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
  const status = {
    ...(await readStatus((await call.database()).db, typeof ring === 'string' ? null : ring)),
    server: database.server ? describeServer(database.server) : null,
  }
  call.answer(status, () => {
    const { size, read_only } = status.database
    call.print(`version   ${status.version}`)
    call.print(`database  ${description}: ${status.server}, ${size}${read_only ? ', read only' : ''}`)
    call.print(`schema    ${status.schema.kind}\n`)
    call.printTable(Object.entries(status.counts).map(([what, count]) => [what.replaceAll('_', ' '), count]))
    call.print('')
    if (status.keys === null) call.print(`keys      unknown: ${ring}`)
    else printKeys(call, status.keys)
    call.print('')
    call.print('recent changes')
    if (status.recent_changes.length === 0) call.print('none')
    call.printTable(
      status.recent_changes.map(({ at, resource, version, actor, fields }) => [
        at,
        resource,
        `${/^(agent|tool):/.test(resource) ? 'version' : 'event'} ${version}`,
        actor,
        fields,
      ]),
    )
  })
}
