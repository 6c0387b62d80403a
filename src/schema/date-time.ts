const shape = /^(\d{4})-(\d\d)-(\d\d)(?:[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:[Zz]|([+-])(\d\d):(\d\d))?)?$/

const msPerMinute = 60_000

/**
 * Reads a date as RFC 3339 writes it: `T`, `t` or a blank between date and time. Without an offset it is UTC, a bare
 * date is its midnight. Gives the instant in UTC as `YYYY-MM-DDTHH:MM:SS.ffffff` + `Z`, microseconds kept, finer digits
 * cut; nothing when the text is not such a date, or when the instant is outside the years 1 to 9999 (which is what
 * PostgreSQL and every JSON client can both hold). Leap seconds are refused: PostgreSQL would move them.
 */
export function parseDateTime(text: string): string | undefined {
  const parts = shape.exec(text)
  if (parts === null) return undefined
  const [, year, month, day, hour = '0', minute = '0', second = '0', fraction = '', sign, offsetHour, offsetMinute] =
    parts
  const wallClock = utcInstant(Number(year), Number(month), Number(day), Number(hour), Number(minute), Number(second))
  const offset = offsetInMinutes(sign, offsetHour, offsetMinute)
  if (wallClock === undefined || offset === undefined) return undefined
  const instant = new Date(wallClock - offset * msPerMinute)
  if (instant.getUTCFullYear() < 1 || instant.getUTCFullYear() > 9999) return undefined
  return `${instant.toISOString().slice(0, 19)}.${fraction.slice(0, 6).padEnd(6, '0')}Z`
}

/** Milliseconds since 1970, or nothing when the calendar or the clock has no such place (30 February, 24:00). */
function utcInstant(year: number, month: number, day: number, hour: number, minute: number, second: number) {
  if (hour > 23 || minute > 59 || second > 59) return undefined
  const instant = new Date(0)
  // Date.UTC reads the years 0 to 99 as 1900 to 1999; this setter does not.
  instant.setUTCFullYear(year, month - 1, day)
  if (instant.getUTCMonth() !== month - 1 || instant.getUTCDate() !== day) return undefined
  return instant.setUTCHours(hour, minute, second)
}

function offsetInMinutes(sign?: string, hours?: string, minutes?: string): number | undefined {
  if (sign === undefined) return 0
  if (Number(hours) > 23 || Number(minutes) > 59) return undefined
  const size = Number(hours) * 60 + Number(minutes)
  return sign === '-' ? -size : size
}
