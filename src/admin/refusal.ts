import type { Fault } from '../errors.js'

/** What was asked for cannot be done, for a reason that the sentence tells the operator. */
export class Refusal extends Error {}

/** A document breaks rules. Carries every fault of the stage that found some, each at its place in the document. */
export class InvalidDocument extends Refusal {
  constructor(readonly faults: Fault[]) {
    super(`the document has ${counted(faults.length, 'fault')}`)
  }
}

/** A place in a document for people: `agents[3].tools[0]`. */
export function placeText(loc: readonly (string | number)[]): string {
  const text = loc.map(step =>
    typeof step === 'number' ? `[${step}]` : /^[\w-]+$/.test(step) ? `.${step}` : `[${JSON.stringify(step)}]`,
  )
  return text.join('').replace(/^\./, '') || 'the document'
}

/** A count with its noun, which is given in the singular: `1 fault`, `2 faults`. */
export function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`
}
