import type { TObject } from '@sinclair/typebox'
import t, { type Test } from 'tap'
import { PersonaUpsertRequest } from '../../src/persona/schema.js'
import { compileBody } from '../../src/schema/faults.js'
import { CustomToolUpdate, ValidateToolRequest } from '../../src/tool/schema.js'

/** What one field answers: the fault types, written `type` or `index:type` or `index.name:type`; '' is no fault. */
interface Row {
  omitted: string
  null: string
  good: unknown[]
  bad: [value: unknown, fault: string][]
}

const notText: Row['bad'] = [
  [1, 'string_type'],
  [true, 'string_type'],
  [[], 'string_type'],
  [{}, 'string_type'],
]
const unstorable: Row['bad'] = [
  ['a\0', 'string_nul'],
  ['\ud83d', 'string_unicode'],
]
const notFlag: Row['bad'] = [
  ['true', 'bool_parsing'],
  ['', 'bool_parsing'],
  [1, 'bool_type'],
  [0, 'bool_type'],
  [[], 'bool_type'],
  [{}, 'bool_type'],
]
const notIds: Row['bad'] = [
  ['1', 'list_type'],
  [1, 'list_type'],
  [{}, 'list_type'],
  [[1, '2'], '1:int_parsing'],
  [[true], '0:int_type'],
  [[null], '0:int_type'],
  [[1.5], '0:int_from_float'],
  [[Number.POSITIVE_INFINITY], '0:finite_number'],
  [new Array(1001).fill(1), 'too_long'],
]
const goodIds = [[], [1, 1, 2], [2 ** 31], [-1], [1e30], new Array(1000).fill(1)]

const longer = (length: number) => 'x'.repeat(length + 1)
/** 255 code points, 510 UTF-16 units. */
const widest = '😀'.repeat(255)

const requiredText = (maxLength: number): Row => ({
  omitted: 'missing',
  null: 'string_type',
  good: ['', 'text', ' ', 'x'.repeat(maxLength)],
  bad: [...notText, ...unstorable, [longer(maxLength), 'string_too_long']],
})
const optionalText: Row = {
  omitted: '',
  null: '',
  good: ['', 'text', widest],
  bad: [...notText, ...unstorable, [longer(255), 'string_too_long'], [`${widest}😀`, 'string_too_long']],
}
const requiredFlag: Row = { omitted: 'missing', null: 'bool_type', good: [true, false], bad: notFlag }
const optionalFlag: Row = { ...requiredFlag, omitted: '' }
const requiredIds: Row = { omitted: 'missing', null: 'list_type', good: goodIds, bad: notIds }

const agentFields: Record<keyof typeof PersonaUpsertRequest.properties, Row> = {
  name: {
    omitted: 'missing',
    null: 'string_type',
    good: ['a', ` ${'x'.repeat(255)}\n`, widest],
    bad: [
      ...notText,
      ...unstorable,
      ['', 'string_too_short'],
      [' \t\n', 'string_too_short'],
      [longer(255), 'string_too_long'],
    ],
  },
  description: requiredText(10_000),
  document_set_ids: requiredIds,
  num_chunks: {
    omitted: 'missing',
    null: 'float_type',
    good: [0, -0, 0.5, 5e-324, 1_000_000],
    bad: [
      ['1', 'float_parsing'],
      ['', 'float_parsing'],
      [true, 'float_type'],
      [[], 'float_type'],
      [{}, 'float_type'],
      [Number.POSITIVE_INFINITY, 'finite_number'],
      [-1, 'greater_than_equal'],
      [-5e-324, 'greater_than_equal'],
      [1_000_000.5, 'less_than_equal'],
    ],
  },
  is_public: requiredFlag,
  recency_bias: {
    omitted: 'missing',
    null: 'enum',
    good: ['favor_recent', 'base_decay', 'no_decay', 'auto'],
    bad: ['AUTO', '', 'constructor', 0, true, [], {}].map(value => [value, 'enum']),
  },
  llm_filter_extraction: requiredFlag,
  llm_relevance_filter: requiredFlag,
  tool_ids: requiredIds,
  system_prompt: requiredText(256_000),
  task_prompt: requiredText(256_000),
  datetime_aware: requiredFlag,
  llm_model_provider_override: optionalText,
  llm_model_version_override: optionalText,
  starter_messages: {
    omitted: '',
    null: '',
    good: [[], [{ name: '', message: '' }], new Array(50).fill({ name: 'a', message: 'b', extra: 1 })],
    bad: [
      ['x', 'list_type'],
      [{}, 'list_type'],
      [
        ['x', 1, null, []],
        '0:model_attributes_type 1:model_attributes_type 2:model_attributes_type 3:model_attributes_type',
      ],
      [[{ message: 'b' }, { name: 1 }], '0.name:missing 1.name:string_type 1.message:missing'],
      [[{ name: longer(255), message: longer(10_000) }], '0.name:string_too_long 0.message:string_too_long'],
      [[{ name: '\0', message: '\udc00' }], '0.name:string_nul 0.message:string_unicode'],
      [new Array(51).fill({ name: 'a', message: 'b' }), 'too_long'],
    ],
  },
  users: {
    omitted: '',
    null: 'list_type',
    good: [[], ['a0000000-0000-4000-8000-000000000005', 'A0000000-0000-4000-8000-000000000005']],
    bad: [
      ['a0000000-0000-4000-8000-000000000005', 'list_type'],
      [{}, 'list_type'],
      [[1, 'x', null], '0:uuid_type 1:uuid_parsing 2:uuid_type'],
      [['a0000000-0000-4000-8000-000000000005\n'], '0:uuid_parsing'],
      [new Array(1001).fill('x'), 'too_long'],
    ],
  },
  groups: { ...requiredIds, omitted: '' },
  remove_image: { ...optionalFlag, null: '' },
  uploaded_image_id: optionalText,
  icon_name: optionalText,
  search_start_date: {
    omitted: '',
    null: '',
    good: ['2024-01-02', '2024-01-02T03:04:05Z', '2024-01-02t03:04:05.123456789+05:30', '2024-01-02 03:04:05'],
    bad: [
      ['abc', 'datetime_from_date_parsing'],
      ['', 'datetime_from_date_parsing'],
      ['2024-02-30', 'datetime_from_date_parsing'],
      ['2024-01-02\0', 'datetime_from_date_parsing'],
      [0, 'datetime_type'],
      [true, 'datetime_type'],
      [[], 'datetime_type'],
      [{}, 'datetime_type'],
    ],
  },
  label_ids: { ...requiredIds, omitted: '', null: '' },
  is_default_persona: optionalFlag,
  display_priority: {
    omitted: '',
    null: '',
    good: [0, -0, -(2 ** 31), 2 ** 31 - 1],
    bad: [
      ['1', 'int_parsing'],
      [false, 'int_type'],
      [[], 'int_type'],
      [{}, 'int_type'],
      [1.5, 'int_from_float'],
      [Number.NEGATIVE_INFINITY, 'finite_number'],
      [2 ** 31, 'less_than_equal'],
      [-(2 ** 31) - 1, 'greater_than_equal'],
    ],
  },
  user_file_ids: {
    omitted: '',
    null: '',
    good: [[], ['f0000000-0000-4000-8000-000000000001', 'no uuid']],
    bad: [
      ['x', 'list_type'],
      [{}, 'list_type'],
      [[1, null, '\0', longer(255)], '0:string_type 1:string_type 2:string_nul 3:string_too_long'],
      [new Array(1001).fill('x'), 'too_long'],
    ],
  },
  replace_base_system_prompt: optionalFlag,
}

const toolFields: Record<keyof typeof CustomToolUpdate.properties, Row> = {
  name: { ...optionalText, good: ['a', ' ', widest], bad: [...optionalText.bad, ['', 'string_too_short']] },
  description: { ...requiredText(10_000), omitted: '', null: '' },
  definition: {
    omitted: '',
    null: '',
    good: [{}, { openapi: 1, deep: [null, {}] }],
    bad: ['{}', 1, true, [], [{}]].map(value => [value, 'dict_type']),
  },
  custom_headers: {
    omitted: '',
    null: '',
    good: [[], [{ key: '', value: longer(9000), extra: 1 }], new Array(50).fill({ key: 'a', value: 'b' })],
    bad: [
      ['x', 'list_type'],
      [{}, 'list_type'],
      [[null, []], '0:model_attributes_type 1:model_attributes_type'],
      [[{ key: null }, {}], '0.key:string_type 0.value:missing 1.key:missing 1.value:missing'],
      [[{ key: '\0', value: '\ud800' }], '0.key:string_nul 0.value:string_unicode'],
      [new Array(51).fill({ key: 'a', value: 'b' }), 'too_long'],
    ],
  },
  passthrough_auth: { ...optionalFlag, null: '' },
  oauth_config_id: {
    omitted: '',
    null: '',
    good: [1, 0, 1e30],
    bad: [
      ['1', 'int_parsing'],
      [true, 'int_type'],
      [[], 'int_type'],
      [1.5, 'int_from_float'],
      [Number.POSITIVE_INFINITY, 'finite_number'],
    ],
  },
}

function holds(t: Test, schema: TObject, base: Record<string, unknown>, fields: Record<string, Row>) {
  const compiled = compileBody(schema)
  const answer = (name: string, body: Record<string, unknown>) => {
    const faults = compiled.faults(body)
    t.equal(compiled.check(body), faults.length === 0)
    t.ok(faults.every(({ loc }) => loc[0] === 'body' && loc[1] === name))
    return faults
      .map(({ loc, type }) => [...(loc.length > 2 ? [loc.slice(2).join('.')] : []), type].join(':'))
      .join(' ')
  }
  for (const [name, row] of Object.entries(fields)) {
    const { [name]: _, ...without } = base
    t.equal(answer(name, without), row.omitted, `${name} omitted`)
    t.equal(answer(name, { ...base, [name]: null }), row.null, `${name} null`)
    for (const value of row.good) t.equal(answer(name, { ...base, [name]: value }), '', `${name} ${shown(value)}`)
    for (const [value, expected] of row.bad) {
      t.equal(answer(name, { ...base, [name]: value }), expected, `${name} ${shown(value)}`)
    }
  }
}

function shown(value: unknown): string {
  return String(JSON.stringify(value)).slice(0, 40)
}

const smallestAgent = {
  name: 'Agent',
  description: 'An agent',
  document_set_ids: [1],
  num_chunks: 10,
  is_public: true,
  recency_bias: 'auto',
  llm_filter_extraction: true,
  llm_relevance_filter: false,
  tool_ids: [10],
  system_prompt: 'system',
  task_prompt: 'task',
  datetime_aware: true,
}

t.test(
  '422 or none for each field of the agent update: omitted, null, values, wrong types, over the limit',
  async t => {
    holds(t, PersonaUpsertRequest, smallestAgent, agentFields)
  },
)

t.test('422 or none for each field of the tool update: omitted, null, values, wrong types, over the limit', async t => {
  holds(t, CustomToolUpdate, {}, toolFields)
})

t.test('422 or none for the definition to validate', async t => {
  holds(
    t,
    ValidateToolRequest,
    { definition: {} },
    {
      definition: { ...toolFields.definition, omitted: 'missing', null: 'dict_type' },
    },
  )
})
