import { removeRow } from '../src/admin/apply.js'
import { operatorActor } from '../src/admin/operator.js'
import type { Database } from '../src/db/database.js'
import { inTransaction } from '../src/db/transaction.js'

type Db = Pick<Database, 'db'>

/** Marks an agent as deleted, like `apply --prune`. */
export async function deleteAgent(database: Db, id: number): Promise<void> {
  await inTransaction(database, { rollback: false }, trx => removeRow(trx, 'agents', id, operatorActor('test')))
}

/** Detaches a tool from all agents and removes it, like `apply --prune`. */
export async function deleteTool(database: Db, id: number): Promise<void> {
  await inTransaction(database, { rollback: false }, async trx => {
    await trx.deleteFrom('persona_tool').where('tool_id', '=', id).execute()
    await removeRow(trx, 'tools', id, operatorActor('test'))
  })
}
