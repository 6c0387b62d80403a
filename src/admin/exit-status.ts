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
  /** A setting is missing or wrong. */
  configuration: 78,
} as const
