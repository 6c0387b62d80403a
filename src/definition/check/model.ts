/**
 * The parts of an OpenAPI document and the part in each of their fields; `*` means every member of a map or list. Data and schemas are not
 * listed.
 */
const MODEL = modelOf(`
  document: info servers paths webhooks=paths components tags security
  info:
  servers: *=server
  server: variables
  variables: *=variable
  variable: default="default" enum="enum"
  paths: *=path-item
  path-item: servers parameters=list-of-parameters additionalOperations=operations get=operation put=operation
  path-item: post=operation delete=operation options=operation head=operation patch=operation trace=operation query=operation
  operations: *=operation
  operation: parameters=list-of-parameters requestBody=request-body responses callbacks servers security
  list-of-parameters: *=parameter
  parameter: schema content example=data examples
  header: schema content example=data examples
  request-body: content
  content: *=media-type
  media-type: schema itemSchema=schema example=data examples encoding=encodings prefixEncoding=encodings itemEncoding=encoding
  encodings: *=encoding
  encoding: headers encoding=encodings prefixEncoding=encodings itemEncoding=encoding
  headers: *=header
  responses: *=response
  response: headers content links
  links: *=link
  link: parameters=data requestBody=data server
  callbacks: *=callback
  callback: *=path-item
  examples: *=example
  example: value=data dataValue=data
  components: schemas responses parameters=list-of-parameters examples requestBodies=request-bodies headers
  components: securitySchemes=security-schemes links callbacks pathItems=paths mediaTypes=content
  schemas: *=schema
  schema: properties=schemas patternProperties=schemas items=schema additionalProperties=schema not=schema
  schema: allOf=list-of-schemas anyOf=list-of-schemas oneOf=list-of-schemas
  list-of-schemas: *=schema
  request-bodies: *=request-body
  security-schemes: *=security-scheme
  security-scheme: flows
  flows: *=flow
  flow:
  tags: *=tag
  tag:
  security: *=requirement
`)

/** Fields, in several parts, that hold only texts, flags or small objects. */
const PLAIN_FIELDS = new Set(
  `openapi title version termsOfService contact license operationId summary description deprecated externalDocs tags
  url name in required style explode`.split(/\s+/),
)

function modelOf(text: string): Map<string, Map<string, string>> {
  const model = new Map<string, Map<string, string>>()
  for (const line of text.trim().split('\n')) {
    const [part = '', ...fields] = line.trim().split(/:? +|:$/)
    const name = part.replaceAll('-', ' ')
    const known = model.get(name) ?? new Map<string, string>()
    for (const field of fields.filter(each => each !== '')) {
      const [key = '', held = key] = field.split('=')
      known.set(key, held.replaceAll('-', ' '))
    }
    model.set(name, known)
  }
  return model
}

/** Returns the part that `key` of a part holds; undefined for a key that OpenAPI does not define. */
export function partUnder(part: string, key: string): string | undefined {
  const fields = MODEL.get(part)
  const known = fields?.get(key) ?? (part === 'path item' ? fields?.get(key.toLowerCase()) : fields?.get('*'))
  return known ?? (fields !== undefined && PLAIN_FIELDS.has(key) ? `"${key}"` : undefined)
}

/** Returns the part at a path; undefined if the path does not determine it, as deep inside anything but a component schema. */
export function partAt(steps: readonly string[]): string | undefined {
  const [section, kind] = steps
  if (steps.length > 3) return section === 'components' && kind === 'schemas' ? 'schema' : undefined
  return steps.reduce<string | undefined>((part, step) => part && partUnder(part, step), 'document')
}
