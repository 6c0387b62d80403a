import t from 'tap'
import { loadDemo } from '../src/admin/demo.js'
import { buildApp } from '../src/app.js'
import { readConfig } from '../src/config.js'
import { migrate } from '../src/db/migrate.js'
import { openUrl } from '../src/db/open.js'
import { makeLogger } from '../src/http/logging.js'
import { parseKeyRing } from '../src/secrets/key-ring.js'
import { Service } from '../src/startup.js'
import { VERSION } from '../src/version.js'
import { matchesGolden } from './golden.js'
import { testDatabase } from './postgres.js'
import { TEST_SECRET_KEYS } from './world.js'

interface Example {
  file: string
  about: string
  method: 'PATCH' | 'PUT' | 'POST'
  path: string
  headers?: Record<string, string>
  body: unknown
}

const DEFINITION = {
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
const EXAMPLES: Example[] = [
  {
    file: 'update_persona',
    about: 'A whole update: optional fields that are absent stay.',
    method: 'PATCH',
    path: '/persona/1',
    body: WHOLE_UPDATE,
  },
  {
    file: 'update_persona-mask',
    about: 'One field and nothing else.',
    method: 'PATCH',
    path: '/persona/1?update_mask=name',
    body: { name: 'Travel desk' },
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
]

t.test('the examples of the OpenAPI folder are what the service answers', async t => {
  const { url } = await testDatabase(t)
  const config = readConfig({})
  const database = openUrl(url, config)
  await migrate(database.db)
  const service = new Service({
    config,
    version: VERSION,
    database,
    ring: parseKeyRing(TEST_SECRET_KEYS),
    migrates: false,
    log: makeLogger('silent'),
  })
  const app = await buildApp({ config, version: VERSION, database, service, logger: false })
  t.teardown(async () => {
    await app.close()
    await database.close()
  })
  await service.start()
  const { token } = await loadDemo(database, service.vault())

  for (const { file, about, method, path, headers = {}, body } of EXAMPLES) {
    const sent = { 'content-type': 'application/json', 'x-request-id': file, ...headers }
    const answer = await app.inject({
      method,
      url: path,
      headers: { ...sent, authorization: `Bearer ${token}` },
      payload: JSON.stringify(body),
    })
    const shown = ['etag', 'warning', 'dry-run', 'x-request-id'].filter(name => answer.headers[name] !== undefined)
    const example = {
      about,
      request: { method, path, headers: { ...sent, authorization: 'Bearer <token>' }, body },
      answer: {
        status: answer.statusCode,
        headers: Object.fromEntries(shown.map(name => [name, answer.headers[name]])),
        body: answer.json(),
      },
    }
    matchesGolden(t, `openapi/examples/${file}.json`, `${steady(JSON.stringify(example, null, 2))}\n`)
  }
})

/** Masks depend on the deployment's own key and times on the day: the files show the same of each. */
function steady(text: string): string {
  return text
    .replaceAll(/\*{4}#[0-9a-f]{12}/g, '****#0123456789ab')
    .replaceAll(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z/g, '2026-01-01T00:00:00.000000Z')
}
