/** The limits of a definition (DECISIONS section 12). */
export const DEFINITION_LIMITS = {
  /** The depth of nested objects and lists. The definition itself has depth 1. */
  nestingLevels: 128,
  /** The number of objects, lists, strings, numbers, booleans and nulls. */
  values: 1_000_000,
  operations: 5000,
  /** The parameters of an operation, including those of its path item. Also the limit for the placeholders of a path. */
  parametersPerOperation: 500,
  /** The references in one chain. */
  referenceHops: 64,
  /** The characters of a key, a reference or an address. */
  keyCharacters: 8192,
  /** The faults and the warnings that a result lists. If there are more, the last message states how many are omitted. */
  faults: 100,
  warnings: 1000,
} as const

/** Faults. A definition with a fault is refused. */
export const FAULTS = {
  missing: 'Field required',
  dict_type: 'Input should be a valid dictionary',
  list_type: 'Input should be a valid list',
  string_type: 'Input should be a valid string',
  finite_number: 'Input should be a finite number',
  openapi_version_unsupported: '"openapi" must be a version of OpenAPI 3, such as "3.1.0"',
  'openapi_version_unsupported.swagger':
    'Swagger {version} is not supported: to convert Swagger 2.0, validate it with complete=true (agentctl validate --complete)',
  servers_missing: 'the definition names no server: add "servers": [{"url": "https://..."}]',
  server_url_missing: 'the server has no url: add "url": "https://..."',
  'server_url_invalid.scheme': 'the url must be relative or begin with "https://" or "http://"',
  'server_url_invalid.characters': 'remove or percent-encode {character} in the url',
  'server_url_invalid.url': 'the url is not valid: write an address such as https://api.example.com',
  'server_url_invalid.user': 'the url contains a user name or password: put secrets into custom headers',
  'server_url_invalid.query': 'the url must not have a query or a fragment, because paths are appended to it',
  'server_url_invalid.secret': 'the address seems to contain a secret: put secrets into custom headers',
  'server_url_invalid.metadata': 'calls to link-local and cloud metadata addresses are not allowed',
  'server_url_invalid.host': 'this path could lead to another host: begin it with one "/" and use no backslashes',
  'server_url_invalid.length': 'the url has more than {count} characters with the values of its variables',
  'server_url_invalid.many': 'the variables of the url make more than {count} urls: list fewer values in "enum"',
  operations_missing:
    'no get, post, put, patch or delete operation can become a function: validate with report=full to see the reasons',
  method_unsupported: 'a path cannot have the key {key}: correct the key, remove it or begin it with "x-"',
  operation_id_missing: 'the operation needs an operationId, from which the function gets its name',
  operation_id_duplicate: 'the operationId {id} is already used: every method of every path needs its own operationId',
  summary_missing: 'the operation needs a summary or a description that tells the model when to call the function',
  path_template_invalid: 'each pair of braces in the path must enclose the name of a parameter',
  path_parameter_undeclared:
    'the placeholder {name} of the path is not declared: add {"name": {name}, "in": "path", "required": true, "schema": {"type": "string"}} to "parameters"',
  ref_unresolved: 'the target of the reference {ref} does not exist in this document',
  'ref_unresolved.length': 'the reference has more than {count} characters',
  'ref_unresolved.name': 'the reference {ref} is not supported: write a "$ref" that begins with "#/"',
  ref_external: 'the reference {ref} is external, which is not supported: copy its target into this document',
  ref_target_type: 'the target of the reference {ref} is not a {part}',
  ref_cycle: 'the reference {ref} leads into a circle of references',
  'ref_cycle.length': 'the reference {ref} leads through more than {count} references',
  string_nul: 'the character NUL (U+0000) is not allowed',
  string_unicode: 'the text is not valid Unicode: it contains half of a surrogate pair',
  string_too_long: 'the key has more than {count} characters',
  key_forbidden: 'the key {key} is not allowed',
  definition_too_deep: 'the definition nests deeper than {count} levels',
  definition_too_large: 'the definition contains more than {count} values: split it',
  too_many_operations: 'the definition has more than {count} operations: split it',
  too_many_parameters: 'more than {count} parameters apply to one operation',
  'too_many_parameters.path': 'the path has more than {count} placeholders',
  functions_too_large: 'the functions have more than {count} characters together: split the definition',
} as const

/** Warnings. A definition with warnings is accepted. Most warnings report a part of the definition that is ignored. */
export const WARNINGS = {
  'operation_passed_over.body':
    'the operation cannot become a function: its body is neither JSON nor application/x-www-form-urlencoded',
  'operation_passed_over.form': 'the operation cannot become a function: the schema of its form is not an object',
  'operation_passed_over.field':
    'the operation cannot become a function: the form field {name} needs the encoding {"contentType": "application/json"}',
  'operation_passed_over.style': 'the operation cannot become a function: the parameter {name} has an unknown style',
  method_passed_over: '{key} operations do not become functions',
  key_unknown: 'the {part} has the unknown key {key}, which is ignored',
  value_ignored: 'the value at {key} is ignored: it must be {form}',
  schema_missing: 'the media type has no schema, so the model can send any value',
  'parameter_ignored.location':
    'the parameter {name} is not sent: "in" must be query, querystring, header, path or cookie',
  'parameter_ignored.twice': 'this list contains the parameter {name} more than once, and only the first is used',
  'parameter_ignored.unused': 'the parameter {name} is not sent: the path has no placeholder for it',
  body_ignored: 'the body is not sent: OpenAPI 3.0 defines no body for {method}',
  'body_ignored.optional': 'calls omit the optional body of {method}, because it is neither JSON nor a supported form',
  'discriminator_unresolved.property': 'the discriminator has no "propertyName", so models cannot tell schemas apart',
  'discriminator_unresolved.mapping': 'the discriminator maps {value} to a schema that the model cannot choose',
  'discriminator_unresolved.subtypes':
    'no schema extends this schema with "allOf", so the model gets only the properties of this schema',
  'discriminator_unresolved.value': 'the value of {property} is not fixed for {part}, so the model chooses the value',
  server_ignored: 'calls go only to the first server of the definition, so other servers are ignored',
  'address_incomplete.relative': 'the url is relative, but calls need an absolute url such as https://api.example.com',
  'address_incomplete.variable': 'the variable {name} of the url has no "default", so calls have no complete address',
  'address_incomplete.fragment': 'the part of the path after "#" is not sent',
  'address_incomplete.key': 'the API key {name} is not sent: declare it as a query parameter',
} as const

export type FaultRule = keyof typeof FAULTS
export type WarningRule = keyof typeof WARNINGS

/** Returns the type of a rule, for example `ref_unresolved` for `ref_unresolved.name`. */
export function typeOf(rule: string): string {
  return rule.replace(/\..*/, '')
}
