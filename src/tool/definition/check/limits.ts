/** How much a definition may ask of the check (DECISIONS section 12). Every limit is a count; the unit is the name. */
export const DEFINITION_LIMITS = {
  /** Objects and lists inside each other, the definition itself being the first level. */
  nestingLevels: 128,
  /** All values of the document: objects, lists, strings, numbers, booleans and nulls. */
  values: 1_000_000,
  operations: 5000,
  /** Parameters of one operation, those of its path included; also placeholders of one path. */
  parametersPerOperation: 500,
  /** References that may follow each other before something that is not one. */
  referenceHops: 64,
  /** Characters of one key, and of one reference. */
  keyCharacters: 8192,
  /** Characters of `$id`, `$self`, `$anchor` and `$dynamicAnchor`: every relative reference inside is resolved against it. */
  identifierCharacters: 512,
  /** Faults and warnings that are returned; the last one says how many more there are. */
  faults: 100,
  warnings: 1000,
  /** Bytes of all returned faults together, as JSON; the envelope of the answer has the rest of its 64 KiB. */
  faultBytes: 63 * 1024,
} as const
