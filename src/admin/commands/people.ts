import type { Command } from 'commander'
import { PERMISSIONS } from '../../auth/caller.js'
import type { Permission } from '../../db/tables.js'
import { collectFaults } from '../../schema/faults.js'
import { counted } from '../counts.js'
import { User } from '../document.js'
import { describeBearer, eraseUser, planErasure } from '../erasure.js'
import { createUser, deactivateUser, listUsers } from '../people.js'
import { type Call, type CommandLine, collected, EXIT, UsageError } from './command.js'

export function addPeopleCommands(program: Command, line: CommandLine): void {
  const user = program.command('user').description('People and service accounts.')
  const create = {
    effect: 'writes',
    summary: 'Makes a user.\nGroups, and later changes of groups and permissions, are the business of apply.',
    example: 'agentctl user create bob@example.com --group Support',
  } as const
  line
    .add(user, 'create <EMAIL>', create, createCommand)
    .option('--service-account', 'a service account instead of a person')
    .option(
      '--permission <NAME>',
      `${PERMISSIONS.join(', ')}: each includes the ones before; may be repeated`,
      collected,
    )
    .option('--group <GROUP>', 'make them a member of this group, by name or id; may be repeated', collected)
    .option('--json', 'print JSON')
  const list = { effect: 'reads', summary: 'Lists the users.', example: 'agentctl user list' } as const
  line
    .add(user, 'list', list, async call => {
      call.list(await listUsers((await call.database()).db), {
        EMAIL: one => one.email,
        KIND: one => one.kind,
        STATE: one => (one.active ? 'active' : 'inactive'),
        PERMISSIONS: one => one.permissions.join(', ') || 'basic',
        GROUPS: one => one.groups,
      })
      return EXIT.ok
    })
    .option('--json', 'print JSON')
  const deactivate = {
    effect: 'writes',
    summary:
      'Shuts a user out: their tokens stop working with the next request.\napply lets them in again (active: true).',
    example: 'agentctl user deactivate bob@example.com',
  } as const
  line.add(user, 'deactivate <EMAIL>', deactivate, deactivateCommand).option('--json', 'print JSON')
  const erase = {
    effect: 'destroys',
    summary: [
      'Erases a person: shuts the account, clears the audit trail of them.',
      'EMAIL may be an id. What they own stays, and the audit trail still verifies.',
      'Not erased: log files, backups, request ids that clients chose, and what people wrote into agents.',
    ].join('\n'),
    example: 'agentctl user erase bob@example.com --plan',
  } as const
  line
    .add(user, 'erase <EMAIL>', erase, eraseCommand)
    .option('--yes', 'do not ask')
    .option('--plan', 'only show what would be erased; exit status 2')
    .option('--json', 'print JSON')
}

/** An email that documents take too. Throws `UsageError`. */
export function emailOf(text: string): string {
  if (!/^[^\s\p{Cc}@]+@[^\s\p{Cc}@]+$/u.test(text)) throw new UsageError(`not an email: ${text}`)
  const [fault] = collectFaults(User.properties.email, text, [])
  if (fault !== undefined) throw new UsageError(`EMAIL: ${fault.msg}`)
  return text
}

/** A permission by its name. Throws `UsageError`. */
export function permissionOf(text: string): Permission {
  const found = PERMISSIONS.find(permission => permission === text)
  if (found === undefined) throw new UsageError(`${text} is none of ${PERMISSIONS.join(', ')}`)
  return found
}

async function createCommand(call: Call): Promise<undefined> {
  const email = emailOf(call.argument(0))
  const kind = call.flag('service-account') ? 'service_account' : 'person'
  const permissions = call.texts('permission').map(permissionOf)
  const user = { email, kind, permissions, groups: call.texts('group') } as const
  const id = await createUser((await call.database()).db, user, call.actor)
  call.answer({ id, email, kind }, `created ${email} (${id}); a token: agentctl token create --for ${email}`)
}

async function deactivateCommand(call: Call): Promise<undefined> {
  const email = call.argument(0)
  const changed = await deactivateUser((await call.database()).db, email, call.actor)
  const said = changed ? `${email} is inactive` : `nothing changed: ${email} is inactive already`
  call.answer({ email, active: false, changed }, said)
}

async function eraseCommand(call: Call): Promise<number> {
  const { db } = await call.database()
  const goes = await planErasure(db, call.argument(0))
  if (!call.json) {
    const account = goes.has_account
      ? `the account ${goes.email} (${goes.id}) would be shut and lose its email, and `
      : ''
    const rows = `${counted(goes.audit_rows, 'audit row')} and ${counted(goes.events, 'event')}`
    call.print(`${account}${rows} would lose name and addresses, for good`)
    for (const other of goes.former) {
      call.print(`not erased, though they once had this email: ${describeBearer(other)}`)
    }
  }
  if (call.flag('plan')) {
    if (call.json) call.printJson(goes)
    return EXIT.differs
  }
  if (!(await call.confirmed(`Erase ${goes.email}?`))) {
    call.remark('nothing was erased')
    return EXIT.error
  }
  // By the id: since the plan was read, the email may have gone to somebody else.
  await eraseUser(db, goes.id, call.actor)
  call.answer(goes, `erased ${goes.email}`)
  return EXIT.ok
}
