import { sql, type Transaction } from 'kysely'
import { removeRow } from '../src/admin/apply.js'
import { operatorActor } from '../src/admin/operator.js'
import type { Database } from '../src/db/database.js'
import type { Tables } from '../src/db/tables.js'
import { inTransaction } from '../src/db/transaction.js'
import type { PersonaContent } from '../src/persona/fields.js'
import { personaResource } from '../src/persona/resource.js'
import { contentOf, decisionFor } from '../src/persona/rules.js'
import type { PersonaState } from '../src/persona/state.js'
import { changeAsOperator } from '../src/updates/engine.js'

type Db = Pick<Database, 'db'>

/** Marks an agent deleted, as `apply --prune` does. */
export async function deleteAgent(database: Db, id: number): Promise<void> {
  await inTransaction(database, { rollback: false }, trx => removeRow(trx, 'agents', id, operatorActor('test')))
}

/** Takes a tool out of its agents and removes it, as `apply --prune` does. */
export async function deleteTool(database: Db, id: number): Promise<void> {
  await inTransaction(database, { rollback: false }, async trx => {
    const { rows } = await sql<{ id: number }>`select persona_id as id from persona_tool where tool_id = ${id}`.execute(
      trx,
    )
    for (const agent of rows) {
      await changeAgent(trx, agent.id, state => {
        const content = contentOf(state)
        return { ...content, tool_ids: content.tool_ids.filter(tool => tool !== id) }
      })
    }
    await removeRow(trx, 'tools', id, operatorActor('test'))
  })
}

/** Changes an agent as the operator does. */
export async function changeAgent(
  trx: Transaction<Tables>,
  id: number,
  change: (state: PersonaState) => PersonaContent,
): Promise<void> {
  const decide = (state: PersonaState) => decisionFor(state, change(state))
  await changeAsOperator(trx, personaResource, id, decide, operatorActor('test'))
}
