import { createRequire } from 'node:module'
import type { FunctionView } from '../../src/definition/index.js'

// The cast is needed because TypeScript does not find the types of this CommonJS package.
const { default: Ajv } = createRequire(import.meta.url)('ajv/dist/2020.js') as {
  default: new (options: object) => { compile(schema: object): (value: unknown) => boolean }
}

/**
 * Compiles the arguments schema of a function with Ajv. Ignores formats and unknown keywords. Compiles patterns without the Unicode flag if the flag
 * makes one invalid.
 */
export function compile({ parameters }: Pick<FunctionView, 'parameters'>): (value: unknown) => boolean {
  const options = { strict: false, validateFormats: false, logger: false }
  try {
    return new Ajv(options).compile(parameters)
  } catch {
    return new Ajv({ ...options, unicodeRegExp: false }).compile(parameters)
  }
}
