import type { DestinationStream } from 'pino'
import { harmlessLine } from './terminal.js'

const LEVELS: Readonly<Record<number, string>> = {
  10: 'trace',
  20: 'debug',
  30: 'info ',
  40: 'warn ',
  50: 'error',
  60: 'fatal',
}

interface LogLine {
  level: number
  time: string
  msg?: string
  err?: { type?: string; message?: string; stack?: string }
  [field: string]: unknown
}

/** The log as people read it at a terminal, where the service would write JSON lines: time in UTC, level, sentence, fields. */
export function humanLog(out: { write(text: string): unknown }): DestinationStream {
  return { write: line => out.write(`${humanLine(JSON.parse(line) as LogLine)}\n`) } // pino's own lines
}

function humanLine({ level, time, name: _, pid: __, hostname: ___, msg = '', err, ...fields }: LogLine): string {
  const shown = Object.entries(fields).map(
    ([field, value]) => `${field}=${typeof value === 'string' ? value : JSON.stringify(value)}`,
  )
  const first = [`${time.slice(11, 19)} ${LEVELS[level] ?? level} ${msg}`, shown.join(' ')].filter(Boolean).join('  ')
  const cause = err === undefined ? [] : [`${err.type}: ${err.message}`, ...(err.stack ?? '').split('\n')]
  return [harmlessLine(first), ...cause.map(text => `    ${harmlessLine(text.trim())}`)].join('\n')
}
