import t from 'tap'
import { firstAdministrator, setUserActive } from '../../src/admin/people.js'
import { agentctl as agentctlOf } from '../cli/agentctl.js'
import { worldDatabase } from '../world.js'

const { database, url } = await worldDatabase(t)
const { db } = database
const agentctl = (...args: string[]) => agentctlOf({ url, args })

/** Makes these the only ones who administer. */
async function administrators(...emails: string[]): Promise<void> {
  await db.updateTable('user_account').set({ permissions: [] }).execute()
  await db.updateTable('user_group').set({ permissions: [] }).execute()
  await db
    .updateTable('user_account')
    .set({ permissions: ['admin'], active: true })
    .where('email', 'in', emails)
    .execute()
}

t.test('1: the last administrator stays, whatever would take them away', async t => {
  await administrators('admin@example.com')
  for (const args of [
    ['user', 'deactivate', 'admin@example.com'],
    ['user', 'revoke', 'admin@example.com', 'admin'],
    ['user', 'delete', 'admin@example.com', '--give-to', 'alice@example.com', '--yes'],
  ]) {
    const { status, stderr } = await agentctl(...args)
    t.equal(status, 1, args.join(' '))
    t.match(stderr, 'leave no active administrator')
  }
  t.equal(await firstAdministrator(db), 'admin@example.com')
})

t.test('1: also where they administer by a group', async t => {
  await administrators('alice@example.com')
  t.equal((await agentctl('group', 'create', 'Admins', '--permission', 'admin')).status, 0)
  t.equal((await agentctl('group', 'member', 'add', 'Admins', 'bob@example.com')).status, 0)
  t.equal((await agentctl('user', 'revoke', 'alice@example.com', 'admin')).status, 0)
  t.equal((await agentctl('group', 'member', 'remove', 'Admins', 'bob@example.com')).status, 1)
  t.equal((await agentctl('group', 'revoke', 'Admins', 'admin')).status, 1)
  t.equal(await firstAdministrator(db), 'bob@example.com')
})

t.test('1: of the last two, deactivated at once, one stays', async t => {
  for (let round = 0; round < 5; round++) {
    await administrators('alice@example.com', 'bob@example.com')
    const both = ['alice@example.com', 'bob@example.com'].map(email => setUserActive(db, email, false))
    const ended = await Promise.allSettled(both)
    t.equal(ended.filter(({ status }) => status === 'fulfilled').length, 1)
    t.ok(await firstAdministrator(db))
  }
})

t.test('1: who is no member or manager cannot be removed as one', async t => {
  const member = await agentctl('group', 'member', 'remove', 'Empty', 'alice@example.com')
  t.equal(member.status, 1)
  t.match(member.stderr, 'alice@example.com is not a member of the group Empty')
  t.equal((await agentctl('group', 'member', 'add', 'Empty', 'alice@example.com')).status, 0)
  const manager = await agentctl('group', 'manager', 'remove', 'Empty', 'alice@example.com')
  t.equal(manager.status, 1)
  t.match(manager.stderr, 'is not a manager of')
  t.equal((await agentctl('group', 'member', 'remove', 'Empty', 'alice@example.com')).status, 0)
})
