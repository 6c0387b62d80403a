import { createRequire } from 'node:module'
import type { FunctionView } from '../../src/definition/index.js'

// Ajv is CommonJS; this project's module settings do not find its types.
const { default: Ajv } = createRequire(import.meta.url)('ajv/dist/2020.js') as {
  default: new (options: object) => { compile(schema: object): (value: unknown) => boolean }
}

/**
 * Compiles an arguments schema with Ajv's defaults, without formats and unknown keywords. A pattern that is valid only without the Unicode
 * flag is compiled without it.
 */
export function compile({ parameters }: Pick<FunctionView, 'parameters'>): (value: unknown) => boolean {
  const options = { strict: false, validateFormats: false, logger: false }
  try {
    return new Ajv(options).compile(parameters)
  } catch {
    return new Ajv({ ...options, unicodeRegExp: false }).compile(parameters)
  }
}
