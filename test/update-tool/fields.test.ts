import t from 'tap'
import type { Loc } from '../../src/errors.js'
import { worldApp } from '../app.js'
import { DEFINITION } from '../matrix-organisation.js'
import { readTool, storedTool } from './stored-tool.js'

/** What one field does, by an administrator, to the tool that has everything. */
interface FieldRow {
  /** What is sent, and what is stored then: the whole tool but for these columns stays as it was. */
  accepted: [sent: unknown, stored: object][]
  /** What null stores. */
  null: object
  /** What is sent, where the fault is, and its type. */
  refused: [sent: unknown, loc: Loc, type: string][]
}

const text = (field: string, limit: number): Pick<FieldRow, 'accepted' | 'refused'> => ({
  accepted: ['😀'.repeat(limit), ' blanks stay '].map(sent => [sent, { [field]: sent }]),
  refused: [
    [1, [], 'string_type'],
    [true, [], 'string_type'],
    [[], [], 'string_type'],
    ['x'.repeat(limit + 1), [], 'string_too_long'],
    ['\0', [], 'string_nul'],
    ['\ud800', [], 'string_unicode'],
  ],
})

const header = (key: string, value = 'v') => ({ key, value })
const refusedName = (key: string, type: string): FieldRow['refused'][number] => {
  return [[header('X-A'), header(key)], [1, 'key'], type]
}
const refusedValue = (value: string): FieldRow['refused'][number] => {
  return [[header('X-A', value)], [0, 'value'], 'header_value_invalid']
}

/** Keys out of every order, integer-like keys last, numbers in unusual forms. */
const ORDERED = {
  openapi: '3.1.0',
  'x-zebra': { z: 1, a: { '10': 'ten', '2': 'two', b: [] }, empty: {} },
  info: { version: '1', title: 'T' },
  servers: [{ url: 'https://example.com' }],
  paths: { '/z': { get: { summary: 's', operationId: 'z' } }, '/a': { get: { operationId: 'a', summary: 's' } } },
}

const FIELDS: Record<string, FieldRow> = {
  name: {
    ...text('name', 255),
    null: {},
    refused: [...text('name', 255).refused, ['', [], 'string_too_short']],
  },
  description: {
    ...text('description', 10_000),
    accepted: [...text('description', 10_000).accepted, ['', { description: '' }]],
    null: {},
  },
  definition: {
    accepted: [
      [ORDERED, { definition: JSON.stringify(ORDERED) }],
      [DEFINITION, { definition: JSON.stringify(DEFINITION) }],
    ],
    null: {},
    refused: [
      ['{}', [], 'dict_type'],
      [[], [], 'dict_type'],
      [1, [], 'dict_type'],
      [{ ...DEFINITION, openapi: undefined }, ['openapi'], 'missing'],
      [{ ...DEFINITION, openapi: '2.0' }, ['openapi'], 'openapi_version_unsupported'],
      [{ ...DEFINITION, servers: [] }, ['servers'], 'servers_missing'],
      [{ ...DEFINITION, paths: {} }, ['paths'], 'operations_missing'],
    ],
  },
  custom_headers: {
    accepted: [
      [[], { headers: [] }],
      [new Array(50).fill(0).map((_, index) => header(`X-${index}`)), {}],
      [[header('n'.repeat(256), 'v'.repeat(8192)), header('X-Empty', ''), header('X-Tab', '\tä')], {}],
    ],
    null: {},
    refused: [
      ['X-A: 1', [], 'list_type'],
      [{ 'X-A': '1' }, [], 'list_type'],
      [['X-A'], [0], 'model_attributes_type'],
      [[{ key: 'X-A' }], [0, 'value'], 'missing'],
      [[{ key: 1, value: 'v' }], [0, 'key'], 'string_type'],
      [new Array(51).fill(0).map((_, index) => header(`X-${index}`)), [], 'too_long'],
      ...['', 'X A', 'X:A', 'X\n', 'Ä', 'n'.repeat(257)].map(key => refusedName(key, 'header_name_invalid')),
      ...[
        'Host',
        'content-length',
        'Transfer-Encoding',
        'CONNECTION',
        'Upgrade',
        'TE',
        'Trailer',
        'Proxy-Authorization',
      ].map(key => refusedName(key, 'header_name_forbidden')),
      refusedName('x-a', 'header_name_duplicate'),
      ...['a\rb', 'a\n', 'v'.repeat(8193), 'ä'.repeat(4097)].map(refusedValue),
      [[header('X-A', 'a\0')], [0, 'value'], 'string_nul'],
      [[header('X-A', '****#000000000000')], [0, 'value'], 'mask_mismatch'],
    ],
  },
  passthrough_auth: {
    accepted: [
      [true, { passthrough_auth: true }],
      [false, { passthrough_auth: false }],
    ],
    null: {},
    refused: [
      ['true', [], 'bool_parsing'],
      [1, [], 'bool_type'],
      [[], [], 'bool_type'],
    ],
  },
  oauth_config_id: {
    accepted: [
      [2, { oauth_config_id: 2 }],
      [1, { oauth_config_id: 1 }],
    ],
    null: { oauth_config_id: null },
    refused: [
      ['1', [], 'int_parsing'],
      [true, [], 'int_type'],
      [1.5, [], 'int_from_float'],
      ...[0, -1, 999, 2_147_483_648, 1e30].map((id): FieldRow['refused'][number] => [id, [], 'not_found']),
    ],
  },
}

/** The tool of the recorded cases that has everything. */
const FULL = 16

t.test('the fields are those of the interface document, in its order', async t => {
  const { CustomToolUpdate } = await import('../../src/tool/schema.js')
  t.strictSame(Object.keys(FIELDS), Object.keys(CustomToolUpdate.properties))
})

t.test(
  '200 or 422 for each field as the decisions say: omitted, null, a value, a wrong type, over the limit',
  async t => {
    const world = await worldApp(t)
    const token = await world.token('admin@example.com')
    const put = async (body: object, query = '') => {
      return await world.call('PUT', `/admin/tool/custom/${FULL}${query}`, { token, body })
    }

    async function stores(title: string, body: { custom_headers?: unknown }, change: object) {
      const before = await storedTool(world, FULL)
      const rehearsed = await put(body, '?dry_run=true')
      t.strictSame(await storedTool(world, FULL), before, `${title}: a dry run stores nothing`)
      const answer = await put(body)
      t.equal(answer.statusCode, 200, `${title}: ${answer.body.slice(0, 500)}`)
      t.equal(rehearsed.body, answer.body, `${title}: the dry run answers like the update`)
      const after = await storedTool(world, FULL)
      if (body.custom_headers) {
        const sent = body.custom_headers as { key: string }[] // an accepted list
        const names = (list: { name: string }[]) => list.map(({ name }) => name)
        t.strictSame(
          names(after.headers),
          sent.map(({ key }) => key),
          title,
        )
        Object.assign(change, { headers: after.headers })
      }
      const differs = JSON.stringify({ ...before, ...change }) !== JSON.stringify(before)
      t.strictSame(after, { ...before, ...change, version: before.version + (differs ? 1 : 0) }, title)
      t.strictSame(await readTool(world, token, FULL), answer.json(), `${title}: the read answers like the update`)
      const again = await put(body)
      t.equal(again.headers.etag, `"tool-${FULL}-${after.version}"`, `${title}: again changes nothing`)
    }

    async function refuses(title: string, body: object, loc: Loc, type: string) {
      const before = await storedTool(world, FULL)
      const answer = await put(body)
      t.equal(answer.statusCode, 422, title)
      const faults: { loc: Loc; type: string }[] = answer.json().detail ?? []
      t.strictSame(
        faults.map(fault => ({ loc: fault.loc, type: fault.type })),
        [{ loc: ['body', ...loc], type }],
        title,
      )
      t.strictSame(await storedTool(world, FULL), before, `${title}: nothing is stored`)
    }

    await stores('{}', {}, {})
    await stores('every field null but oauth_config_id', nulls(['oauth_config_id']), {})
    await put({ custom_headers: [header('X-B')] })
    for (const [field, row] of Object.entries(FIELDS)) {
      for (const [sent, stored] of row.accepted)
        await stores(`${field}: ${shown(sent)}`, { [field]: sent }, { ...stored })
      for (const [sent, loc, type] of row.refused) {
        await refuses(`${field}: ${shown(sent)}`, { [field]: sent }, [field, ...loc], type)
      }
      await stores(`${field}: omitted`, {}, {})
      await stores(`${field}: null`, { [field]: null }, row.null)
    }
    for (const body of [[], 'text', 1, true, '"x"']) {
      const answer = await world.call('PUT', `/admin/tool/custom/${FULL}`, { token, body: JSON.stringify(body) })
      t.match(answer.json(), { detail: [{ loc: ['body'], type: 'model_attributes_type' }] })
    }
  },
)

t.test('422: an empty definition names all that it lacks', async t => {
  const { call, token } = await worldApp(t)
  const answer = await call('PUT', '/admin/tool/custom/10', {
    token: await token('admin@example.com'),
    body: { definition: {} },
  })
  t.equal(answer.statusCode, 422)
  t.match(answer.json().detail[0], { loc: ['body', 'definition', 'openapi'], type: 'missing' })
})

function nulls(except: string[]): object {
  return Object.fromEntries(
    Object.keys(FIELDS)
      .filter(name => !except.includes(name))
      .map(name => [name, null]),
  )
}

function shown(value: unknown): string {
  const text = JSON.stringify(value)
  return text.length <= 60 ? text : `${text.slice(0, 60)}...`
}
