import type { TSchema } from '@sinclair/typebox'
import { PERMISSIONS } from '../../auth/caller.js'
import type { Permission, UserKind } from '../../db/tables.js'
import { collectFaults } from '../../schema/faults.js'
import { counted, countedAll } from '../counts.js'
import { deleteUser, planUserDeletion } from '../deletion.js'
import { Group, User } from '../document.js'
import { describeBearer, eraseUser, planErasure } from '../erasure.js'
import {
  addMember,
  createGroup,
  createUser,
  listGroups,
  listUsers,
  removeMember,
  setPermission,
  setUserActive,
} from '../people.js'
import { withProgramName } from '../program-name.js'
import { deleteAsked } from './asking.js'
import { type Call, type Command, DELETE_OPTIONS, JSON_OPTION, UsageError } from './command.js'
import { listCommand } from './list.js'

const PERMISSION_OPTION = {
  permission: {
    type: 'string',
    multiple: true,
    value: 'PERMISSION',
    choices: PERMISSIONS,
    description: 'What they may do; each includes the ones before; may be repeated.',
  },
} as const

export const peopleCommands: Command[] = [
  {
    name: 'user create',
    summary: 'Makes a user: a person, or a service account.',
    positionals: ['EMAIL'],
    options: {
      'service-account': { type: 'boolean', description: 'A service account instead of a person.' },
      ...PERMISSION_OPTION,
      ...JSON_OPTION,
    },
    run: async call => {
      const email = emailOf(call.argument(0))
      const kind: UserKind = call.flag('service-account') ? 'service_account' : 'person'
      const { db } = await call.database()
      const id = await createUser(
        db,
        { email, kind, permissions: call.texts('permission').map(permissionOf) },
        call.actor,
      )
      const hint = withProgramName(`a token: agentctl token create --for ${email}`, call.env)
      call.answer({ id, email, kind }, `created ${email} (${id}); ${hint}`)
    },
  },
  permissionCommand('user', 'grant', 'Grants a permission to a user.'),
  permissionCommand('user', 'revoke', 'Takes a permission from a user.'),
  activityCommand('user activate', 'Lets a user in again.', true),
  activityCommand('user deactivate', 'Shuts a user out: their tokens stop working with the next request.', false),
  {
    name: 'user delete',
    summary: 'Deletes a user with their tokens, memberships and shares.',
    positionals: ['EMAIL'],
    options: {
      'give-to': { type: 'string', value: 'EMAIL', description: 'Who gets what the user owns.' },
      ...DELETE_OPTIONS,
    },
    details: 'Refused while the user owns something and nobody gets it. The audit trail keeps what they did.',
    run: deleteCommand,
  },
  {
    name: 'user erase',
    summary: 'Erases a person: their account is shut, and their name, email and addresses go from the audit trail.',
    positionals: ['EMAIL'],
    options: DELETE_OPTIONS,
    details: [
      'EMAIL is that of now, or an id. Others who once had it are named by --plan, and stay as they are.',
      'What they own stays, with their id, which leads to nobody any more. Every chain, proof and checkpoint still verifies.',
      'Not erased: log files, backups, proofs that were handed out, request ids that clients chose, and what people wrote into agents.',
    ].join('\n'),
    run: eraseCommand,
  },
  listCommand({
    name: 'user list',
    summary: 'Lists the users.',
    columns: [
      { field: 'email', title: 'EMAIL', whole: true },
      { field: 'kind', title: 'KIND' },
      { field: 'active', title: 'STATE', show: user => (user.active ? 'active' : 'inactive') },
      { field: 'permissions', title: 'PERMISSIONS', show: user => user.permissions.join(',') || 'basic' },
      { field: 'groups', title: 'GROUPS' },
      { field: 'id' },
    ],
    rows: async (call, selection) => await listUsers((await call.database()).db, selection),
  }),
  {
    name: 'group create',
    summary: 'Makes a group.',
    positionals: ['NAME'],
    options: { ...PERMISSION_OPTION, ...JSON_OPTION },
    run: async call => {
      const name = asInDocuments(Group.properties.name, call.argument(0), 'NAME')
      const id = await createGroup(
        (await call.database()).db,
        name,
        call.texts('permission').map(permissionOf),
        call.actor,
      )
      call.answer({ id, name }, `created group ${id} ${name}`)
    },
  },
  permissionCommand('group', 'grant', 'Grants a permission to every member of a group.'),
  permissionCommand('group', 'revoke', 'Takes a permission from a group.'),
  memberCommand('member', 'add', 'Makes a user a member of a group.'),
  memberCommand('member', 'remove', 'Takes a user out of a group.'),
  memberCommand('manager', 'add', 'Makes a user a manager of a group.'),
  memberCommand('manager', 'remove', 'Makes a manager of a group a plain member.'),
  listCommand({
    name: 'group list',
    summary: 'Lists the groups with members and managers.',
    columns: [
      { field: 'id', title: 'ID', whole: true },
      { field: 'name', title: 'NAME' },
      { field: 'permissions', title: 'PERMISSIONS' },
      { field: 'members', title: 'MEMBERS' },
      { field: 'managers', title: 'MANAGERS' },
    ],
    rows: async (call, selection) => await listGroups((await call.database()).db, selection),
  }),
]

/** An email. Throws `UsageError`. */
export function emailOf(text: string): string {
  if (!/^[^\s\p{Cc}@]+@[^\s\p{Cc}@]+$/u.test(text)) throw new UsageError(`not an email: ${text}`)
  return asInDocuments(User.properties.email, text, 'EMAIL')
}

/** A text that documents take too: what is made here can be exported and applied again. Throws `UsageError`. */
function asInDocuments(schema: TSchema, text: string, place: string): string {
  const [fault] = collectFaults(schema, text, [])
  if (fault !== undefined) throw new UsageError(`${place}: ${fault.msg}`)
  return text
}

async function deleteCommand(call: Call): Promise<number | undefined> {
  const database = await call.database()
  const [user, heir] = [call.argument(0), call.text('give-to')]
  const goes = await planUserDeletion(database.db, user, heir)
  const { agents, tools, oauth_configs, mcp_servers, user_files } = goes.owned
  const owned = Object.entries({
    agents,
    tools,
    'OAuth configurations': oauth_configs,
    'MCP servers': mcp_servers,
    files: user_files,
  })
  const lines = [
    `${goes.email} would be deleted${countedAll(', with ', { token: goes.tokens, membership: goes.groups, share: goes.shares.length })}`,
    ...owned.flatMap(([what, ids]) => (ids.length > 0 ? [`${what} ${ids.join(', ')} would go to ${goes.heir}`] : [])),
  ]
  const remove = async () => await deleteUser(database, await call.vault(), user, heir, call.actor)
  return await deleteAsked(call, goes.email, { goes, lines }, remove)
}

async function eraseCommand(call: Call): Promise<number | undefined> {
  const { db } = await call.database()
  const goes = await planErasure(db, call.argument(0))
  const account = goes.has_account
    ? `the account ${goes.email} (${goes.id}) would be shut and lose its email, and `
    : ''
  const lines = [
    `${account}${counted(goes.audit_rows, 'audit row')} and ${counted(goes.events, 'event')} would lose name and addresses, for good`,
    ...goes.former.map(other => `not erased, though they once had this email: ${describeBearer(other)}`),
  ]
  // By the id: while the plan was read, the email may have gone to somebody else.
  const erase = async () =>
    await eraseUser(db, goes.id, call.actor, rows => call.progress.at('erasing', rows, undefined, 'rows'))
  return await deleteAsked(call, goes.email, { goes, lines }, erase, { ask: 'Erase', done: 'erased' })
}

/** A permission by its name. Throws `UsageError`. */
export function permissionOf(text: string): Permission {
  const found = PERMISSIONS.find(permission => permission === text)
  if (found === undefined) throw new UsageError(`${text} is none of ${PERMISSIONS.join(', ')}`)
  return found
}

function permissionCommand(holder: 'user' | 'group', word: 'grant' | 'revoke', summary: string): Command {
  const place = holder === 'user' ? 'EMAIL' : 'GROUP'
  return {
    name: `${holder} ${word}`,
    summary,
    positionals: [place, 'PERMISSION'],
    options: JSON_OPTION,
    details: `PERMISSION is one of ${PERMISSIONS.join(', ')}; each includes the ones before.`,
    run: async call => {
      const [named, permission, granted] = [call.argument(0), permissionOf(call.argument(1)), word === 'grant']
      const changed = await setPermission((await call.database()).db, holder, named, permission, granted, call.actor)
      const answer = { [place.toLowerCase()]: named, permission, granted, changed }
      const unchanged = `nothing changed: ${named} ${granted ? 'already has' : 'does not have'} ${permission}`
      call.answer(answer, changed ? `${granted ? 'granted' : 'revoked'} ${permission}: ${named}` : unchanged)
    },
  }
}

function activityCommand(name: string, summary: string, active: boolean): Command {
  return {
    name,
    summary,
    positionals: ['EMAIL'],
    options: JSON_OPTION,
    run: async call => {
      const email = call.argument(0)
      const changed = await setUserActive((await call.database()).db, email, active, call.actor)
      const state = active ? 'active' : 'inactive'
      call.answer(
        { email, active, changed },
        changed ? `${email} is ${state}` : `nothing changed: ${email} is ${state} already`,
      )
    },
  }
}

function memberCommand(role: 'member' | 'manager', word: 'add' | 'remove', summary: string): Command {
  const change = word === 'add' ? addMember : removeMember
  return {
    name: `group ${role} ${word}`,
    summary,
    positionals: ['GROUP', 'EMAIL'],
    options: JSON_OPTION,
    run: async call => {
      const [group, email, done] = [call.argument(0), call.argument(1), word === 'add' ? 'added' : 'removed']
      const changed = await change((await call.database()).db, group, email, role === 'manager', call.actor)
      const unchanged = `nothing changed: ${email} is a ${role} of ${group} already`
      call.answer({ group, email, done, changed }, changed ? `${done} ${email}: ${group}` : unchanged)
    },
  }
}
