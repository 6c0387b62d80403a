import type { Command } from 'commander'
import { sql } from 'kysely'
import { migrate, schemaAdvice } from '../../db/migrate.js'
import { VERSION } from '../../version.js'
import { createUser, firstAdministrator, keepingAdministrator } from '../people.js'
import { counted, EXIT, Refusal } from '../refusal.js'
import { createToken } from '../tokens.js'
import type { CommandLine } from './command.js'
import { checkedEmail } from './people.js'

export function addSetupCommands(program: Command, line: CommandLine): void {
  line
    .add(program, 'init <EMAIL>', 'alice@example.com', initCommand)
    .description(
      'Creates the schema, and an administrator with a token.\n' +
        'The token is shown once. Fails if an active administrator exists. For more tokens, use agentctl token create.',
    )
  line
    .add(program, 'migrate', '--plan', migrateCommand)
    .description('Updates the database schema.\nNever downgrades it. Several processes can run this at once.')
    .option('--plan', 'only list pending migrations; exit status 2 if there are any')
  line.add(program, 'status', '--json', statusCommand).description('Shows the version, the database and its schema.')
}

async function initCommand(call: CommandLine, _: object, given: string): Promise<undefined> {
  const email = checkedEmail(given)
  // If the key ring is missing, fails before anything is created.
  await call.ring()
  const { database, description, schema } = await call.rawDatabase()
  const migrations = schema.kind === 'behind' ? await migrate(database) : []
  const issued = await keepingAdministrator(database.db, async trx => {
    const there = await firstAdministrator(trx)
    if (there !== undefined) {
      throw new Refusal(`there is already an administrator, ${there}: use agentctl token create --for ${there}`)
    }
    await createUser(trx, { email, kind: 'person', permissions: ['admin'] }, call.actor)
    return await createToken(trx, { email }, call.actor)
  })
  call.answer({ migrations, email, ...issued }, () => {
    call.remark(`${description}: applied ${counted(migrations.length, 'migration')}, created administrator ${email}`)
    call.remark(`token ${issued.id} (expires: ${issued.expires_at ?? 'never'}) is shown only once:`)
    call.print(issued.token)
    call.remark('Next: start the service if it is not running. To load records, see ops/organisation.md')
  })
}

async function migrateCommand(call: CommandLine, { plan }: { plan?: boolean }): Promise<number> {
  const { database, schema } = await call.rawDatabase()
  const pending = schema.kind === 'behind' ? schema.pending : []
  const names = plan ? pending : await migrate(database)
  call.answer(plan ? { pending } : { applied: names }, () => {
    if (names.length === 0) call.print('The schema is up to date.')
    for (const name of names) call.print(`${plan ? 'to apply' : 'applied'} ${name}`)
  })
  return plan && names.length > 0 ? EXIT.differs : EXIT.ok
}

async function statusCommand(call: CommandLine): Promise<undefined> {
  const { description, database, schema } = await call.rawDatabase()
  const { rows } = await sql<{ size: string; read_only: boolean }>`
    select pg_size_pretty(pg_database_size(current_database())) as size,
      current_setting('transaction_read_only') = 'on' as read_only`.execute(database.db)
  const server = database.server ?? null
  const { size, read_only } = rows[0] ?? {}
  call.answer({ version: VERSION, schema, server, size, read_only }, () => {
    call.print(`version   ${VERSION}`)
    call.print(`database  ${description}: ${server}, ${size}${read_only ? ', read only' : ''}`)
    const { lack, command } = schema.kind === 'behind' ? schemaAdvice(schema) : {}
    call.print(`schema    ${lack === undefined ? schema.kind : `behind (${lack}): run ${command}`}`)
  })
}
