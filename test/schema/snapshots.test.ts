import t from 'tap'
import { COLUMNS } from '../../src/persona/fields.js'
import { PersonaSnapshot } from '../../src/persona/schema.js'
import { compileBody } from '../../src/schema/faults.js'
import { ToolSnapshot, ValidateToolResponse } from '../../src/tool/schema.js'
import { FULL_AGENT_UPDATE } from '../fixtures/agent-fields.js'

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

/** The columns that a request sets and the snapshot shows, with the examples of the fields. */
const shownColumns = Object.fromEntries(
  COLUMNS.filter(([name, { answer }]) => answer !== undefined && name in FULL_AGENT_UPDATE).map(([name]) => [
    name,
    FULL_AGENT_UPDATE[name as keyof typeof FULL_AGENT_UPDATE],
  ]),
)

const agent = {
  ...shownColumns,
  id: 1,
  is_visible: true,
  builtin_persona: false,
  user_file_ids: [],
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
}

/** What the interface document does not demand of an answer. */
const OPTIONAL = ['system_prompt', 'replace_base_system_prompt', 'task_prompt', 'datetime_aware']

t.test('200: an answer that fits its schema passes the compiled check', async t => {
  t.strictSame(compileBody(PersonaSnapshot).faults(agent, []), [])
  const least = Object.fromEntries(Object.entries(agent).filter(([name]) => !OPTIONAL.includes(name)))
  t.strictSame(compileBody(PersonaSnapshot).faults(least, []), [])
  for (const name of Object.keys(least)) {
    const { [name]: _, ...without } = agent as Record<string, unknown>
    t.match(compileBody(PersonaSnapshot).faults(without, []), [{ loc: [name], type: 'missing' }], `${name} is there`)
  }
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
