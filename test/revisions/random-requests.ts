import fc from 'fast-check'

/** Random content for agent updates: mostly what can be stored, some of it refused. */

const user = (n: number) => `a0000000-0000-4000-8000-0000000000${String(n).padStart(2, '0')}`
const file = (n: number) => `f0000000-0000-4000-8000-00000000000${n}`

const text = fc.oneof(fc.string({ maxLength: 12 }), fc.string({ unit: 'grapheme', maxLength: 6 })).filter(isStorable)
const nullable = <Value>(value: fc.Arbitrary<Value>) => fc.option(value, { freq: 4 })
const some = <Value>(...values: Value[]) => fc.array(fc.constantFrom(...values), { maxLength: 4 })

/** Dates as clients write them, with what the table then holds. */
export const DATES: Record<string, string> = {
  '2024-01-02': '2024-01-02T00:00:00+00:00',
  '2024-01-02T03:04:05Z': '2024-01-02T03:04:05+00:00',
  '2024-01-02 03:04:05.120000-01:30': '2024-01-02T04:34:05.12+00:00',
  '0001-01-01T00:00:00Z': '0001-01-01T00:00:00+00:00',
  '9999-12-31T23:59:59.9999999Z': '9999-12-31T23:59:59.999999+00:00',
}

/** The agent's 26 fields; what each may hold when it is right in itself. */
export const AGENT_FIELDS: Record<string, fc.Arbitrary<unknown>> = {
  name: text.filter(name => name.trim() !== ''),
  description: text,
  document_set_ids: some(1, 2, 3),
  num_chunks: fc.oneof(fc.nat(20), fc.double({ min: 0, max: 1_000_000, noNaN: true })).map(n => (n === 0 ? 0 : n)),
  is_public: fc.boolean(),
  recency_bias: fc.constantFrom('favor_recent', 'base_decay', 'no_decay', 'auto'),
  llm_filter_extraction: fc.boolean(),
  llm_relevance_filter: fc.boolean(),
  tool_ids: fc.oneof({ weight: 9, arbitrary: some(1, 2, 10, 11, 12, 13, 15, 17) }, some(1, 16, 424242)),
  system_prompt: text,
  task_prompt: text,
  datetime_aware: fc.boolean(),
  llm_model_provider_override: nullable(text),
  llm_model_version_override: nullable(text),
  starter_messages: nullable(fc.array(fc.record({ name: text, message: text }), { maxLength: 3 })),
  users: some(user(4), user(5), user(9), user(10), user(11)),
  groups: some(1, 2, 3),
  remove_image: nullable(fc.boolean()),
  uploaded_image_id: nullable(fc.constantFrom('img-1', 'img-2', 'img-3')),
  icon_name: nullable(text),
  search_start_date: nullable(fc.constantFrom(...Object.keys(DATES))),
  label_ids: nullable(fc.oneof({ weight: 9, arbitrary: some(1, 2, 3) }, some(1, 99))),
  is_default_persona: fc.boolean(),
  display_priority: nullable(fc.integer({ min: -2147483648, max: 2147483647 })),
  user_file_ids: nullable(some(file(1), file(2), file(3), file(4))),
  replace_base_system_prompt: fc.boolean(),
}

export const REQUIRED = Object.keys(AGENT_FIELDS).slice(0, 12)

/** A body with the twelve required fields and any of the others, or any fields under a mask that names them and less. */
export const agentRequest: fc.Arbitrary<{ body: Record<string, unknown>; mask: string[] | null }> = fc.oneof(
  fc.record(AGENT_FIELDS, { requiredKeys: REQUIRED }).map(body => ({ body: { ...body }, mask: null })),
  fc
    .record(AGENT_FIELDS, { requiredKeys: [] })
    .chain(body => fc.subarray(Object.keys(body)).map(mask => ({ body: { ...body }, mask }))),
)

function isStorable(value: string): boolean {
  return !value.includes('\0') && !/[\ud800-\udfff]/u.test(value)
}
