import type { Kysely } from 'kysely'
import { OPERATOR, viewerWithValues } from '../../auth/viewer.js'
import { anyOf, val } from '../../db/statements/queries.js'
import type { Tables } from '../../db/tables.js'
import { BLANK_AGENT, COLUMNS, NEW_AGENT, type PersonaContent, RELATIONS } from '../../persona/fields.js'
import { personaCreation } from '../../persona/life.js'
import { type PersonaTypes, personaResource } from '../../persona/resource.js'
import { changedFields, contentOf, decisionFor } from '../../persona/rules.js'
import { type PersonaState, personaState } from '../../persona/state.js'
import { sharedNames } from '../../tool/function-names.js'
import type { Catalogue, Decided, Matched, Outcome, Plan } from './catalogue.js'
import { storeInOrder } from './catalogue.js'
import { valueIn } from './words.js'

/** Plans the changes of a document's agents. Faults are added to the catalogue. */
export async function planPersonas(db: Kysely<Tables>, catalogue: Catalogue): Promise<Plan> {
  const matches = catalogue.entries('agents')
  const states = await readPersonaStates(
    db,
    matches.map(({ id }) => Number(id)),
  )
  const changed: (Decided<PersonaTypes> & { outcome: Outcome; tools: readonly number[] })[] = []
  const outcomes = matches.map((match): Outcome => {
    const id = Number(match.id)
    const before = states.get(id)
    const content = mergedContent(before ?? NEW_AGENT, match, catalogue)
    const fields = changedFields(before ?? BLANK_AGENT, content)
    const action = before === undefined ? 'created' : fields.length > 0 ? 'changed' : 'unchanged'
    const outcome: Outcome = { section: 'agents', id, name: content.name, action, fields }
    const decide = (state: PersonaState) => decisionFor(state, content)
    const tools = fields.some(({ field }) => field === 'tool_ids') ? content.tool_ids : []
    if (action !== 'unchanged') changed.push({ id, version: before?.version, decide, outcome, tools })
    return outcome
  })
  return {
    outcomes,
    async store(trx, actor) {
      await storeInOrder(trx, [personaResource, personaCreation], 'agent', changed, actor)
      for (const { outcome, tools } of changed) {
        const notes = await sharedNames(trx, tools)
        if (notes.length > 0) outcome.notes = notes
      }
    },
  }
}

async function readPersonaStates(db: Kysely<Tables>, ids: readonly number[]): Promise<Map<number, PersonaState>> {
  const rows = await db
    .selectFrom('persona as p')
    .select(personaState(viewerWithValues(OPERATOR)).as('state'))
    .where('p.id', '=', anyOf(val(ids)))
    .execute()
  return new Map(rows.map(({ state }) => [state.id, state]))
}

function mergedContent(before: PersonaContent, match: Matched, catalogue: Catalogue): PersonaContent {
  const given: Record<string, unknown> = {}
  for (const [column, { canonical }] of COLUMNS) {
    const value = valueIn(match, column, catalogue)
    given[column] = canonical === undefined || value == null ? value : canonical(value as never)
  }
  for (const [relation] of RELATIONS) given[relation] = valueIn(match, relation, catalogue)
  const named = Object.entries(given).filter(([, value]) => value !== undefined)
  const content: PersonaContent = { ...contentOf(before), ...Object.fromEntries(named) }
  // The owner has all rights already. The update operation drops this share too.
  return { ...content, users: content.users.filter(share => share.id !== content.owner_id) }
}
