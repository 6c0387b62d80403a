import type { Selection } from '../listing.js'
import { type Cell, columnsThatFit, csvText } from '../terminal.js'
import { type Call, type Command, type OptionSpec, UsageError, wholeNumber } from './command.js'

/** A column of a list: the field of the row, and how people see it. */
export interface ListColumn<Row> {
  field: keyof Row & string
  /** Absent: only in JSON and CSV. */
  title?: string
  /** What people see; by default the field itself. */
  show?(row: Row): Cell
  /** Never cut. */
  whole?: boolean
}

/** A subcommand that lists rows: as a table, JSON or CSV, all of them or those that are asked for. */
export interface ListSpec<Row> {
  name: string
  summary: string
  columns: readonly ListColumn<Row>[]
  positionals?: readonly string[]
  options?: Readonly<Record<string, OptionSpec>>
  details?: string
  offline?: boolean
  /** How many rows without `--limit`; absent: all. */
  limit?: number
  rows(call: Call, selection: Selection): Promise<readonly Row[] | Listed<Row>>
}

/** Rows with what is to be said beside them. */
export interface Listed<Row> {
  rows: readonly Row[]
  /** What JSON shows around the rows. */
  enclose?(rows: readonly Row[]): object
  remark?: string | undefined
}

const LIST_OPTIONS = {
  filter: {
    type: 'string',
    multiple: true,
    value: 'TEXT',
    description: 'Only rows that contain this text; FIELD=TEXT looks in one field. May be repeated.',
  },
  output: {
    type: 'string',
    value: 'FORMAT',
    choices: ['table', 'json', 'csv'],
    description: 'table (default), json or csv.',
  },
  json: { type: 'boolean', description: 'The same as --output json.' },
} as const satisfies Record<string, OptionSpec>

/** Makes the subcommand of a list. */
export function listCommand<Row extends object>(spec: ListSpec<Row>): Command {
  const limit = {
    type: 'string',
    value: 'COUNT',
    description: `At most so many rows.${spec.limit ? ` Default ${spec.limit}.` : ''}`,
  }
  return {
    name: spec.name,
    summary: spec.summary,
    positionals: spec.positionals ?? [],
    options: { ...spec.options, limit: limit as OptionSpec, ...LIST_OPTIONS },
    details: [spec.details, `Fields: ${spec.columns.map(column => column.field).join(', ')}.`]
      .filter(Boolean)
      .join('\n'),
    ...(spec.offline && { offline: true }),
    run: async call => {
      const { filters, limit } = selectionOf(call, spec)
      const format = call.text('output') ?? 'json'
      if (call.json && format !== 'json') throw new UsageError(`--json excludes --output ${format}`)
      // One more than is shown tells that there are more.
      const found = await spec.rows(call, limit === undefined ? { filters } : { filters, limit: limit + 1 })
      const { rows, enclose, remark } = 'rows' in found ? found : { rows: found }
      const shown = rows.slice(0, limit)
      printRows(call, spec, shown, enclose?.(shown))
      if (remark !== undefined) call.remark(remark)
      if (shown.length < rows.length) call.remark(`there are more than ${limit}: see --limit and --filter`)
    },
  }
}

function selectionOf<Row>(
  call: Call,
  { columns, limit: byDefault }: ListSpec<Row>,
): Selection & Required<Pick<Selection, 'filters'>> {
  const text = call.text('limit')
  const limit = text === undefined ? byDefault : wholeNumber(text, '--limit')
  const filters = call.texts('filter').map(filter => {
    const [, field, wanted = ''] = /^([a-z_]+)=(.*)$/s.exec(filter) ?? []
    if (field === undefined) return { text: filter }
    if (!columns.some(column => column.field === field)) {
      throw new UsageError(`--filter: ${field} is not one of ${columns.map(column => column.field).join(', ')}`)
    }
    return { field, text: wanted }
  })
  return { filters, ...(limit !== undefined && { limit }) }
}

function printRows<Row extends object>(call: Call, spec: ListSpec<Row>, rows: readonly Row[], enclosed?: object): void {
  const format = call.json ? 'json' : (call.text('output') ?? 'table')
  if (format === 'json') call.printJson(enclosed ?? rows)
  else if (format === 'csv') {
    const fields = spec.columns.map(column => column.field)
    call.printExact(csvText([fields, ...rows.map(row => fields.map(field => row[field]))]))
  } else {
    const shown = spec.columns.filter(column => column.title !== undefined)
    const whole = shown.flatMap((column, index) => (column.whole ? [index] : []))
    const cells = rows.map(row => shown.map(column => (column.show ? column.show(row) : cellOf(row[column.field]))))
    const titles = shown.map(column => column.title)
    const { columns } = call.output
    const fit = columns === undefined ? shown.length : columnsThatFit([titles, ...cells], columns, whole)
    call.printTable(
      [titles, ...cells].map(row => row.slice(0, fit)),
      whole,
    )
    if (fit < shown.length) {
      call.remark(`not shown for lack of room: ${titles.slice(fit).join(', ')}; --output csv and json have them`)
    }
  }
}

function cellOf(value: unknown): Cell {
  if (Array.isArray(value)) return value.join(', ')
  return value === null || value === undefined ? null : String(value)
}

/** Selects from rows that are not a query, as the database does from one. */
export function selectOf<Row extends object>(rows: readonly Row[], { filters = [], limit }: Selection): Row[] {
  const holds = (row: Row, { field, text }: { field?: string; text: string }) => {
    const searched = field === undefined ? JSON.stringify(row) : String(row[field as keyof Row])
    return searched.toLowerCase().includes(text.toLowerCase())
  }
  return rows.filter(row => filters.every(filter => holds(row, filter))).slice(0, limit)
}
