import pg from 'pg'

/**
 * Converts `int8` to a number and `timestamptz` to ISO 8601 in UTC with microseconds (`2024-01-02T03:04:05.123456Z`). `infinity`, years BC and
 * all other types are converted as pg does.
 */
export const VALUES = new pg.TypeOverrides()
VALUES.setTypeParser(pg.types.builtins.INT8, Number)
VALUES.setTypeParser(pg.types.builtins.TIMESTAMPTZ, text =>
  text.replace(/^(\S+) ([\d:]+)(?:\.(\d+))?\+00$/, (_, date, time, fraction = '') => {
    return `${date}T${time}.${fraction.padEnd(6, '0')}Z`
  }),
)
