import { type Findings, type Place, placeUnder, quote } from './findings.js'
import { isDangling, isObject, type References } from './references.js'

/** The parts of a document: the fields of an object, or what each member of a map or list is. */
const PARTS: Record<string, { fields?: Record<string, string>; each?: string }> = {
  document: {
    fields: {
      info: 'info',
      servers: 'servers',
      paths: 'paths',
      webhooks: 'paths',
      components: 'components',
      tags: 'tags',
      security: 'security',
    },
  },
  info: { fields: {} },
  servers: { each: 'server' },
  server: { fields: { variables: 'variables' } },
  variables: { each: 'variable' },
  variable: { fields: { default: '"default"', enum: '"enum"' } },
  paths: { each: 'path item' },
  'path item': {
    fields: {
      servers: 'servers',
      parameters: 'list of parameters',
      additionalOperations: 'operations',
      ...Object.fromEntries(
        ['get', 'put', 'post', 'delete', 'options', 'head', 'patch', 'trace', 'query'].map(each => [each, 'operation']),
      ),
    },
  },
  operations: { each: 'operation' },
  operation: {
    fields: {
      parameters: 'list of parameters',
      requestBody: 'request body',
      responses: 'responses',
      callbacks: 'callbacks',
      servers: 'servers',
      security: 'security',
    },
  },
  'list of parameters': { each: 'parameter' },
  parameter: { fields: { schema: 'schema', content: 'content', example: 'data', examples: 'examples' } },
  header: { fields: { schema: 'schema', content: 'content', example: 'data', examples: 'examples' } },
  'request body': { fields: { content: 'content' } },
  content: { each: 'media type' },
  'media type': {
    fields: {
      schema: 'schema',
      itemSchema: 'schema',
      example: 'data',
      examples: 'examples',
      encoding: 'encodings',
      prefixEncoding: 'encodings',
      itemEncoding: 'encoding',
    },
  },
  encodings: { each: 'encoding' },
  encoding: {
    fields: { headers: 'headers', encoding: 'encodings', prefixEncoding: 'encodings', itemEncoding: 'encoding' },
  },
  headers: { each: 'header' },
  responses: { each: 'response' },
  response: { fields: { headers: 'headers', content: 'content', links: 'links' } },
  links: { each: 'link' },
  link: { fields: { parameters: 'data', requestBody: 'data', server: 'server' } },
  callbacks: { each: 'callback' },
  callback: { each: 'path item' },
  examples: { each: 'example' },
  example: { fields: { value: 'data', dataValue: 'data' } },
  components: {
    fields: {
      schemas: 'schemas',
      responses: 'responses',
      parameters: 'list of parameters',
      examples: 'examples',
      requestBodies: 'request bodies',
      headers: 'headers',
      securitySchemes: 'security schemes',
      links: 'links',
      callbacks: 'callbacks',
      pathItems: 'paths',
      mediaTypes: 'content',
    },
  },
  schemas: { each: 'schema' },
  'request bodies': { each: 'request body' },
  'security schemes': { each: 'security scheme' },
  'security scheme': { fields: { flows: 'flows' } },
  flows: { each: 'flow' },
  flow: { fields: {} },
  tags: { each: 'tag' },
  tag: { fields: {} },
  security: { each: 'requirement' },
}

/** Fields of several parts that hold texts, flags or small objects without parts of their own. */
const PLAIN_FIELDS = new Set([
  'openapi',
  'title',
  'version',
  'termsOfService',
  'contact',
  'license',
  'operationId',
  'summary',
  'description',
  'deprecated',
  'externalDocs',
  'tags',
  'url',
  'name',
  'in',
  'required',
  'style',
  'explode',
])

const REFERABLE = new Set([
  'path item',
  'parameter',
  'request body',
  'response',
  'header',
  'schema',
  'example',
  'link',
  'callback',
  'security scheme',
])

/** True for an object that is a reference; where a map stands, a member named `$ref` is an object and no text. */
export function isReference(value: unknown): value is { $ref: string } {
  return isObject(value) && typeof value.$ref === 'string'
}

/** Finds references where OpenAPI allows none: nothing of such a part can be read, and nothing may be made up for it. */
export class MisplacedReferences {
  constructor(
    private readonly references: References,
    private readonly hasReferableMedia: boolean,
  ) {}

  /** True, and a fault, if this part is a reference where none may stand. */
  report(value: unknown, place: Place, part: string, findings: Findings): boolean {
    if (!isReference(value) || this.isReferable(part)) return false
    const target = this.references.find(value.$ref)
    const type = isDangling(target) && target.type === 'ref_external' ? 'ref_external' : 'ref_not_allowed'
    const msg = () =>
      `this ${part} is a reference (${quote(value.$ref)}), and OpenAPI allows none here: bundle the document first`
    findings.fault(type, msg, place, '$ref')
    return true
  }

  /** Looks through all parts of the document but its schemas, for those too that no rule reads. */
  walk(value: unknown, place: Place, part: string, findings: Findings): void {
    if (this.report(value, place, part, findings) || isReference(value)) return
    const isList = Array.isArray(value)
    if (!isList && !isObject(value)) return
    const { fields, each } = PARTS[part] ?? {}
    if (fields === undefined && each === undefined && !isList) return
    for (const key of isList ? value.keys() : Object.keys(value)) {
      const member = (value as Record<string | number, unknown>)[key]
      if (typeof member !== 'object' || member === null) continue
      if (typeof key === 'string' && key.startsWith('x-')) continue
      const name = each ?? (isList ? part : partOf(fields, String(key), part))
      if (name !== undefined && name !== 'data' && name !== 'schema')
        this.walk(member, placeUnder(place, key), name, findings)
    }
  }

  private isReferable(part: string): boolean {
    return REFERABLE.has(part) || (part === 'media type' && this.hasReferableMedia)
  }
}

/** What a field of this part holds, undefined for one that OpenAPI does not know. */
function partOf(fields: Record<string, string> | undefined, key: string, part: string): string | undefined {
  const known = part === 'path item' ? (fields?.[key] ?? fields?.[key.toLowerCase()]) : fields?.[key]
  return known ?? (PLAIN_FIELDS.has(key) ? `"${key}"` : undefined)
}
