import type { Kysely } from 'kysely'
import { OPERATOR, viewerWithValues } from '../../auth/viewer.js'
import { anyOf, val } from '../../db/statements/queries.js'
import type { Tables } from '../../db/tables.js'
import { BLANK_AGENT, COLUMNS, NEW_AGENT, type PersonaContent, RELATIONS } from '../../persona/fields.js'
import { personaCreation } from '../../persona/life.js'
import { personaResource } from '../../persona/resource.js'
import { changedFields, contentOf, decisionFor } from '../../persona/rules.js'
import { type PersonaState, personaStates } from '../../persona/state.js'
import { sharedNames } from '../../tool/function-names.js'
import { readStates } from '../../updates/statements.js'
import { type Catalogue, type Matched, outcomeOf, type Plan, storeInOrder } from './catalogue.js'
import { valueIn } from './words.js'

/** Plans the changes to the agents of a document. Adds faults to the catalogue. */
export async function planPersonas(db: Kysely<Tables>, catalogue: Catalogue): Promise<Plan> {
  const matches = catalogue.entries('agents')
  const ids = matches.map(({ id }) => Number(id))
  const states = new Map((await readPersonas(db, ids)).map(state => [state.id, state]))
  const planned = matches.map(match => {
    const before = states.get(Number(match.id))
    const content = mergedContent(before ?? NEW_AGENT, match, catalogue)
    const fields = changedFields(before ?? BLANK_AGENT, content)
    const decide = (state: PersonaState) => decisionFor(state, content)
    const tools = fields.some(({ field }) => field === 'tool_ids') ? content.tool_ids : []
    return { outcome: outcomeOf('agents', match, fields), version: before?.version, decide, tools }
  })
  return {
    outcomes: planned.map(({ outcome }) => outcome),
    async store(trx, actor) {
      await storeInOrder(trx, [personaResource, personaCreation], planned, actor)
      for (const { outcome, tools } of planned) {
        const notes = await sharedNames(trx, tools)
        if (notes.length > 0) outcome.notes = notes
      }
    },
  }
}

/** Reads the agents with `ids`, or all agents, sorted by id. Includes deleted agents. */
export async function readPersonas(db: Kysely<Tables>, ids?: readonly number[]): Promise<PersonaState[]> {
  const states = personaStates(viewerWithValues(OPERATOR)).orderBy('p.id')
  return await readStates(db, ids === undefined ? states : states.where('p.id', '=', anyOf(val(ids))))
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
  // Removes the owner from the shares, because the owner has all rights anyway. Updates through the API do the same.
  return { ...content, users: content.users.filter(share => share.id !== content.owner_id) }
}
