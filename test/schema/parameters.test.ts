import { Type } from '@sinclair/typebox'
import fc from 'fast-check'
import t from 'tap'
import { PersonaUpsertRequest } from '../../src/persona/schema.js'
import { maskReader, parameterReader, parseFlag, parseId, parseMask, queryMask } from '../../src/schema/parameters.js'
import { parseDateTime } from '../../src/schema/vocabulary.js'
import { headerFaults } from '../../src/tool/headers.js'

t.test('422 int_parsing for an id that is no integer in plain decimal', async t => {
  for (const text of ['abc', '1e3', '1.5', '1.0', 'true', '', ' 1', '+1', '0x1', '１', '1_0', '-', '1\n']) {
    t.strictSame(
      parseId(text, ['path', 'persona_id']),
      {
        faults: [
          {
            loc: ['path', 'persona_id'],
            msg: 'Input should be a valid integer, unable to parse string as an integer',
            type: 'int_parsing',
          },
        ],
      },
      JSON.stringify(text),
    )
  }
})

t.test('an id that no row can have is no fault', async t => {
  for (const text of ['0', '-1', '-0', '2147483648', '9'.repeat(400)])
    t.strictSame(parseId(text, []), { value: undefined })
  t.strictSame(parseId('1', []), { value: 1 })
  t.strictSame(parseId('2147483647', []), { value: 2147483647 })
})

t.test('422 bool_parsing for a flag in the query that is neither true nor false', async t => {
  t.strictSame(parseFlag('true', ['query', 'dry_run']), { value: true })
  t.strictSame(parseFlag('false', ['query', 'dry_run']), { value: false })
  for (const text of ['', '1', 'True', 'yes', ' true']) {
    t.match(parseFlag(text, ['query', 'dry_run']), { faults: [{ loc: ['query', 'dry_run'], type: 'bool_parsing' }] })
  }
})

t.test('a mask names fields once, in the declared order', async t => {
  t.strictSame(parseMask('', PersonaUpsertRequest, []), { value: [] })
  t.strictSame(parseMask('tool_ids, name,tool_ids', PersonaUpsertRequest, []), { value: ['name', 'tool_ids'] })
})

t.test('422 for each unknown name in a mask', async t => {
  const loc = ['query', 'update_mask']
  const parsed = parseMask(`name,nmae,,constructor,${'x'.repeat(100)}`, PersonaUpsertRequest, loc)
  if (!('faults' in parsed)) return t.fail('the mask has unknown names')
  t.ok(parsed.faults.every(({ loc, type }) => loc.join() === 'query,update_mask' && type === 'enum'))
  t.strictSame(
    parsed.faults.map(({ msg }) => msg.slice(msg.indexOf(';') + 2)),
    [
      "'nmae' is not a field: did you mean 'name'?",
      "'' is not a field",
      "'constructor' is not a field",
      `'${'x'.repeat(64)}...' is not a field`,
    ],
  )
})

t.test('a date is stored in UTC with microseconds', async t => {
  const cases: [string, string | undefined][] = [
    ['2024-01-02', '2024-01-02T00:00:00.000000Z'],
    ['2024-01-02T03:04:05', '2024-01-02T03:04:05.000000Z'],
    ['2024-01-02 03:04:05.1', '2024-01-02T03:04:05.100000Z'],
    ['2024-01-02t03:04:05.1234569z', '2024-01-02T03:04:05.123456Z'],
    ['1969-12-31T23:59:59.999999Z', '1969-12-31T23:59:59.999999Z'],
    ['2024-01-02T03:04:05.123456+05:30', '2024-01-01T21:34:05.123456Z'],
    ['2024-01-02T03:04:05-00:00', '2024-01-02T03:04:05.000000Z'],
    ['2024-02-29', '2024-02-29T00:00:00.000000Z'],
    ['0001-01-01T00:00:00Z', '0001-01-01T00:00:00.000000Z'],
    ['0001-01-01T00:00:00+00:01', undefined],
    ['0000-12-31T23:59:00-00:01', '0001-01-01T00:00:00.000000Z'],
    ['0050-06-07', '0050-06-07T00:00:00.000000Z'],
    ['9999-12-31T23:59:59.9999999Z', '9999-12-31T23:59:59.999999Z'],
    ['9999-12-31T23:59:59-00:01', undefined],
    ['2023-02-29', undefined],
    ['1900-02-29', undefined],
    ['2024-13-01', undefined],
    ['2024-00-01', undefined],
    ['2024-01-00', undefined],
    ['2024-01-02T24:00:00Z', undefined],
    ['2024-01-02T23:60:00Z', undefined],
    ['2024-01-02T23:59:60Z', undefined],
    ['2024-01-02T03:04Z', undefined],
    ['2024-01-02T03:04:05.Z', undefined],
    ['2024-01-02T03:04:05+24:00', undefined],
    ['2024-01-02T03:04:05+05', undefined],
    ['2024-01-02T03:04:05+0500', undefined],
    ['2024-01-02_03:04:05', undefined],
    ['2024-01-02T03:04:05Z\n', undefined],
    ['2024-01-02Z', undefined],
  ]
  for (const [text, expected] of cases) t.equal(parseDateTime(text), expected, JSON.stringify(text))
})

t.test('every instant of the years 1 to 9999 comes back as it was, whatever its offset', async () => {
  const instants = fc.date({
    min: new Date('0001-01-02T00:00:00Z'),
    max: new Date('9999-12-30T00:00:00Z'),
    noInvalidDate: true,
  })
  fc.assert(
    fc.property(instants, fc.integer({ min: -1439, max: 1439 }), (instant, offset) => {
      const size = Math.abs(offset)
      const two = (part: number) => String(part).padStart(2, '0')
      const shifted = new Date(instant.getTime() + offset * 60_000).toISOString().slice(0, -1)
      const text = `${shifted}${offset < 0 ? '-' : '+'}${two(Math.floor(size / 60))}:${two(size % 60)}`
      return parseDateTime(text) === `${instant.toISOString().slice(0, -1)}000Z`
    }),
    { numRuns: 2000 },
  )
})

t.test('422 for header names and values', async t => {
  const types = (headers: { key: string; value: string }[]) =>
    headerFaults(headers).map(({ loc, type }) => `${loc.slice(2).join('.')}:${type}`)
  t.strictSame(
    types([
      { key: 'X-Key', value: '' },
      { key: "!#$%&'*+-.^_`|~09azAZ", value: 'v\twörter ÿ' },
    ]),
    [],
  )
  t.strictSame(types([{ key: 'x'.repeat(256), value: 'v'.repeat(8192) }]), [])
  t.strictSame(
    types(['', 'a b', 'a:', 'ä', 'a\r\nb', 'x'.repeat(257)].map(key => ({ key, value: '' }))),
    [0, 1, 2, 3, 4, 5].map(index => `${index}.key:header_name_invalid`),
  )
  t.strictSame(
    types(
      ['\r', '\n', '\0', '😀', ' v', 'v'.repeat(8193), 'ö'.repeat(4097)].map((value, index) => ({
        key: `k${index}`,
        value,
      })),
    ),
    [0, 1, 2, 3, 4, 5, 6].map(index => `${index}.value:header_value_invalid`),
  )
  const forbidden = [
    'Host',
    'content-length',
    'TRANSFER-ENCODING',
    'Connection',
    'Upgrade',
    'TE',
    'Trailer',
    'Proxy-Authorization',
    'proxy-x',
  ]
  t.strictSame(
    types(forbidden.map(key => ({ key, value: '' }))),
    forbidden.map((_, index) => `${index}.key:header_name_forbidden`),
  )
  t.strictSame(types(['Hosts', 'X-Host', 'Trailers', 'TEA', 'Proxy'].map(key => ({ key, value: '' }))), [])
  t.strictSame(
    types([
      { key: 'A', value: '' },
      { key: 'b', value: '\n' },
      { key: 'a', value: '\n' },
    ]),
    ['1.value:header_value_invalid', '2.key:header_name_duplicate', '2.value:header_value_invalid'],
  )
  t.strictSame(headerFaults([{ key: 'Host', value: '' }])[0]?.loc, ['body', 'custom_headers', 0, 'key'])
})

t.test('a mask is bounded before its names are looked at', async t => {
  const query = Type.Object({ update_mask: queryMask(PersonaUpsertRequest, 'Fields.') })
  const read = parameterReader(query, 'query')
  const all = Object.keys(PersonaUpsertRequest.properties)
  t.strictSame(read({ update_mask: `${all.join(' , ')} ` }), { value: { update_mask: all } })
  t.strictSame(
    read({
      update_mask: Array(250)
        .fill('name')
        .join(',')
        .slice(0, 1_000)
        .replace(/,[^,]*$/, ''),
    }),
    {
      value: { update_mask: ['name'] },
    },
  )
  const long = Array(3_000).fill('name').join(',')
  t.strictSame(read({ update_mask: long }), {
    faults: [
      { loc: ['query', 'update_mask'], msg: 'String should have at most 1000 characters', type: 'string_too_long' },
    ],
  })
  t.strictSame(maskReader(query)({ update_mask: long }), ['name'])
})
