import pg from 'pg'

/**
 * Converts database values for one pool:
 * - `int8` becomes a number if it is exact, else its digits as text;
 * - `timestamptz` becomes ISO 8601 with microseconds, `2024-01-02T03:04:05.123456Z`, because sessions are in UTC; `infinity` and years BC
 *   stay as PostgreSQL writes them;
 * - `json` and `jsonb` are parsed (select `::text` for the text); all others are as in pg.
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
