import { sql } from 'kysely'
import { changePersona } from '../src/admin/apply/personas.js'
import { removeRow } from '../src/admin/apply/pruning.js'
import { operatorActor } from '../src/admin/operator.js'
import type { Database } from '../src/db/database.js'
import { inTransaction } from '../src/db/transaction.js'
import { contentOf } from '../src/persona/rules.js'

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
      const decide = (state: Parameters<typeof contentOf>[0]) => {
        const content = contentOf(state)
        return { ...content, tool_ids: content.tool_ids.filter(tool => tool !== id) }
      }
      await changePersona(trx, agent.id, decide, operatorActor('test'))
    }
    await removeRow(trx, 'tools', id, operatorActor('test'))
  })
}
