import type { ReleaseTool } from '../tool/life.js'
import { creationOf } from '../updates/new-row.js'
import type { VersionedResource } from '../updates/resource.js'
import { changeAsOperator } from '../updates/write.js'
import { type PersonaTypes, personaResource } from './resource.js'
import { contentOf, decideDeletion, decisionFor, type PersonaDecision, requireDeletable } from './rules.js'
import type { PersonaState } from './state.js'

export const personaCreation = creationOf(personaResource)

/** Deletes agents: marks them and removes all their links. */
export const personaDeletion: VersionedResource<PersonaTypes> = {
  ...personaResource,
  act: 'deletion',
  decide: (state, { caller }) => {
    requireDeletable(state, caller)
    return decideDeletion(state)
  },
  asked: state => decideDeletion(state).changes,
  requireRights: requireDeletable,
}

/** Detaches a tool from deleted agents, each with a new version. Other agents keep it. */
export const releaseTool: ReleaseTool = async (trx, id, actor, viewer) => {
  const agents = await trx
    .selectFrom('persona as p')
    .select('p.id')
    .where('p.deleted', '=', true)
    .where(({ exists, selectFrom }) => {
      return exists(selectFrom('persona_tool as l').whereRef('l.persona_id', '=', 'p.id').where('l.tool_id', '=', id))
    })
    .orderBy('p.id')
    .execute()
  for (const agent of agents) await changeAsOperator(trx, personaResource, agent.id, without, actor, viewer)

  function without(state: PersonaState): PersonaDecision {
    const content = contentOf(state)
    return decisionFor(state, { ...content, tool_ids: content.tool_ids.filter(tool => tool !== id) })
  }
}
