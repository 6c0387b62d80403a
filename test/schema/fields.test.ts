import type { TObject } from '@sinclair/typebox'
import t, { type Test } from 'tap'
import { PersonaUpsertRequest } from '../../src/persona/schema.js'
import { compileBody } from '../../src/schema/faults.js'
import { CustomToolUpdate, ValidateToolRequest } from '../../src/tool/schema.js'
import {
  AGENT_FIELD_ROWS,
  expectedFaults,
  FULL_AGENT_UPDATE,
  notFlag,
  notText,
  REQUIRED_AGENT_FIELDS,
  type Refused,
  unstorable,
  WIDEST,
} from '../fixtures/agent-fields.js'

/** What one field answers: the faults as `expectedFaults` reads them, '' for none. */
interface Row {
  omitted: string
  null: string
  good: unknown[]
  bad: Refused[]
}

/** The rows of an agent's fields, from what the tests know of each. */
const agentFields = Object.fromEntries(
  AGENT_FIELD_ROWS.map(([name, { required, null: ofNull, accepted, fits = [], refused, dangling = [] }]) => {
    const row: Row = {
      omitted: required ? 'missing' : '',
      null: typeof ofNull === 'string' && ofNull !== 'kept' ? ofNull : '',
      good: [...accepted, ...dangling].map(([sent]): unknown => sent).concat(fits),
      bad: refused,
    }
    return [name, row]
  }),
)

const longer = (length: number) => 'x'.repeat(length + 1)

const optionalText: Row = {
  omitted: '',
  null: '',
  good: ['', 'text', WIDEST],
  bad: [...notText, ...unstorable, [longer(255), 'string_too_long'], [`${WIDEST}😀`, 'string_too_long']],
}

const toolFields: Record<keyof typeof CustomToolUpdate.properties, Row> = {
  name: { ...optionalText, good: ['a', ' ', WIDEST], bad: [...optionalText.bad, ['', 'string_too_short']] },
  description: {
    omitted: '',
    null: '',
    good: ['', 'text', ' ', 'x'.repeat(10_000)],
    bad: [...notText, ...unstorable, [longer(10_000), 'string_too_long']],
  },
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
  passthrough_auth: { omitted: '', null: '', good: [true, false], bad: notFlag },
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
  const answers = (name: string, body: Record<string, unknown>, expected: string, title: string) => {
    const faults = compiled.faults(body)
    t.equal(compiled.check(body), faults.length === 0)
    t.strictSame(
      faults.map(({ loc, type }) => ({ loc, type })),
      expectedFaults(name, expected),
      title,
    )
  }
  for (const [name, row] of Object.entries(fields)) {
    const { [name]: _, ...without } = base
    answers(name, without, row.omitted, `${name} omitted`)
    answers(name, { ...base, [name]: null }, row.null, `${name} null`)
    for (const value of row.good) answers(name, { ...base, [name]: value }, '', `${name} ${shown(value)}`)
    for (const [value, expected] of row.bad) {
      answers(name, { ...base, [name]: value }, expected, `${name} ${shown(value)}`)
    }
  }
}

function shown(value: unknown): string {
  return String(JSON.stringify(value)).slice(0, 40)
}

const smallestAgent = Object.fromEntries(
  REQUIRED_AGENT_FIELDS.map(name => [name, FULL_AGENT_UPDATE[name as keyof typeof FULL_AGENT_UPDATE]]),
)

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
