import { createRequire } from 'node:module'
import type { FunctionView } from '../../src/tool/definition/index.js'

// Ajv is CommonJS without types that this project's module settings could find.
const { default: Ajv } = createRequire(import.meta.url)('ajv/dist/2020.js') as {
  default: new (options: object) => { compile(schema: object): (value: unknown) => boolean }
}

/**
 * Compiles the arguments of a function as Ajv does by default, except for formats and keywords of other vocabularies; a schema with a
 * pattern that is ECMAScript only without the Unicode flag is compiled so.
 */
export function compile({ parameters }: Pick<FunctionView, 'parameters'>): (value: unknown) => boolean {
  const options = { strict: false, validateFormats: false, logger: false }
  try {
    return new Ajv(options).compile(parameters)
  } catch {
    return new Ajv({ ...options, unicodeRegExp: false }).compile(parameters)
  }
}
