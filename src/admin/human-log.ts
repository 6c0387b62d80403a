import type { DestinationStream } from 'pino'
import { type Piece, rendered } from './terminal.js'

const LEVELS: Readonly<Record<number, Piece>> = {
  10: 'trace',
  20: 'debug',
  30: { text: 'info ', colour: 'green' },
  40: { text: 'warn ', colour: 'yellow' },
  50: { text: 'error', colour: 'red' },
  60: { text: 'fatal', colour: 'red' },
}

interface LogLine {
  level: number
  time: string
  msg?: string
  err?: { type?: string; message?: string; stack?: string }
  [field: string]: unknown
}

/** The log as people read it at a terminal, where the service would write JSON lines: time in UTC, level, sentence, fields. */
export function humanLog(out: { write(text: string): unknown }, colours: boolean): DestinationStream {
  return { write: line => out.write(`${humanLine(JSON.parse(line) as LogLine, colours)}\n`) } // pino's own lines
}

function humanLine(
  { level, time, name: _, pid: __, hostname: ___, msg = '', err, ...fields }: LogLine,
  colours: boolean,
): string {
  const shown = Object.entries(fields).map(
    ([field, value]) => `${field}=${typeof value === 'string' ? value : JSON.stringify(value)}`,
  )
  const first: Piece[] = [
    { text: time.slice(11, 19), colour: 'dim' },
    ' ',
    LEVELS[level] ?? String(level),
    ` ${msg}`,
    ...(shown.length === 0 ? [] : ['  ', { text: shown.join(' '), colour: 'dim' } as const]),
  ]
  const cause = err === undefined ? [] : [`${err.type}: ${err.message}`, ...(err.stack ?? '').split('\n')]
  return [rendered(first, colours), ...cause.map(text => `    ${rendered([text.trim()], colours)}`)].join('\n')
}
