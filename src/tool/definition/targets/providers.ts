/** Those whose rules for functions are known here. */
export const TARGETS = ['openai', 'anthropic', 'gemini', 'mcp'] as const

export type Target = (typeof TARGETS)[number]

/** What a provider publishes, or answers, about the functions that it takes. Data, so that a change of theirs is a change of a line. */
export interface ProviderRules {
  /** When the newest of the sources was read. */
  readonly asOf: string
  readonly sources: readonly string[]
  /** What a function may be called. */
  readonly functionName: RegExp
  /** What an argument may be called; absent where any name is taken. */
  readonly argumentName?: RegExp
  /** Bytes of a function's description. */
  readonly descriptionBytes?: number
  /** Functions in one request. */
  readonly functions?: number
  /** True if a request with two functions of one name is refused. */
  readonly refusesSameNames: boolean
  /** Keywords beyond which a schema loses something: only these are read. Absent where all are. */
  readonly keywords?: ReadonlySet<string>
  /** Formats that mean something to the provider; others are ignored or refused. */
  readonly formats?: ReadonlySet<string>
  /** What the mode takes in which every argument is certain to match its schema; absent where there is none. */
  readonly strict?: StrictRules
}

export interface StrictRules {
  readonly refusedKeywords: ReadonlySet<string>
  /** Properties of all objects of one function together. */
  readonly properties?: number
  /** Objects inside each other. */
  readonly nestingLevels?: number
  /** Values of all enumerations together. */
  readonly enumValues?: number
  readonly takesRecursion: boolean
  /** True if every object must require all of its properties. */
  readonly requiresAll: boolean
  /** True if every schema must say a type. */
  readonly requiresTypes: boolean
  /** The largest `minItems`. */
  readonly minItems?: number
  /** What all strict functions of a request may have together: themselves, properties that are not required, and values of several types. */
  readonly functions?: number
  readonly optional?: number
  readonly unions?: number
}

const STRICT_REFUSED = [
  'not',
  'dependentRequired',
  'dependentSchemas',
  'if',
  'then',
  'else',
  'patternProperties',
  'propertyNames',
  'minProperties',
  'maxProperties',
  'unevaluatedProperties',
  'unevaluatedItems',
  'contains',
  'minContains',
  'maxContains',
  'uniqueItems',
  'minLength',
  'maxLength',
]

export const PROVIDERS: Readonly<Record<Target, ProviderRules>> = {
  openai: {
    asOf: '2026-11-22',
    sources: [
      'https://platform.openai.com/docs/api-reference/chat/create',
      'https://platform.openai.com/docs/guides/structured-outputs#supported-schemas',
      'https://github.com/getsentry/sentry-mcp/issues/106',
      'https://github.com/PrefectHQ/fastmcp/issues/2464',
      'https://github.com/mastra-ai/mastra/issues/23321',
    ],
    functionName: /^[A-Za-z0-9_-]{1,64}$/,
    descriptionBytes: 1024,
    functions: 128,
    refusesSameNames: false,
    strict: {
      refusedKeywords: new Set(['allOf', 'oneOf', ...STRICT_REFUSED]),
      properties: 5000,
      nestingLevels: 10,
      enumValues: 1000,
      takesRecursion: true,
      requiresAll: true,
      requiresTypes: true,
    },
  },
  anthropic: {
    asOf: '2026-11-22',
    sources: [
      'https://docs.claude.com/en/docs/agents-and-tools/tool-use/implement-tool-use',
      'https://platform.claude.com/docs/en/build-with-claude/structured-outputs',
      'https://github.com/n8n-io/n8n/issues/30590',
      'https://github.com/ComposioHQ/composio/pull/3574',
      'https://github.com/anthropics/claude-code/issues/96152',
      'https://github.com/anthropics/claude-code/issues/10687',
    ],
    functionName: /^[A-Za-z0-9_-]{1,128}$/,
    argumentName: /^[A-Za-z0-9_.-]{1,64}$/,
    refusesSameNames: true,
    strict: {
      refusedKeywords: new Set([
        'minimum',
        'maximum',
        'exclusiveMinimum',
        'exclusiveMaximum',
        'multipleOf',
        'maxItems',
        'oneOf',
        ...STRICT_REFUSED,
      ]),
      takesRecursion: false,
      requiresAll: false,
      requiresTypes: false,
      minItems: 1,
      functions: 20,
      optional: 24,
      unions: 16,
    },
  },
  gemini: {
    asOf: '2026-11-22',
    sources: [
      'https://ai.google.dev/api/caching#FunctionDeclaration',
      'https://cloud.google.com/vertex-ai/generative-ai/docs/reference/java/latest/com.google.cloud.vertexai.api.FunctionDeclarationOrBuilder',
      'https://ai.google.dev/gemini-api/docs/structured-output#json-schema-support',
      'https://docs.cloud.google.com/gemini-enterprise-agent-platform/reference/mcp/tools_list/evaluate_instances',
      'https://github.com/googleapis/dotnet-genai/issues/189',
    ],
    functionName: /^[A-Za-z_][A-Za-z0-9_-]{0,63}$/,
    argumentName: /^[A-Za-z_][A-Za-z0-9_]{0,63}$/,
    functions: 512,
    refusesSameNames: true,
    // Of `parametersJsonSchema`; the older `parameters` takes still less.
    keywords: new Set([
      '$ref',
      '$defs',
      'type',
      'format',
      'title',
      'description',
      'enum',
      'items',
      'prefixItems',
      'minItems',
      'maxItems',
      'minimum',
      'maximum',
      'anyOf',
      'oneOf',
      'properties',
      'additionalProperties',
      'required',
    ]),
    formats: new Set(['date-time', 'date', 'time', 'enum', 'int32', 'int64', 'float', 'double']),
  },
  mcp: {
    asOf: '2026-11-21',
    sources: [
      'https://modelcontextprotocol.io/specification/2025-11-25/server/tools#tool-names',
      'https://github.com/modelcontextprotocol/modelcontextprotocol/pull/1603',
    ],
    functionName: /^[A-Za-z0-9_.-]{1,128}$/,
    // Names need only be unlike within a server.
    refusesSameNames: false,
  },
}

/** Beyond the first number a model's choice among functions gets worse, beyond the second clearly so. */
export const FUNCTIONS_WELL_CHOSEN = 30
export const FUNCTIONS_STILL_CHOSEN = 50
