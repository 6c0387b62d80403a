import type { Fault } from '../errors.js'

/** How the programs of this package end. From 64 on the numbers are those of sysexits.h. */
export const EXIT = {
  ok: 0,
  /** Refused or failed; the message says why. */
  error: 1,
  /** `--plan`: something would change. */
  differs: 2,
  /** A check ran to its end and found faults. */
  findings: 3,
  /** The command line is wrong. */
  usage: 64,
  /** The database cannot be reached, or takes no changes now. */
  unavailable: 69,
  /** The change may be stored, or is and its effect is not seen yet: look, then try again. */
  doubt: 75,
  /** A setting is missing or wrong. */
  configuration: 78,
} as const

/** What was asked for cannot be done, for a reason that the sentence tells the operator. */
export class Refusal extends Error {}

/** A change is stored, and what should follow it is not known to have come. The sentence says what to do. */
export class StoredInDoubt extends Error {}

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
