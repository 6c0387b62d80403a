import { type Kysely, sql } from 'kysely'
import type { Database } from '../../db/tables.js'
import type { Outcome } from './report.js'

/**
 * Says of every changed field of agents and tools who set its stored value and when: what differs from the document because
 * somebody changed it since shows as theirs. Fields whose audit row is no longer kept stay without.
 */
export async function nameAuthors(db: Kysely<Database>, outcomes: readonly Outcome[]): Promise<void> {
  for (const [section, kind] of [['agents', 'persona'] as const, ['tools', 'tool'] as const]) {
    const changed = outcomes.filter(outcome => outcome.section === section && outcome.action === 'changed')
    if (changed.length === 0) continue
    const ids = changed.map(outcome => Number(outcome.id))
    const { rows } = await sql<{ id: number; field: string; actor: string; at: string }>`
      select distinct on (r.id, field) r.id, field, a.actor, a.at
      from ${sql.table(kind)} r
      join audit a on a.resource_kind = ${kind} and a.resource_id = r.id
      cross join unnest(a.fields) field
      where r.id = any(${ids}::integer[])
      order by r.id, field, a.version_after desc`.execute(db)
    const authors = new Map(rows.map(row => [`${row.id} ${row.field}`, row]))
    for (const { id, fields } of changed) {
      for (const change of fields) {
        const author = authors.get(`${id} ${change.field}`)
        if (author) Object.assign(change, { changed_by: author.actor, changed_at: author.at })
      }
    }
  }
}
