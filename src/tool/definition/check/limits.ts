/** How much a definition may ask of the check (DECISIONS section 12). Every limit is a count; the unit is the name. */
export interface DefinitionLimits {
  /** Objects and lists inside each other, the definition itself being the first level. */
  nestingLevels: number
  /** All values of the document: objects, lists, strings, numbers, booleans and nulls. */
  values: number
  /** Operations that become tools. */
  operations: number
  /** Parameters of one operation, those of its path included; also placeholders of one path. */
  parametersPerOperation: number
  /** References that may follow each other before something that is not one. */
  referenceHops: number
  /** Characters of one key, and of one reference. */
  keyCharacters: number
  /** Characters of `$id`, `$self`, `$anchor` and `$dynamicAnchor`: every relative reference inside is resolved against it. */
  identifierCharacters: number
  /** Faults that are returned; the last one says how many more there are. */
  faults: number
  /** Warnings that are returned; the last one says how many more there are. */
  warnings: number
  /** Size in bytes of all returned faults together, as JSON; the envelope of the answer has the rest of its 64 KiB. */
  faultBytes: number
}

export const DEFAULT_DEFINITION_LIMITS: Readonly<DefinitionLimits> = Object.freeze({
  nestingLevels: 128,
  values: 1_000_000,
  operations: 5000,
  parametersPerOperation: 500,
  referenceHops: 64,
  keyCharacters: 8192,
  identifierCharacters: 512,
  faults: 100,
  warnings: 1000,
  faultBytes: 63 * 1024,
})
