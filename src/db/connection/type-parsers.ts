import pg from 'pg'

const OID = {
  int8: 20,
  textArray: 1009,
  date: 1082,
  timestamp: 1114,
  timestamptz: 1184,
  int8Array: 1016,
} as const

type Parse = (text: string) => unknown

const TIMESTAMPTZ = /^(\d{4,6}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?\+00$/

// pg's array reader knows the quoting rules; over text[] it leaves the elements as they are.
const parseTextArray: (text: string) => (string | null)[] = pg.types.getTypeParser(Number(OID.textArray), 'text')

const PARSERS: ReadonlyMap<number, Parse> = new Map<number, Parse>([
  [OID.int8, parseInt8],
  [OID.int8Array, arrayOf(parseInt8)],
  [OID.timestamptz, parseTimestamptz],
  [OID.date, text => text],
  [OID.timestamp, text => text],
])

/**
 * How values of the database become values of the program, for one pool and nobody else:
 * - `int8` is a number while that is exact, else its digits as text (so it stays exact and can be written as JSON);
 * - `timestamptz` is ISO 8601 with microseconds, `2024-01-02T03:04:05.123456Z`: sessions are in UTC;
 *   `infinity` and years before Christ stay as PostgreSQL writes them;
 * - `date` and `timestamp` stay text; a JavaScript Date would move them by the machine's time zone;
 * - `json` and `jsonb` are parsed (select `::text` to have the text); everything else is as pg has it.
 */
export const TYPE_PARSERS: pg.CustomTypesConfig = {
  // pg's declaration is a set of overloads for its built-in types; what it calls is this one signature.
  getTypeParser: ((oid: number, format: 'text' | 'binary' = 'text') =>
    (format === 'text' ? PARSERS.get(oid) : undefined) ??
    pg.types.getTypeParser(oid, format)) as typeof pg.types.getTypeParser,
}

function parseInt8(text: string): number | string {
  const value = Number(text)
  return Number.isSafeInteger(value) ? value : text
}

function parseTimestamptz(text: string): string {
  const [found, date, time, fraction = ''] = TIMESTAMPTZ.exec(text) ?? []
  return found === undefined ? text : `${date}T${time}.${fraction.padEnd(6, '0')}Z`
}

function arrayOf(parse: Parse): Parse {
  return text => parseTextArray(text).map(element => (element === null ? null : parse(element)))
}
