import type { Fault } from '../errors.js'

/** The exit statuses of `agentctl`. Those from 64 upwards are defined in sysexits.h. */
export const EXIT = {
  ok: 0,
  /** The command was refused or failed. The message states the reason. */
  error: 1,
  /** With `--plan`, the command would change something. */
  differs: 2,
  /** A check completed and found faults. */
  findings: 3,
  usage: 64,
  /** The database is unreachable or read-only. */
  unavailable: 69,
  /** The change may have been stored. The operator must check before repeating the command. */
  doubt: 75,
  configuration: 78,
} as const

/** The command cannot be carried out. The message gives the operator the reason. */
export class Refusal extends Error {}

/** A document is invalid. `faults` lists all faults of the first check that failed. */
export class InvalidDocument extends Refusal {
  constructor(readonly faults: Fault[]) {
    super(`the document has ${counted(faults.length, 'fault')}`)
  }
}

/** Formats a path in a document, for example `agents[3].tools[0]`. */
export function placeText(loc: readonly (string | number)[]): string {
  const text = loc.map(step =>
    typeof step === 'number' ? `[${step}]` : /^[\w-]+$/.test(step) ? `.${step}` : `[${JSON.stringify(step)}]`,
  )
  return text.join('').replace(/^\./, '') || 'the document'
}

/** Formats a number with its noun, for example `1 fault` or `2 faults`. */
export function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`
}
