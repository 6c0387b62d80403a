/** Limits of the check (DECISIONS section 12). Every limit is a count; its name is the unit. */
export const DEFINITION_LIMITS = {
  /** Depth of nested objects and lists; the definition itself is level 1. */
  nestingLevels: 128,
  /** All values of the document: objects, lists, strings, numbers, booleans and nulls. */
  values: 1_000_000,
  operations: 5000,
  /** Parameters of one operation, including those of its path; also the placeholders of one path. */
  parametersPerOperation: 500,
  /** References in a chain. */
  referenceHops: 64,
  /** Characters of one key, of one reference and of one address. */
  keyCharacters: 8192,
  /** Faults, and warnings, in one answer. The last one gives the number left out. */
  faults: 100,
  warnings: 1000,
} as const
