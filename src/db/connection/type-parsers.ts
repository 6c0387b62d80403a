import pg from 'pg'

/**
 * How values of the database become values of the program, for one pool and nobody else:
 * - `int8` is a number while that is exact, else its digits as text (so it stays exact and can be written as JSON);
 * - `timestamptz` is ISO 8601 with microseconds, `2024-01-02T03:04:05.123456Z`: sessions are in UTC;
 *   `infinity` and years before Christ stay as PostgreSQL writes them;
 * - `json` and `jsonb` are parsed (select `::text` to have the text); everything else is as pg has it.
 */
export const VALUES = new pg.TypeOverrides()
VALUES.setTypeParser(pg.types.builtins.INT8, parseInt8)
VALUES.setTypeParser(pg.types.builtins.TIMESTAMPTZ, parseTimestamptz)

function parseInt8(text: string): number | string {
  const value = Number(text)
  return Number.isSafeInteger(value) ? value : text
}

const TIMESTAMPTZ = /^(\d{4,6}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?\+00$/

function parseTimestamptz(text: string): string {
  const [found, date, time, fraction = ''] = TIMESTAMPTZ.exec(text) ?? []
  return found === undefined ? text : `${date}T${time}.${fraction.padEnd(6, '0')}Z`
}
