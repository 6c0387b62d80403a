import pg from 'pg'

/** The numbers of PostgreSQL's types whose values are not taken as pg has them. */
const PARSERS: ReadonlyMap<number, (text: string) => unknown> = new Map<number, (text: string) => unknown>([
  [20, parseInt8],
  [1184, parseTimestamptz],
])

/**
 * How values of the database become values of the program, for one pool and nobody else:
 * - `int8` is a number while that is exact, else its digits as text (so it stays exact and can be written as JSON);
 * - `timestamptz` is ISO 8601 with microseconds, `2024-01-02T03:04:05.123456Z`: sessions are in UTC;
 *   `infinity` and years before Christ stay as PostgreSQL writes them;
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

const TIMESTAMPTZ = /^(\d{4,6}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?\+00$/

function parseTimestamptz(text: string): string {
  const [found, date, time, fraction = ''] = TIMESTAMPTZ.exec(text) ?? []
  return found === undefined ? text : `${date}T${time}.${fraction.padEnd(6, '0')}Z`
}
