import type { TObject } from '@sinclair/typebox'
import { TypeCompiler } from '@sinclair/typebox/compiler'
import t, { type Test } from 'tap'
import { PersonaUpsertRequest } from '../../src/persona/schema.js'
import { collectFaults } from '../../src/schema/faults.js'
import { CustomToolUpdate, ValidateToolRequest } from '../../src/tool/schema.js'
import {
  AGENT_FIELD_ROWS,
  expectedFaults,
  type FieldFixture,
  FULL_AGENT_UPDATE,
  REQUIRED_AGENT_FIELDS,
  type Refused,
} from '../fixtures/agent-fields.js'
import { TOOL_FIELD_ROWS, TOOL_FIELDS } from '../fixtures/tool-fields.js'

type Known = Pick<FieldFixture, 'required' | 'null' | 'accepted' | 'fits' | 'refused' | 'dangling'>

/** What one field answers: the faults as `expectedFaults` reads them, '' for none. */
interface Row {
  omitted: string
  null: string
  good: unknown[]
  bad: Refused[]
}

/** The rows of the fields, from what the tests know of each. */
function rowsOf(fixtures: readonly (readonly [string, Known])[]): Record<string, Row> {
  return Object.fromEntries(
    fixtures.map(([name, { required, null: ofNull, accepted, fits = [], refused, dangling = [] }]) => {
      const row: Row = {
        omitted: required ? 'missing' : '',
        null: typeof ofNull === 'string' && ofNull !== 'kept' ? ofNull : '',
        good: [...accepted, ...dangling].map(([sent]): unknown => sent).concat(fits),
        bad: refused,
      }
      return [name, row]
    }),
  )
}

function holds(t: Test, schema: TObject, base: Record<string, unknown>, fields: Record<string, Row>) {
  const compiled = TypeCompiler.Compile(schema)
  const answers = (name: string, body: Record<string, unknown>, expected: string, title: string) => {
    const faults = collectFaults(schema, body, ['body'])
    t.equal(compiled.Check(body), faults.length === 0)
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
    holds(t, PersonaUpsertRequest, smallestAgent, rowsOf(AGENT_FIELD_ROWS))
  },
)

t.test('422 or none for each field of the tool update: omitted, null, values, wrong types, over the limit', async t => {
  holds(t, CustomToolUpdate, {}, rowsOf(TOOL_FIELD_ROWS))
})

t.test('422 or none for the definition to validate', async t => {
  const definition = { ...TOOL_FIELDS.definition, required: true, null: 'dict_type' } as const
  holds(t, ValidateToolRequest, { definition: {} }, rowsOf([['definition', definition]]))
})
