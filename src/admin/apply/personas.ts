import { type Kysely, sql } from 'kysely'
import { OPERATOR, viewerWithValues } from '../../auth/viewer.js'
import type { ShareLevel, Tables } from '../../db/tables.js'
import type { Loc } from '../../errors.js'
import {
  BLANK_AGENT,
  COLUMNS,
  linkOf,
  NEW_AGENT,
  type PersonaContent,
  RELATIONS,
  type Relation,
  type Share,
} from '../../persona/fields.js'
import { personaCreation } from '../../persona/life.js'
import { personaResource } from '../../persona/resource.js'
import { changedFields, contentOf, decisionFor } from '../../persona/rules.js'
import { type PersonaState, personaState } from '../../persona/state.js'
import { sharedNames } from '../../tool/function-names.js'
import { changeAsOperator } from '../../updates/engine.js'
import type { AgentEntry, Reference } from '../document.js'
import {
  ascending,
  type Catalogue,
  type Id,
  type Matched,
  type Outcome,
  type Plan,
  requireSameName,
  storedIds,
  storeInOrder,
} from './catalogue.js'

/** Plans the changes of a document's agents. Faults are added to the catalogue. */
export async function planPersonas(db: Kysely<Tables>, catalogue: Catalogue): Promise<Plan> {
  const matches = catalogue.entries('agents')
  const states = await readPersonaStates(db, storedIds(matches))
  const changed: { id: number; match: Matched; outcome: Outcome }[] = []
  const toolLists = new Map<string, { ids: number[]; outcomes: Outcome[] }>()
  const outcomes = matches.map((match): Outcome => {
    const before = states.get(Number(match.id))
    const content = mergedContent(before ?? NEW_AGENT, match, catalogue)
    const changes = changedFields(before ?? BLANK_AGENT, content)
    const action = before === undefined ? 'created' : changes.length > 0 ? 'changed' : 'unchanged'
    const outcome: Outcome = { section: 'agents', id: match.id, name: content.name, action, fields: changes }
    if (action !== 'unchanged') changed.push({ id: Number(match.id), match, outcome })
    if (changes.some(({ field }) => field === 'tool_ids')) {
      const ids = content.tool_ids
      const list = toolLists.get(ids.join()) ?? { ids, outcomes: [] }
      toolLists.set(ids.join(), list)
      list.outcomes.push(outcome)
    }
    return outcome
  })
  for (const { ids, outcomes } of toolLists.values()) {
    const notes = await sharedNames(db, ids)
    if (notes.length > 0) for (const outcome of outcomes) outcome.notes = notes
  }
  return {
    outcomes,
    async store(trx, actor) {
      await storeInOrder(trx, personaResource, changed, async ({ id, match, outcome }) => {
        const decide = (state: PersonaState) => {
          requireSameName(match, state.name)
          return decisionFor(state, mergedContent(match.stored ? state : NEW_AGENT, match, catalogue))
        }
        const resource = match.stored ? personaResource : personaCreation
        outcome.fields = (await changeAsOperator(trx, resource, id, decide, actor)).changes
      })
    },
  }
}

/** Reads the states of agents by id. */
export async function readPersonaStates(
  db: Kysely<Tables>,
  ids: readonly number[],
): Promise<Map<number, PersonaState>> {
  const { rows } = await sql<{ state: PersonaState }>`
    select ${personaState(viewerWithValues(OPERATOR))} as state from persona p where p.id = any(${ids}::integer[])`.execute(
    db,
  )
  return new Map(rows.map(({ state }) => [state.id, state]))
}

type Fields = AgentEntry & Readonly<Record<string, unknown>>

function mergedContent(before: PersonaContent, match: Matched, catalogue: Catalogue): PersonaContent {
  const entry = match.entry as Fields // it passed the document's schema
  const content = contentOf(before)
  for (const [column, { canonical }] of COLUMNS) {
    const value = entry[column]
    if (value === undefined) continue
    Object.assign(content, { [column]: canonical === undefined || value === null ? value : canonical(value as never) })
  }
  mergeRelations(content, entry, match, catalogue)
  return content
}

function mergeRelations(content: PersonaContent, entry: Fields, { loc }: Matched, catalogue: Catalogue): void {
  if (entry.owner !== undefined) {
    const owner = entry.owner === null ? null : catalogue.resolve('users', entry.owner, [...loc, 'owner'])
    content.owner_id = owner === null ? null : String(owner)
  }
  for (const [relation, { link }] of RELATIONS) {
    const { section } = link
    const listed = entry[section]
    if (listed === undefined) continue
    const ids = link.isShare
      ? sharesOf(relation, listed as DocumentShare[], loc, catalogue)
      : catalogue.resolveAll(section, listed as Reference[], [...loc, section])
    Object.assign(content, { [relation]: ids })
  }
  // The owner has all rights already. The update operation drops this share too.
  content.users = content.users.filter(share => share.id !== content.owner_id)
}

/** A share in a document: a user or group under the link's key, and the level. */
type DocumentShare = Readonly<Record<string, Reference>> & { level?: ShareLevel }

function sharesOf(relation: Relation, shares: readonly DocumentShare[], loc: Loc, catalogue: Catalogue): Share<Id>[] {
  const { section, key = 'id' } = linkOf(relation)
  const levels = new Map<Id, ShareLevel>()
  for (const [index, share] of shares.entries()) {
    const id = catalogue.resolve(section, share[key] ?? '', [...loc, section, index, key])
    if (id !== null) levels.set(id, share.level ?? 'viewer')
  }
  return ascending([...levels.keys()]).map(id => ({ id, level: levels.get(id) ?? 'viewer' }))
}
