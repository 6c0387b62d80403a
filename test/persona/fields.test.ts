import t from 'tap'
import type { Loc } from '../../src/errors.js'
import { worldApp } from '../app.js'
import { ADMIN, ALICE, BOB, CAROL, readAgent, storedAgent, unchanged } from './stored-agent.js'

/** What one field does, by an administrator, to the agent that has everything. */
interface FieldRow {
  required?: true
  /** What is sent, and what is stored then: the whole agent but for these columns stays as it was. */
  accepted: [sent: unknown, stored: object][]
  /** `kept`, the type of the fault, or what is stored then. */
  null: string | object
  /** What null stores inside an update mask, where that differs. */
  maskedNull?: object
  /** What is sent, where the fault is inside the field, and its type. */
  refused: [sent: unknown, loc: Loc, type: string][]
}

const FILE = (number: number) => `f0000000-0000-4000-8000-00000000000${number}`
const NOBODY = 'a0000000-0000-4000-8000-00000000ffff'
const viewer = (id: string | number) => ({ id, level: 'viewer' })
const editor = (id: string | number) => ({ id, level: 'editor' })

const text = (field: string, limit: number): Pick<FieldRow, 'accepted' | 'refused'> => ({
  accepted: ['😀'.repeat(limit), '', ' blanks stay '].map(sent => [sent, { [field]: sent }]),
  refused: [
    [1, [], 'string_type'],
    [false, [], 'string_type'],
    [['a'], [], 'string_type'],
    [{}, [], 'string_type'],
    ['x'.repeat(limit + 1), [], 'string_too_long'],
    ['a\0b', [], 'string_nul'],
    ['\ud800', [], 'string_unicode'],
  ],
})

const clearable = (field: string): FieldRow => ({ ...text(field, 255), null: { [field]: null } })

const flag = (field: string): FieldRow => ({
  accepted: [
    [false, { [field]: false }],
    [true, { [field]: true }],
  ],
  null: 'bool_type',
  refused: [
    ['true', [], 'bool_parsing'],
    [1, [], 'bool_type'],
    [[], [], 'bool_type'],
  ],
})

const ids = (field: string, known: [unknown, object][], wrongItem: [Loc, string][]): FieldRow => ({
  accepted: [[[], { [field]: [] }], ...known],
  null: 'list_type',
  refused: [
    ['1', [], 'list_type'],
    [1, [], 'list_type'],
    [{ 0: 1 }, [], 'list_type'],
    [new Array(1001).fill(1), [], 'too_long'],
    [[1, '2'], [1], 'int_parsing'],
    [[1, null], [1], 'int_type'],
    [[1, true], [1], 'int_type'],
    [[1, 1.5], [1], 'int_from_float'],
    ...[999_999, 2_147_483_648, -2_147_483_649, 1e30, 0, -1].map((id): FieldRow['refused'][number] => {
      return [[1, id, 1], [1], 'not_found']
    }),
    ...wrongItem.map(([loc, type]): FieldRow['refused'][number] => [[16, 1], loc, type]),
  ],
})

const FIELDS: Record<string, FieldRow> = {
  name: {
    required: true,
    accepted: [
      ['\t Renamed\u00a0\n', { name: 'Renamed' }],
      [` ${'n'.repeat(255)} `, { name: 'n'.repeat(255) }],
      ['😀'.repeat(255), { name: '😀'.repeat(255) }],
    ],
    null: 'string_type',
    refused: [
      [7, [], 'string_type'],
      ['', [], 'string_too_short'],
      [' \n', [], 'string_too_short'],
      ['n'.repeat(256), [], 'string_too_long'],
      ['a\0', [], 'string_nul'],
    ],
  },
  description: { required: true, ...text('description', 10_000), null: 'string_type' },
  document_set_ids: { required: true, ...ids('document_set_ids', [[[3, 1, 3], { document_set_ids: [1, 3] }]], []) },
  num_chunks: {
    required: true,
    accepted: [0, 0.1, 12.75, 1_000_000].map(sent => [sent, { num_chunks: sent }]),
    null: 'float_type',
    refused: [
      ['10', [], 'float_parsing'],
      [true, [], 'float_type'],
      [[], [], 'float_type'],
      [-0.5, [], 'greater_than_equal'],
      [1_000_001, [], 'less_than_equal'],
    ],
  },
  is_public: { required: true, ...flag('is_public') },
  recency_bias: {
    required: true,
    accepted: ['favor_recent', 'base_decay', 'no_decay', 'auto'].map(sent => [sent, { recency_bias: sent }]),
    null: 'enum',
    refused: ['Auto', '', 1, true, []].map((sent): FieldRow['refused'][number] => [sent, [], 'enum']),
  },
  llm_filter_extraction: { required: true, ...flag('llm_filter_extraction') },
  llm_relevance_filter: { required: true, ...flag('llm_relevance_filter') },
  tool_ids: {
    required: true,
    ...ids('tool_ids', [[[14, 13, 1, 13], { tool_ids: [1, 13, 14] }]], [[[0], 'tool_disabled']]),
  },
  system_prompt: { required: true, ...text('system_prompt', 256_000), null: 'string_type' },
  task_prompt: { required: true, ...text('task_prompt', 256_000), null: 'string_type' },
  datetime_aware: { required: true, ...flag('datetime_aware') },
  llm_model_provider_override: clearable('llm_model_provider_override'),
  llm_model_version_override: clearable('llm_model_version_override'),
  starter_messages: {
    accepted: [
      [
        new Array(50).fill({ name: 'n'.repeat(255), message: 'm'.repeat(10_000) }),
        { starter_messages: new Array(50).fill({ name: 'n'.repeat(255), message: 'm'.repeat(10_000) }) },
      ],
      [[], { starter_messages: [] }],
      [[{ message: 'm', name: 'n' }], { starter_messages: [{ name: 'n', message: 'm' }] }],
      [[{ name: '', message: '', extra: 1 }], { starter_messages: [{ name: '', message: '' }] }],
    ],
    null: { starter_messages: null },
    refused: [
      ['hello', [], 'list_type'],
      [{}, [], 'list_type'],
      [[null], [0], 'model_attributes_type'],
      [[{ name: 'n', message: 'm' }, { name: 'n' }], [1, 'message'], 'missing'],
      [[{ name: 1, message: 'm' }], [0, 'name'], 'string_type'],
      [[{ name: 'n'.repeat(256), message: 'm' }], [0, 'name'], 'string_too_long'],
      [[{ name: 'n', message: 'm'.repeat(10_001) }], [0, 'message'], 'string_too_long'],
      [new Array(51).fill({ name: 'n', message: 'm' }), [], 'too_long'],
    ],
  },
  users: {
    accepted: [
      // Bob is an editor and Carol a viewer when this row begins.
      [[CAROL, BOB, ALICE, CAROL], { users: [editor(BOB), viewer(CAROL)] }],
      [[ADMIN, BOB], { users: [viewer(ADMIN), editor(BOB)] }],
      [
        [ADMIN.toUpperCase(), `{${BOB}}`, CAROL.replaceAll('-', '')],
        { users: [viewer(ADMIN), editor(BOB), viewer(CAROL)] },
      ],
      [[ALICE], { users: [] }],
      [[BOB], { users: [viewer(BOB)] }],
      [[], { users: [] }],
    ],
    null: 'list_type',
    refused: [
      [BOB, [], 'list_type'],
      [[BOB, 5], [1], 'uuid_type'],
      [['bob@example.com'], [0], 'uuid_parsing'],
      [[BOB, NOBODY], [1], 'not_found'],
      [[ALICE, ALICE, NOBODY], [2], 'not_found'],
      [new Array(1001).fill(BOB), [], 'too_long'],
    ],
  },
  groups: {
    // Engineering is an editor when this row begins.
    ...ids(
      'groups',
      [
        [[2, 1, 2], { groups: [viewer(1), viewer(2)] }],
        [[2], { groups: [viewer(2)] }],
      ],
      [],
    ),
    accepted: [
      [[2, 1], { groups: [editor(1), viewer(2)] }],
      [[1], { groups: [editor(1)] }],
      [[2], { groups: [viewer(2)] }],
      [[1], { groups: [viewer(1)] }],
      [[], { groups: [] }],
    ],
  },
  remove_image: {
    accepted: [
      [false, {}],
      [true, { uploaded_image_id: null }],
    ],
    null: 'kept',
    maskedNull: {},
    refused: [
      ['true', [], 'bool_parsing'],
      [1, [], 'bool_type'],
    ],
  },
  uploaded_image_id: {
    ...text('uploaded_image_id', 255),
    null: 'kept',
    maskedNull: { uploaded_image_id: null },
  },
  icon_name: clearable('icon_name'),
  search_start_date: {
    accepted: (
      [
        ['2024-01-02T03:04:05.123456Z', '2024-01-02T03:04:05.123456Z'],
        ['2024-01-02T03:04:05.1234569Z', '2024-01-02T03:04:05.123456Z'],
        ['2024-01-02t03:04:05z', '2024-01-02T03:04:05.000000Z'],
        ['2024-01-02 03:04:05+02:30', '2024-01-02T00:34:05.000000Z'],
        ['2024-01-02T03:04:05', '2024-01-02T03:04:05.000000Z'],
        ['2024-02-29', '2024-02-29T00:00:00.000000Z'],
        ['0001-01-01T00:00:00Z', '0001-01-01T00:00:00.000000Z'],
        ['9999-12-31T23:59:59.999999Z', '9999-12-31T23:59:59.999999Z'],
      ] as const
    ).map(([sent, stored]) => [sent, { search_start_date: stored }]),
    null: { search_start_date: null },
    refused: [
      [1704164645, [], 'datetime_type'],
      [true, [], 'datetime_type'],
      ['yesterday', [], 'datetime_from_date_parsing'],
      ['', [], 'datetime_from_date_parsing'],
      ['2023-02-29', [], 'datetime_from_date_parsing'],
      ['0001-01-01T00:00:00+00:01', [], 'datetime_from_date_parsing'],
      ['9999-12-31T23:59:59.999999-00:01', [], 'datetime_from_date_parsing'],
    ],
  },
  label_ids: {
    ...ids('label_ids', [[[3, 2, 3], { label_ids: [2, 3] }]], []),
    null: 'kept',
    maskedNull: { label_ids: [] },
  },
  is_default_persona: flag('is_default_persona'),
  display_priority: {
    accepted: [0, -5, 2_147_483_647, -2_147_483_648].map(sent => [sent, { display_priority: sent }]),
    null: 'kept',
    maskedNull: { display_priority: null },
    refused: [
      ['1', [], 'int_parsing'],
      [true, [], 'int_type'],
      [1.5, [], 'int_from_float'],
      [2_147_483_648, [], 'less_than_equal'],
      [-2_147_483_649, [], 'greater_than_equal'],
    ],
  },
  user_file_ids: {
    accepted: [
      [[], { user_file_ids: [] }],
      [[FILE(4), FILE(3), FILE(4)], { user_file_ids: [FILE(3), FILE(4)] }],
    ],
    null: 'kept',
    maskedNull: { user_file_ids: [] },
    refused: [
      [FILE(1), [], 'list_type'],
      [[FILE(1), 1], [1], 'string_type'],
      [[FILE(1), 'nowhere', FILE(2)], [1], 'not_found'],
      [[FILE(1), 'x'.repeat(256)], [1], 'string_too_long'],
      [new Array(1001).fill(FILE(1)), [], 'too_long'],
    ],
  },
  replace_base_system_prompt: flag('replace_base_system_prompt'),
}

/** The agent of the recorded cases that has everything, Alice's. */
const FULL = 11

t.test('the fields are those of the interface document, in its order', async t => {
  const { PersonaUpsertRequest } = await import('../../src/persona/schema.js')
  t.strictSame(Object.keys(FIELDS), Object.keys(PersonaUpsertRequest.properties))
})

t.test('each field does what the decisions say: omitted, null, a value, a wrong type, over the limit', async t => {
  const world = await worldApp(t)
  const token = await world.token('admin@example.com')
  await world.database.db
    .updateTable('persona_user')
    .set({ level: 'editor' })
    .where('persona_id', '=', FULL)
    .where('user_id', '=', BOB)
    .execute()

  /** Sends one update as a dry run and for real: both answer the same; what is stored then differs by `change`. */
  async function stores(title: string, query: string, body: object, change: object) {
    const before = await storedAgent(world, FULL)
    const rehearsed = await world.call('PATCH', `/persona/${FULL}?dry_run=true${query}`, { token, body })
    t.strictSame(await storedAgent(world, FULL), before, `${title}: a dry run stores nothing`)
    const answer = await world.call('PATCH', `/persona/${FULL}?${query}`, { token, body })
    t.equal(answer.statusCode, 200, `${title}: ${answer.body.slice(0, 500)}`)
    t.equal(rehearsed.body, answer.body, `${title}: the dry run answers like the update`)
    const after = await storedAgent(world, FULL)
    const differs = JSON.stringify({ ...before, ...change }) !== JSON.stringify(before)
    t.strictSame(after, { ...before, ...change, version: before.version + (differs ? 1 : 0) }, title)
    t.strictSame(await readAgent(world, token, FULL), answer.json(), `${title}: the read answers like the update`)
  }

  async function changesNothing(title: string, query: string, body: object) {
    const before = await storedAgent(world, FULL)
    const answer = await world.call('PATCH', `/persona/${FULL}?${query}`, { token, body })
    t.equal(answer.headers.etag, `"persona-${FULL}-${before.version}"`, title)
  }

  async function refuses(title: string, query: string, body: object, loc: Loc, type: string) {
    const before = await storedAgent(world, FULL)
    const answer = await world.call('PATCH', `/persona/${FULL}?${query}`, { token, body })
    t.equal(answer.statusCode, 422, title)
    const faults: { loc: Loc; type: string }[] = answer.json().detail ?? []
    t.strictSame(
      faults.map(fault => ({ loc: fault.loc, type: fault.type })),
      [{ loc: ['body', ...loc], type }],
      title,
    )
    t.strictSame(await storedAgent(world, FULL), before, `${title}: nothing is stored`)
  }

  for (const [field, row] of Object.entries(FIELDS)) {
    const base = unchanged(await storedAgent(world, FULL))
    const { [field]: _, ...without } = base
    const mask = `&update_mask=${field}`
    for (const [sent, stored] of row.accepted) {
      await stores(`${field}: ${shown(sent)}`, '', { ...without, [field]: sent }, stored)
      await changesNothing(`${field}: ${shown(sent)} again, by a mask`, mask, { [field]: sent })
    }
    const now = unchanged(await storedAgent(world, FULL))
    for (const [sent, loc, type] of row.refused) {
      await refuses(`${field}: ${shown(sent)}`, '', { ...now, [field]: sent }, [field, ...loc], type)
    }
    const { [field]: __, ...omitting } = now
    if (row.required) await refuses(`${field}: omitted`, '', omitting, [field], 'missing')
    else await stores(`${field}: omitted`, '', omitting, {})
    await refuses(`${field}: omitted but masked`, mask, {}, [field], 'missing')
    await nullCases(field, row, now)
  }

  async function nullCases(field: string, row: FieldRow, now: object) {
    const mask = `&update_mask=${field}`
    if (typeof row.null === 'string' && row.null !== 'kept') {
      await refuses(`${field}: null`, '', { ...now, [field]: null }, [field], row.null)
      await refuses(`${field}: null in a mask`, mask, { [field]: null }, [field], row.null)
      return
    }
    const cleared = typeof row.null === 'string' ? {} : row.null
    await stores(`${field}: null`, '', { ...now, [field]: null }, cleared)
    await stores(`${field}: null in a mask`, mask, { [field]: null }, row.maskedNull ?? cleared)
  }
})

function shown(value: unknown): string {
  const text = JSON.stringify(value)
  return text.length <= 60 ? text : `${text.slice(0, 60)}...`
}
