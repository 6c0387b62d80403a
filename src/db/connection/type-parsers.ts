import pg from 'pg'

/**
 * Converts database values: `int8` to a number, `timestamptz` to ISO 8601 with microseconds (`2024-01-02T03:04:05.123456Z`; sessions are in
 * UTC; `infinity` and years BC stay as PostgreSQL writes them), all others as pg does.
 */
export const VALUES = new pg.TypeOverrides()
VALUES.setTypeParser(pg.types.builtins.INT8, Number)
VALUES.setTypeParser(pg.types.builtins.TIMESTAMPTZ, text =>
  text.replace(/^(\S+) ([\d:]+)(?:\.(\d+))?\+00$/, (_, date, time, fraction = '') => {
    return `${date}T${time}.${fraction.padEnd(6, '0')}Z`
  }),
)
