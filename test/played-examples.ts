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

type More = Omit<Example, 'file' | 'about' | 'method' | 'path'>

const calling =
  (method: Example['method']) =>
  (file: string, path: string, about: string, more: More = {}): Example => ({ file, about, method, path, ...more })

const get = calling('GET')
const patch = calling('PATCH')
const put = calling('PUT')
const post = calling('POST')
const RENAMED = { body: { name: 'Travel desk' } }
const DESCRIBED = { body: { description: 'Weather by town or region.' } }
const DEFINED = { body: { definition: DEFINITION } }

/** In the order in which they are played, each on what the one before left. */
export const EXAMPLES: Example[] = [
  get('read_me', '/me', 'Who calls, and what the token allows.'),
  get('list_personas', '/persona?limit=2', 'The first agents that the caller sees.'),
  get('list_tools', '/tool?name=weather', 'The tools of a name.'),
  get('read_persona-update', '/persona/1?view=update', 'The body of an update that changes nothing.'),
  get('read_tool-update', '/tool/1?view=update', 'The body of an update that changes nothing.'),
  patch('update_persona-whole', '/persona/1', 'A whole update: optional fields that are absent stay.', {
    body: WHOLE_UPDATE,
  }),
  patch('update_persona', '/persona/1?update_mask=name', 'One field and nothing else.', RENAMED),
  patch('update_persona-minimal', '/persona/1?update_mask=icon_name', 'One field, without the record in the answer.', {
    headers: { prefer: 'return=minimal' },
    body: { icon_name: 'map' },
  }),
  patch('update_persona-dry-run', '/persona/1?update_mask=&dry_run=true', 'The read: a dry run with the empty mask.', {
    body: {},
  }),
  patch('update_persona-stale', '/persona/1?update_mask=name', 'A stale precondition.', {
    headers: { 'if-match': '"persona-1-1"' },
    body: { name: 'Help desk' },
  }),
  patch('update_persona-invalid', '/persona/1?update_mask=name,tool_ids', 'Every fault at once.', {
    body: { name: 7, tool_ids: [1, 'x'] },
  }),
  put('update_custom_tool', '/admin/tool/custom/1', 'A new definition and a secret header, answered as a mask.', {
    body: { definition: DEFINITION, custom_headers: [{ key: 'X-Api-Key', value: 'a new value' }] },
  }),
  post('validate_tool', '/admin/tool/custom/validate', 'The methods that a definition gives a model.', DEFINED),
  post('validate_tool-impact', '/admin/tool/custom/validate?tool_id=1', 'What storing a definition would break.', {
    body: {
      definition: {
        ...DEFINITION,
        paths: { '/route': { get: { ...DEFINITION.paths['/route'].get, operationId: 'find_route' } } },
      },
    },
  }),
  put('update_custom_tool-read', '/admin/tool/custom/1?dry_run=true', 'The read: a dry run that names no field.', {
    body: {},
  }),
  get('read_persona', '/persona/1', 'The agent as it is.'),
  get('read_persona-not_found', '/persona/4711', 'No such agent, or none that the caller may see.'),
  get('read_persona-unchanged', '/persona/1', 'The caller has the agent as it is.', {
    headers: { 'if-none-match': '*' },
  }),
  get('read_persona-invalid', '/persona/travel', 'A name where an id stands.'),
  get('read_tool', '/tool/1', 'The tool as it is, its header values as masks.'),
  get('read_tool-not_found', '/tool/4711', 'No such tool.'),
  get('read_tool-unchanged', '/tool/1', 'The caller has the tool as it is.', { headers: { 'if-none-match': '*' } }),
  get('read_tool-invalid', '/tool/weather', 'A name where an id stands.'),
  get('any_operation-bound', '/persona/1', 'The token is bound to another agent.', { as: 'bound' }),
  put('update_custom_tool-stale', '/admin/tool/custom/1', 'A stale precondition.', {
    headers: { 'if-match': '"tool-1-1"' },
    ...DESCRIBED,
  }),
  put('update_custom_tool-invalid', '/admin/tool/custom/1', 'Every fault at once.', {
    body: { name: '', custom_headers: [{ key: 'X-Api-Key' }] },
  }),
  post(
    'validate_tool-full',
    '/admin/tool/custom/validate?report=full',
    'With advice that keeps nothing from being stored.',
    DEFINED,
  ),
  post('validate_tool-invalid', '/admin/tool/custom/validate', 'A definition that cannot become tools.', {
    body: { definition: { openapi: '3.1.0', info: { title: 'Maps' }, paths: { '/route': { get: {} } } } },
  }),
  patch('update_persona-incomplete', '/persona/1', 'Single fields without a mask.', RENAMED),
  patch('update_persona-built_in', '/persona/3?update_mask=name', 'An agent that comes with the product.', {
    ...RENAMED,
    at: 'built_in',
  }),
  put('update_custom_tool-built_in', '/admin/tool/custom/2', 'A tool that comes with the product.', {
    ...DESCRIBED,
    at: 'built_in',
  }),
  patch('update_persona-forbidden', '/persona/1?update_mask=name', 'An agent that the caller may see and not edit.', {
    ...RENAMED,
    as: 'reader',
  }),
  put('update_custom_tool-forbidden', '/admin/tool/custom/1', 'A permission is missing.', {
    ...DESCRIBED,
    as: 'reader',
  }),
  post('validate_tool-forbidden', '/admin/tool/custom/validate', 'A permission is missing.', {
    ...DEFINED,
    as: 'reader',
  }),
  patch(
    'update_persona-not_found',
    '/persona/4711?update_mask=name',
    'No such agent, or none that the caller may see.',
    RENAMED,
  ),
  put('update_custom_tool-not_found', '/admin/tool/custom/4711', 'No such tool.', DESCRIBED),
  post('validate_tool-not_found', '/admin/tool/custom/validate?tool_id=4711', 'No such tool to compare with.', DEFINED),
  patch(
    'update_persona-merge',
    '/persona/1?update_mask=description,tool_ids',
    'A stale precondition that may merge: others changed other fields.',
    {
      headers: { 'if-match': '"persona-1-2"', prefer: 'merge=fields', 'idempotency-key': '"8f9c7b1e"' },
      body: { description: 'Plans trips, trains only.', tool_ids: [] },
    },
  ),
  patch(
    'update_persona-merge_conflict',
    '/persona/1?update_mask=description',
    'A merge that is refused: both sides changed the description.',
    {
      headers: { 'if-match': '"persona-1-2"', prefer: 'merge=fields' },
      body: { description: 'Plans trips of every kind.' },
    },
  ),
  patch(
    'update_persona-repeated',
    '/persona/1?update_mask=description,tool_ids',
    'The same request with the same key: its first answer, without a second effect.',
    {
      headers: { 'if-match': '"persona-1-2"', prefer: 'merge=fields', 'idempotency-key': '"8f9c7b1e"' },
      body: { description: 'Plans trips, trains only.', tool_ids: [] },
    },
  ),
  patch('update_persona-key_reused', '/persona/1?update_mask=name', 'Another request with the key of an earlier one.', {
    headers: { 'idempotency-key': '"8f9c7b1e"' },
    body: { name: 'Help desk' },
  }),
  get('read_persona-version', '/persona/1?version=2', 'An earlier version, with its tools as they were then.'),
  get('read_persona-no_version', '/persona/1?version=99', 'A version that the agent does not have.'),
  post('any_operation-unreadable', '/admin/tool/custom/validate', 'A body that is not as long as its header says.', {
    headers: { 'content-length': '3' },
    ...DEFINED,
  }),
  patch('update_persona-demanded', '/persona/1?update_mask=name', 'This token demands If-Match.', {
    ...RENAMED,
    as: 'careful',
  }),
  put('update_custom_tool-demanded', '/admin/tool/custom/1', 'This token demands If-Match.', {
    ...DESCRIBED,
    as: 'careful',
  }),
  post('any_operation-no_token', '/admin/tool/custom/validate', 'A request without a token.', {
    ...DEFINED,
    as: 'nobody',
  }),
  patch('any_operation-too_large', '/persona/1?update_mask=task_prompt', 'A body beyond the limit of the operation.', {
    body: { task_prompt: 'x'.repeat(4 * 1024 * 1024) },
  }),
  patch('any_operation-media_type', '/persona/1?update_mask=name', 'A body that is not JSON.', {
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    ...RENAMED,
  }),
  get('any_operation-snapshot_too_large', '/persona/1', 'An answer beyond the limit of the service.', { at: 'small' }),
  patch(
    'any_operation-rate_limited',
    '/persona/1?update_mask=&dry_run=true',
    'More requests than the limit of the token allows.',
    { body: {}, at: 'limited' },
  ),
  patch('any_operation-unavailable', '/persona/1?update_mask=name', 'The database does not answer.', {
    ...RENAMED,
    at: 'unreachable',
  }),
  patch(
    'any_operation-fault',
    '/persona/1?update_mask=name',
    'A fault of the service; the log has the reason under the request id.',
    { ...RENAMED, at: 'broken' },
  ),
]

/** Longer bodies are left out of the files. In characters. */
export const SHOWN_BODY_MAX_LENGTH = 20_000
