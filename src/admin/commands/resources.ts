import type { Command } from 'commander'
import { inTransaction } from '../../db/transaction.js'
import { personaResource } from '../../persona/resource.js'
import { contentOf, decisionFor } from '../../persona/rules.js'
import { changeAsOperator } from '../../updates/engine.js'
import { lockUser } from '../people.js'
import { Refusal } from '../refusal.js'
import { REFERENCE, resourceId } from '../resources.js'
import type { CommandLine } from './command.js'

export function addAgentCommands(program: Command, line: CommandLine): void {
  const agent = program.command('agent').description('Agents: apply and the HTTP operations change the rest of them.')
  line
    .add(agent, 'owner <AGENT>', 'alice@example.com/Support --to bob@example.com', ownerCommand)
    .description(`Gives an agent to another user.\nAGENT is ${REFERENCE}.`)
    .requiredOption('--to <EMAIL>', 'the new owner')
}

async function ownerCommand(call: CommandLine, { to }: { to: string }, name: string): Promise<undefined> {
  const database = await call.database()
  const id = await resourceId(database.db, 'persona', name)
  const { version, changes } = await inTransaction(database, { rollback: false }, async trx => {
    const owner = await lockUser(trx, to)
    if (!owner.active) throw new Refusal(`${owner.email} is inactive`)
    return await changeAsOperator(
      trx,
      personaResource,
      id,
      state => {
        const users = state.users.filter(share => share.id !== owner.id) // an owner has all rights already
        return decisionFor(state, { ...contentOf(state), users, owner_id: owner.id })
      },
      call.actor,
    )
  })
  const done = changes.length > 0 ? `belongs to ${to}` : `belongs to ${to} already`
  call.answer({ id, owner: to, version }, `agent ${id} ${done} (version ${version})`)
}
