import type { Command } from 'commander'
import { type Kysely, sql } from 'kysely'
import { describeServer } from '../../db/connection/read-server.js'
import { MIGRATIONS, migrate, type SchemaState, schemaAdvice } from '../../db/migrate.js'
import type { Tables } from '../../db/tables.js'
import { VERSION } from '../../version.js'
import { createUser, firstAdministrator, keepingAdministrator } from '../people.js'
import { counted, EXIT, Refusal } from '../refusal.js'
import { createToken } from '../tokens.js'
import type { Call, CommandLine } from './command.js'
import { checkedEmail } from './people.js'

export function addSetupCommands(program: Command, line: CommandLine): void {
  line
    .add(program, 'init <EMAIL>', 'alice@example.com', initCommand)
    .description(
      'Makes a database ready: schema, first administrator, token.\n' +
        'The token is shown once.\n' +
        'Refused where there is an administrator already: agentctl token create makes more tokens.',
    )
  line
    .add(program, 'migrate', '--plan', migrateCommand)
    .description('Brings the schema of the database up to date.\nForward only; several processes may run it at once.')
    .option('--plan', 'only name the migrations and what they lock; exit status 2 where there are some')
  line
    .add(program, 'status', '--json', statusCommand)
    .description('Shows the version, the state of the schema and counts.')
}

async function initCommand(call: Call, _: object, given: string): Promise<undefined> {
  const email = checkedEmail(given)
  // Report a missing key ring before anything is created.
  await call.ring()
  const { database, description, schema } = await call.rawDatabase()
  const migrations = schema.kind === 'behind' ? await migrate(database, waiting(call)) : []
  const issued = await keepingAdministrator(database.db, async trx => {
    const there = await firstAdministrator(trx)
    if (there !== undefined) {
      throw new Refusal(`there is an administrator already, ${there}: agentctl token create --for ${there}`)
    }
    await createUser(trx, { email, kind: 'person', permissions: ['admin'] }, call.actor)
    return await createToken(trx, { email }, call.actor)
  })
  call.answer({ migrations, email, ...issued }, () => {
    call.remark(`${description}: ${counted(migrations.length, 'migration')}, administrator ${email}`)
    call.remark(`token ${issued.id}, expires ${issued.expires_at ?? 'never'}; it is shown only now:`)
    call.print(issued.token)
    call.remark('Next: npm start, and agentctl apply FILE for agents and tools (ops/organisation.md)')
  })
}

/** Reports on standard error what a migration waits for. */
function waiting(call: Call): { onWait(sentence: string): void } {
  return { onWait: sentence => call.remark(sentence) }
}

async function migrateCommand(call: Call, { plan }: { plan?: boolean }): Promise<number> {
  const { database, schema } = await call.rawDatabase()
  const pendingNames = schema.kind === 'behind' ? schema.pending : []
  const names = plan ? pendingNames : await migrate(database, waiting(call))
  const pending = names.map(name => ({ migration: name, locks: MIGRATIONS[name]?.locks ?? [] }))
  call.answer(plan ? { pending } : { applied: names }, () => {
    if (names.length === 0) call.print('The schema is up to date.')
    if (plan) call.printTable(pending.map(({ migration, locks }) => [migration, `locks: ${locks.join('; ')}`]))
    else for (const name of names) call.print(`applied ${name}`)
  })
  return plan && names.length > 0 ? EXIT.differs : EXIT.ok
}

async function statusCommand(call: Call): Promise<undefined> {
  const { description, database, schema } = await call.rawDatabase()
  const { db } = database
  // The tables can be counted only if the schema is current.
  const counts = schema.kind === 'current' ? await countRows(db) : undefined
  const { rows } = await sql<{ size: string; read_only: boolean }>`
    select pg_size_pretty(pg_database_size(current_database())) as size,
      current_setting('transaction_read_only') = 'on' as read_only`.execute(db)
  const server = database.server ? describeServer(database.server) : null
  const status = { version: VERSION, schema, server, ...rows[0], ...(counts && { counts }) }
  call.answer(status, () => {
    const { version, size, read_only } = status
    call.print(`version   ${version}`)
    call.print(`database  ${description}: ${server}, ${size}${read_only ? ', read only' : ''}`)
    call.print(`schema    ${schemaText(schema)}`)
    const counted = Object.entries(counts ?? {}).map(([what, count]) => `${count} ${what.replace('_', ' ')}`)
    if (counts) call.print(`rows      ${counted.join(', ')}`)
  })
}

function schemaText(schema: SchemaState): string {
  if (schema.kind !== 'behind') return schema.kind
  const { lack, command } = schemaAdvice(schema)
  return `behind: ${lack}: run ${command}`
}

async function countRows(db: Kysely<Tables>): Promise<Record<string, number> | undefined> {
  const { rows } = await sql<{ counts: Record<string, number> }>`
    select json_build_object(
      'users', (select count(*) from user_account where active), 'groups', (select count(*) from user_group),
      'agents', (select count(*) from persona where not deleted), 'tools', (select count(*) from tool),
      'tokens', (select count(*) from token where revoked_at is null and coalesce(expires_at > clock_timestamp(), true)),
      'audit_rows', (select count(*) from audit), 'access_events', (select count(*) from access_event)) as counts
    `.execute(db)
  return rows[0]?.counts
}
