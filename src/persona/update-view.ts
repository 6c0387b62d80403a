import { compileBody } from '../schema/faults.js'
import { type FIELDS, type PersonaContent, RELATIONS, REQUEST_FIELDS, type Relation } from './fields.js'
import { idsOf } from './links.js'
import { PersonaUpsertRequest } from './schema.js'

/** A body that an update takes, as JSON text, and which fields it must be told that it holds: undefined where it is a whole update. */
export interface UpdateView {
  text: string
  mask: string[] | undefined
}

const relations = new Set<keyof typeof FIELDS>(RELATIONS.map(([name]) => name))

const required = new Set<string>(PersonaUpsertRequest.required)

const FIELDS_OF_UPDATE = REQUEST_FIELDS.flatMap(([name]) => {
  return name === 'remove_image' ? [] : [{ name, takes: compileBody(PersonaUpsertRequest.properties[name]) }]
})

/**
 * Makes of a stored agent the body of an update that changes nothing. A field is in it if an update takes the stored value: a
 * prompt that is null, as only the operator leaves it, is in no update, and a body without it goes with a mask.
 */
export function updateView(content: PersonaContent): UpdateView {
  const values = FIELDS_OF_UPDATE.map(({ name, takes }) => {
    const value = relations.has(name) ? idsOf(content, name as Relation) : content[name] // the set says so
    return { name, value, isTaken: takes.check(value) }
  })
  const taken = values.filter(({ isTaken }) => isTaken)
  const isWhole = values.every(({ name, isTaken }) => isTaken || !required.has(name))
  const text = JSON.stringify(Object.fromEntries(taken.map(({ name, value }) => [name, value])))
  return { text, mask: isWhole ? undefined : taken.map(({ name }) => name) }
}
