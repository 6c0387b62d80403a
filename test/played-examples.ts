/** A request to the demo organisation, whose answer is an example of the document. */
export interface Example {
  file: string
  about: string
  method: 'GET' | 'PATCH' | 'PUT' | 'POST'
  path: string
  headers?: Record<string, string>
  /** A GET has none. */
  body?: unknown
  /** Who calls; an administrator unless another is named. */
  as?: 'admin' | 'reader' | 'careful' | 'bound' | 'nobody'
  /** Where; the demo organisation unless another is named. */
  at?: 'demo' | 'built_in' | 'limited' | 'small' | 'unreachable' | 'broken'
}

export const DEFINITION = {
  openapi: '3.1.0',
  info: { title: 'Maps', version: '1' },
  servers: [{ url: 'https://maps.example.com' }],
  paths: {
    '/route': {
      get: {
        operationId: 'get_route',
        summary: 'The way between two places',
        parameters: [{ name: 'to', in: 'query', required: true, schema: { type: 'string' } }],
        responses: { '200': { description: 'The way.' } },
      },
    },
  },
}

const WHOLE_UPDATE = {
  name: 'Trip planner',
  description: 'Plans trips, trains first.',
  document_set_ids: [1],
  num_chunks: 10,
  is_public: true,
  recency_bias: 'auto',
  llm_filter_extraction: true,
  llm_relevance_filter: false,
  tool_ids: [1],
  system_prompt: 'You plan trips.',
  task_prompt: '',
  datetime_aware: true,
  label_ids: [1],
}

/** In the order in which they are played, each on what the one before left. */
export const EXAMPLES: Example[] = [
  { file: 'read_me', about: 'Who calls, and what the token allows.', method: 'GET', path: '/me' },
  { file: 'list_personas', about: 'The first agents that the caller sees.', method: 'GET', path: '/persona?limit=2' },
  { file: 'list_tools', about: 'The tools of a name.', method: 'GET', path: '/tool?name=weather' },
  {
    file: 'read_persona-update',
    about: 'The body of an update that changes nothing.',
    method: 'GET',
    path: '/persona/1?view=update',
  },
  {
    file: 'read_tool-update',
    about: 'The body of an update that changes nothing.',
    method: 'GET',
    path: '/tool/1?view=update',
  },
  {
    file: 'update_persona-whole',
    about: 'A whole update: optional fields that are absent stay.',
    method: 'PATCH',
    path: '/persona/1',
    body: WHOLE_UPDATE,
  },
  {
    file: 'update_persona',
    about: 'One field and nothing else.',
    method: 'PATCH',
    path: '/persona/1?update_mask=name',
    body: { name: 'Travel desk' },
  },
  {
    file: 'update_persona-minimal',
    about: 'One field, without the record in the answer.',
    method: 'PATCH',
    path: '/persona/1?update_mask=icon_name',
    headers: { prefer: 'return=minimal' },
    body: { icon_name: 'map' },
  },
  {
    file: 'update_persona-dry-run',
    about: 'The read: a dry run with the empty mask.',
    method: 'PATCH',
    path: '/persona/1?update_mask=&dry_run=true',
    body: {},
  },
  {
    file: 'update_persona-stale',
    about: 'A stale precondition.',
    method: 'PATCH',
    path: '/persona/1?update_mask=name',
    headers: { 'if-match': '"persona-1-1"' },
    body: { name: 'Help desk' },
  },
  {
    file: 'update_persona-invalid',
    about: 'Every fault at once.',
    method: 'PATCH',
    path: '/persona/1?update_mask=name,tool_ids',
    body: { name: 7, tool_ids: [1, 'x'] },
  },
  {
    file: 'update_custom_tool',
    about: 'A new definition and a secret header, answered as a mask.',
    method: 'PUT',
    path: '/admin/tool/custom/1',
    body: { definition: DEFINITION, custom_headers: [{ key: 'X-Api-Key', value: 'a new value' }] },
  },
  {
    file: 'validate_tool',
    about: 'The methods that a definition gives a model.',
    method: 'POST',
    path: '/admin/tool/custom/validate',
    body: { definition: DEFINITION },
  },
  {
    file: 'validate_tool-impact',
    about: 'What storing a definition would break.',
    method: 'POST',
    path: '/admin/tool/custom/validate?tool_id=1',
    body: {
      definition: {
        ...DEFINITION,
        paths: { '/route': { get: { ...DEFINITION.paths['/route'].get, operationId: 'find_route' } } },
      },
    },
  },
  {
    file: 'update_custom_tool-read',
    about: 'The read: a dry run that names no field.',
    method: 'PUT',
    path: '/admin/tool/custom/1?dry_run=true',
    body: {},
  },
  {
    file: 'read_persona',
    about: 'The agent as it is.',
    method: 'GET',
    path: '/persona/1',
  },
  {
    file: 'read_persona-not_found',
    about: 'No such agent, or none that the caller may see.',
    method: 'GET',
    path: '/persona/4711',
  },
  {
    file: 'read_persona-unchanged',
    about: 'The caller has the agent as it is.',
    method: 'GET',
    path: '/persona/1',
    headers: { 'if-none-match': '*' },
  },
  {
    file: 'read_persona-invalid',
    about: 'A name where an id stands.',
    method: 'GET',
    path: '/persona/travel',
  },
  {
    file: 'read_tool',
    about: 'The tool as it is, its header values as masks.',
    method: 'GET',
    path: '/tool/1',
  },
  {
    file: 'read_tool-not_found',
    about: 'No such tool.',
    method: 'GET',
    path: '/tool/4711',
  },
  {
    file: 'read_tool-unchanged',
    about: 'The caller has the tool as it is.',
    method: 'GET',
    path: '/tool/1',
    headers: { 'if-none-match': '*' },
  },
  {
    file: 'read_tool-invalid',
    about: 'A name where an id stands.',
    method: 'GET',
    path: '/tool/weather',
  },
  {
    file: 'any_operation-bound',
    about: 'The token is bound to another agent.',
    method: 'GET',
    path: '/persona/1',
    as: 'bound',
  },
  {
    file: 'update_custom_tool-stale',
    about: 'A stale precondition.',
    method: 'PUT',
    path: '/admin/tool/custom/1',
    headers: { 'if-match': '"tool-1-1"' },
    body: { description: 'Weather by town or region.' },
  },
  {
    file: 'update_custom_tool-invalid',
    about: 'Every fault at once.',
    method: 'PUT',
    path: '/admin/tool/custom/1',
    body: { name: '', custom_headers: [{ key: 'X-Api-Key' }] },
  },
  {
    file: 'validate_tool-full',
    about: 'With advice that keeps nothing from being stored.',
    method: 'POST',
    path: '/admin/tool/custom/validate?report=full',
    body: { definition: DEFINITION },
  },
  {
    file: 'validate_tool-invalid',
    about: 'A definition that cannot become tools.',
    method: 'POST',
    path: '/admin/tool/custom/validate',
    body: { definition: { openapi: '3.1.0', info: { title: 'Maps' }, paths: { '/route': { get: {} } } } },
  },
  {
    file: 'update_persona-incomplete',
    about: 'Single fields without a mask.',
    method: 'PATCH',
    path: '/persona/1',
    body: { name: 'Travel desk' },
  },
  {
    file: 'update_persona-built_in',
    about: 'An agent that comes with the product.',
    method: 'PATCH',
    path: '/persona/3?update_mask=name',
    body: { name: 'Travel desk' },
    at: 'built_in',
  },
  {
    file: 'update_custom_tool-built_in',
    about: 'A tool that comes with the product.',
    method: 'PUT',
    path: '/admin/tool/custom/2',
    body: { description: 'Weather by town or region.' },
    at: 'built_in',
  },
  {
    file: 'update_persona-forbidden',
    about: 'An agent that the caller may see and not edit.',
    method: 'PATCH',
    path: '/persona/1?update_mask=name',
    body: { name: 'Travel desk' },
    as: 'reader',
  },
  {
    file: 'update_custom_tool-forbidden',
    about: 'A permission is missing.',
    method: 'PUT',
    path: '/admin/tool/custom/1',
    body: { description: 'Weather by town or region.' },
    as: 'reader',
  },
  {
    file: 'validate_tool-forbidden',
    about: 'A permission is missing.',
    method: 'POST',
    path: '/admin/tool/custom/validate',
    body: { definition: DEFINITION },
    as: 'reader',
  },
  {
    file: 'update_persona-not_found',
    about: 'No such agent, or none that the caller may see.',
    method: 'PATCH',
    path: '/persona/4711?update_mask=name',
    body: { name: 'Travel desk' },
  },
  {
    file: 'update_custom_tool-not_found',
    about: 'No such tool.',
    method: 'PUT',
    path: '/admin/tool/custom/4711',
    body: { description: 'Weather by town or region.' },
  },
  {
    file: 'validate_tool-not_found',
    about: 'No such tool to compare with.',
    method: 'POST',
    path: '/admin/tool/custom/validate?tool_id=4711',
    body: { definition: DEFINITION },
  },
  {
    file: 'update_persona-merge',
    about: 'A stale precondition that may merge: others changed other fields.',
    method: 'PATCH',
    path: '/persona/1?update_mask=description,tool_ids',
    headers: { 'if-match': '"persona-1-2"', prefer: 'merge=fields', 'idempotency-key': '"8f9c7b1e"' },
    body: { description: 'Plans trips, trains only.', tool_ids: [] },
  },
  {
    file: 'update_persona-merge_conflict',
    about: 'A merge that is refused: both sides changed the description.',
    method: 'PATCH',
    path: '/persona/1?update_mask=description',
    headers: { 'if-match': '"persona-1-2"', prefer: 'merge=fields' },
    body: { description: 'Plans trips of every kind.' },
  },
  {
    file: 'update_persona-repeated',
    about: 'The same request with the same key: its first answer, without a second effect.',
    method: 'PATCH',
    path: '/persona/1?update_mask=description,tool_ids',
    headers: { 'if-match': '"persona-1-2"', prefer: 'merge=fields', 'idempotency-key': '"8f9c7b1e"' },
    body: { description: 'Plans trips, trains only.', tool_ids: [] },
  },
  {
    file: 'update_persona-key_reused',
    about: 'Another request with the key of an earlier one.',
    method: 'PATCH',
    path: '/persona/1?update_mask=name',
    headers: { 'idempotency-key': '"8f9c7b1e"' },
    body: { name: 'Help desk' },
  },
  {
    file: 'read_persona-version',
    about: 'An earlier version, with its tools as they were then.',
    method: 'GET',
    path: '/persona/1?version=2',
  },
  {
    file: 'read_persona-no_version',
    about: 'A version that the agent does not have.',
    method: 'GET',
    path: '/persona/1?version=99',
  },
  {
    file: 'any_operation-unreadable',
    about: 'A body that is not as long as its header says.',
    method: 'POST',
    path: '/admin/tool/custom/validate',
    headers: { 'content-length': '3' },
    body: { definition: DEFINITION },
  },
  {
    file: 'update_persona-demanded',
    about: 'This token demands If-Match.',
    method: 'PATCH',
    path: '/persona/1?update_mask=name',
    body: { name: 'Travel desk' },
    as: 'careful',
  },
  {
    file: 'update_custom_tool-demanded',
    about: 'This token demands If-Match.',
    method: 'PUT',
    path: '/admin/tool/custom/1',
    body: { description: 'Weather by town or region.' },
    as: 'careful',
  },
  {
    file: 'any_operation-no_token',
    about: 'A request without a token.',
    method: 'POST',
    path: '/admin/tool/custom/validate',
    body: { definition: DEFINITION },
    as: 'nobody',
  },
  {
    file: 'any_operation-too_large',
    about: 'A body beyond the limit of the operation.',
    method: 'PATCH',
    path: '/persona/1?update_mask=task_prompt',
    body: { task_prompt: 'x'.repeat(4 * 1024 * 1024) },
  },
  {
    file: 'any_operation-media_type',
    about: 'A body that is not JSON.',
    method: 'PATCH',
    path: '/persona/1?update_mask=name',
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    body: { name: 'Travel desk' },
  },
  {
    file: 'any_operation-snapshot_too_large',
    about: 'An answer beyond the limit of the service.',
    method: 'GET',
    path: '/persona/1',
    at: 'small',
  },
  {
    file: 'any_operation-rate_limited',
    about: 'More requests than the limit of the token allows.',
    method: 'PATCH',
    path: '/persona/1?update_mask=&dry_run=true',
    body: {},
    at: 'limited',
  },
  {
    file: 'any_operation-unavailable',
    about: 'The database does not answer.',
    method: 'PATCH',
    path: '/persona/1?update_mask=name',
    body: { name: 'Travel desk' },
    at: 'unreachable',
  },
  {
    file: 'any_operation-fault',
    about: 'A fault of the service; the log has the reason under the request id.',
    method: 'PATCH',
    path: '/persona/1?update_mask=name',
    body: { name: 'Travel desk' },
    at: 'broken',
  },
]

/** Longer bodies are left out of the files. In characters. */
export const SHOWN_BODY_MAX_LENGTH = 20_000

/** Whether whoever sends the request, in this order, to a new demo organisation as its administrator has the same answer. */
export function isReproducible({ as = 'admin', at = 'demo', headers = {}, body }: Example): boolean {
  const ownToken = as === 'admin' || as === 'nobody'
  const asItIs = !('content-length' in headers) && JSON.stringify(body ?? null).length <= SHOWN_BODY_MAX_LENGTH
  return ownToken && at === 'demo' && asItIs
}
