import t from 'tap'
import { PersonaSnapshot } from '../../src/persona/schema.js'
import { compileBody } from '../../src/schema/faults.js'
import { ToolSnapshot, ValidateToolResponse } from '../../src/tool/schema.js'

const tool: ToolSnapshot = {
  id: 7,
  name: 'weather',
  description: '',
  definition: { openapi: '3.1.0', paths: { '/x': { get: {} } } },
  display_name: 'Weather',
  in_code_tool_id: null,
  custom_headers: [{ key: 'X-Key', value: '****#0123456789ab' }],
  passthrough_auth: false,
}

const agent: PersonaSnapshot = {
  id: 1,
  name: 'Agent',
  description: '',
  is_public: true,
  is_visible: true,
  uploaded_image_id: null,
  icon_name: null,
  user_file_ids: [],
  display_priority: null,
  is_default_persona: false,
  builtin_persona: false,
  starter_messages: [{ name: 'a', message: 'b' }],
  llm_relevance_filter: false,
  llm_filter_extraction: false,
  tools: [tool],
  labels: [{ id: 1, name: 'label' }],
  owner: { id: 'a0000000-0000-4000-8000-000000000005', email: 'alice@example.com' },
  users: [],
  groups: [1],
  document_sets: [
    {
      id: 1,
      name: 'Handbook',
      description: null,
      cc_pair_summaries: [{ id: 1, name: null, source: 'google_drive', access_type: 'sync' }],
      is_up_to_date: true,
      is_public: false,
      users: [],
      groups: [],
      federated_connector_summaries: [
        { id: 1, name: 'Slack', source: 'federated_slack', entities: { channels: ['a'] } },
      ],
    },
  ],
  llm_model_provider_override: null,
  llm_model_version_override: null,
  num_chunks: 2.5,
}

t.test('200: an answer that fits its schema passes the compiled check', async t => {
  t.strictSame(compileBody(PersonaSnapshot).faults(agent, []), [])
  t.strictSame(
    compileBody(PersonaSnapshot).faults({ ...agent, owner: null, starter_messages: null, num_chunks: null }, []),
    [],
  )
  t.strictSame(compileBody(ToolSnapshot).faults({ ...tool, definition: null, custom_headers: null }, []), [])
  t.strictSame(compileBody(ValidateToolResponse).faults({ methods: [] }, []), [])
})

t.test('an answer that does not fit is named at its place', async t => {
  const wrong = {
    ...agent,
    owner: { id: 'x', email: 1 },
    tools: [tool, { ...tool, definition: [], custom_headers: 'none' }],
    document_sets: [{ ...agent.document_sets[0], cc_pair_summaries: [{ id: 1, name: null, source: 'fax' }] }],
  }
  const faults = compileBody(PersonaSnapshot).faults(wrong, [])
  t.strictSame(
    faults.map(({ loc, type }) => `${loc.join('.')}:${type}`),
    [
      'tools.1.definition:dict_type',
      'tools.1.custom_headers:list_type',
      'owner.id:uuid_parsing',
      'owner.email:string_type',
      'document_sets.0.cc_pair_summaries.0.source:enum',
      'document_sets.0.cc_pair_summaries.0.access_type:missing',
    ],
  )
})
