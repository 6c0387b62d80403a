import type { Command } from 'commander'
import { inTransaction } from '../../db/transaction.js'
import { personaResource } from '../../persona/resource.js'
import { contentOf, decisionFor } from '../../persona/rules.js'
import type { PersonaState } from '../../persona/state.js'
import { changeAsOperator } from '../../updates/engine.js'
import { lockUser } from '../people.js'
import { Refusal } from '../refusal.js'
import { type CommandLine, wholeNumber } from './command.js'

export function addAgentCommands(program: Command, line: CommandLine): void {
  const agent = program
    .command('agent')
    .description('Changes the owner of an agent. Use agentctl apply or the HTTP API for all other changes.')
  line
    .add(agent, 'owner', '12 --to alice@example.com', ownerCommand)
    .argument('<ID>', '', wholeNumber)
    .description('Gives an agent to another user.')
    .requiredOption('--to <EMAIL>', 'the new owner')
}

async function ownerCommand(call: CommandLine, { to }: { to: string }, id: number): Promise<undefined> {
  const { version, changes } = await inTransaction(await call.database(), { rollback: false }, async trx => {
    const owner = await lockUser(trx, to)
    if (!owner.active) throw new Refusal(`${owner.email} is inactive: choose an active user`)
    const decide = (state: PersonaState) => {
      if (state.deleted) throw new Refusal(`agent ${id} is deleted: restore it first with POST /persona/${id}/restore`)
      const users = state.users.filter(share => share.id !== owner.id) // the owner has all rights anyway
      return decisionFor(state, { ...contentOf(state), users, owner_id: owner.id })
    }
    return await changeAsOperator(trx, personaResource, id, decide, call.actor)
  })
  const done = changes.length > 0 ? `belongs to ${to}` : `already belongs to ${to}`
  call.answer({ id, owner: to, version }, `agent ${id} ${done} (version ${version})`)
}
