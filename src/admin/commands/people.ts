import { type Command, Option } from 'commander'
import { PERMISSIONS } from '../../auth/caller.js'
import type { Permission } from '../../db/tables.js'
import { eraseUser } from '../erasure.js'
import { createUser, deactivateUser, isEmail, listUsers } from '../people.js'
import { counted, EXIT } from '../refusal.js'
import { type CommandLine, UsageError } from './command.js'

export function addPeopleCommands(program: Command, line: CommandLine): void {
  const user = program.command('user').description('People and service accounts.')
  line
    .add(user, 'create <EMAIL>', 'alice@example.com --permission manage:actions', createCommand)
    .description('Creates a user.\nTo set groups, or to change permissions later, use agentctl apply.')
    .option('--service-account', 'create a service account instead of a person')
    .addOption(new Option('--permission <NAME>', 'each permission includes those before it').choices(PERMISSIONS))
  line.add(user, 'list', '', listCommand).description('Lists the users.')
  line
    .add(user, 'deactivate <EMAIL>', 'alice@example.com', deactivateCommand)
    .description(
      'Deactivates a user: all tokens of the user stop working at once.\nThe tokens work again if agentctl apply sets the field active of the user to true. To stop a token for good, revoke it.',
    )
  line
    .add(user, 'erase <EMAIL>', 'alice@example.com --plan', eraseCommand)
    .description(
      'Erases a person: closes the account, removes the email and IP addresses, withdraws open proposals, and deletes the messages and reasons that the person wrote in proposals.\n' +
        'EMAIL can also be an id. Agents and tools of the person remain, and `audit verify` still succeeds.\n' +
        'Not erased: log files, backups, request ids that clients chose, and texts in agents, tools and proposed changes (ops/audit.md lists more).',
    )
    .option('--yes', 'confirm the erasure, which is permanent')
    .option('--plan', 'only show the data that would be erased; exit status 2')
}

/** Returns the email. Throws `UsageError` if it is not a valid address. */
export function checkedEmail(text: string): string {
  if (isEmail(text)) return text
  throw new UsageError(`${text} is not an email address`)
}

async function createCommand(
  call: CommandLine,
  { serviceAccount, permission }: { serviceAccount?: boolean; permission?: Permission },
  given: string,
): Promise<undefined> {
  const email = checkedEmail(given)
  const kind = serviceAccount ? 'service_account' : 'person'
  const permissions = permission ? [permission] : []
  const user = { email, kind, permissions } as const
  const id = await createUser(await call.db(), user, call.actor)
  call.answer({ id, email, kind }, `created ${email} (${id}); next: agentctl token create --for ${email}`)
}

async function listCommand(call: CommandLine): Promise<undefined> {
  call.list(await listUsers(await call.db()), {
    EMAIL: one => one.email,
    KIND: one => one.kind,
    STATE: one => (one.active ? 'active' : 'inactive'),
    PERMISSIONS: one => one.permissions.join(', ') || 'basic',
    GROUPS: one => one.groups,
  })
}

async function deactivateCommand(call: CommandLine, _: object, email: string): Promise<undefined> {
  const changed = await deactivateUser(await call.db(), email, call.actor)
  const said = changed ? `${email} is inactive` : `nothing changed: ${email} is already inactive`
  call.answer({ email, active: false, changed }, said)
}

async function eraseCommand(
  call: CommandLine,
  { yes = false, plan = false }: { yes?: boolean; plan?: boolean },
  name: string,
) {
  if (yes === plan) throw new UsageError('give either --plan, to see the data, or --yes, to erase it')
  const erased = await eraseUser(await call.db(), name, { plan, actor: call.actor })
  const { email, id, has_account } = erased
  const rows = counted(erased.audit_rows, 'audit row')
  const account = has_account ? `close the account ${email} (${id}), revoke its tokens, remove its email, ` : ''
  const would = `Would ${account}remove the person's IP addresses from ${rows} and from access events, withdraw the person's open proposals, and delete the messages and reasons that the person wrote in proposals.`
  call.answer(erased, () => {
    if (!plan) return call.print(`erased ${email} (removed the IP addresses from ${rows})`)
    call.print(would)
    call.print('The erasure cannot be undone. Nothing has been erased yet.')
  })
  return plan ? EXIT.differs : EXIT.ok
}
