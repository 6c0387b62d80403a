import { cpus, loadavg, totalmem } from 'node:os'
import { BATCH_ROWS } from './captured.js'
import type { ProcessFigures } from './process-figures.js'
import type { CaseFigures, ControlName, SweepFigures } from './rounds.js'
import type { ScaleFigures } from './scale.js'
import type { WorldSize } from './world.js'

/** One run of the benchmark; `results.json` holds it as it is. */
export interface Report {
  at: string
  machine: string
  /** One-minute load average when the run began: others at work on the machine. */
  loadAtStart: number
  database: string
  size: WorldSize
  rounds: number
  connections: number
  /** `pgbench`, or `raw pg` where pgbench is missing: then the column is not compared. */
  databaseControl: 'pgbench' | 'raw pg'
  cases: CaseFigures[]
  sweep: SweepFigures[]
  process: ProcessFigures | null
  scale: ScaleFigures | null
}

export function describeMachine(): string {
  const [first] = cpus()
  const memory = Math.round(totalmem() / 1024 ** 3)
  return `${cpus().length} × ${first?.model.trim() ?? 'unknown'}, ${memory} GiB, Node ${process.version}`
}

export function loadNow(): number {
  return Math.round((loadavg()[0] ?? 0) * 10) / 10
}

/** The report as Markdown, goals first. */
export function markdownOf(report: Report): string {
  const { size } = report
  return [
    `Measured ${report.at} on ${report.machine}; load average at the start ${report.loadAtStart}.`,
    `${report.database}. ${number(size.agents)} agents, ${number(size.tools)} tools, ${number(size.users)} users, ` +
      `${number(size.groups)} groups. ${report.connections} connections unless said otherwise; rate limits off, log level ` +
      `\`warn\`; medians of ${report.rounds} interleaved rounds. The load generator shares the processors.`,
    section('Goals', goalTable(report)),
    section('Requests', caseTable(report)),
    section('Beside', controlTable(report)),
    section('Connections and processes (agent update)', sweepTable(report.sweep)),
    section('One process', processTable(report.process)),
    section('Scale (agent update)', scaleTable(report.scale)),
  ]
    .filter(part => part !== '')
    .join('\n\n')
}

/** How the throughput of each case changed since another run. */
export function markdownOfChange(before: Report, after: Report): string {
  const rows = after.cases.map(now => {
    const then = before.cases.find(({ name }) => name === now.name)
    const change =
      then?.perSecond && now.perSecond ? `${(((now.perSecond ?? 0) / then.perSecond - 1) * 100).toFixed(0)} %` : ''
    return [
      now.name,
      figure(then?.perSecond ?? null, 0),
      figure(now.perSecond, 0),
      change,
      figure(then?.serviceMs ?? null, 3),
      figure(now.serviceMs, 3),
    ]
  })
  const head = ['case', 'a second before', 'a second now', 'change', 'service ms before', 'service ms now']
  return section(`Change since ${before.at}`, table(head, rows))
}

interface Goal {
  measure: string
  reached: number | null
  /** The same by processor time, where that says what an undisturbed machine would reach. */
  byProcessor: number | null
  goal: number
  atLeast: boolean
}

function goalTable(report: Report): string {
  const rows = goalsOf(report)
    .filter(({ reached }) => reached !== null)
    .map(({ measure, reached, byProcessor, goal, atLeast }) => {
      const met = atLeast ? (reached ?? 0) >= goal : (reached ?? 0) <= goal
      const bound = `${atLeast ? 'at least' : 'at most'} ${goal}`
      return [
        measure,
        bound,
        figure(reached, 2),
        met ? 'yes' : 'no',
        byProcessor === null ? '' : figure(byProcessor, 2),
      ]
    })
  return table(['measure', 'goal', 'reached', 'met', 'by processor time'], rows)
}

function goalsOf(report: Report): Goal[] {
  const find = (name: string) => report.cases.find(found => found.name === name)
  const control = (name: string, wanted: ControlName) => find(name)?.controls.find(found => found.name === wanted)
  const over = (measure: string, name: string, wanted: ControlName, goal: number): Goal => {
    const found = wanted === 'pgbench' && report.databaseControl !== 'pgbench' ? undefined : control(name, wanted)
    const { ratio = null, processorRatio = null } = found ?? {}
    return { measure, reached: ratio, byProcessor: processorRatio, goal, atLeast: true }
  }
  const most = (measure: string, reached: number | null, goal: number): Goal => {
    return { measure, reached, byProcessor: null, goal, atLeast: false }
  }
  const at = (connections: number) =>
    report.sweep.find(s => s.connections === connections && s.processes === 1)?.perSecond
  const [many, few] = [at(256), at(16)]
  const sweep = many && few ? many / few : null
  const [update, rehearsal] = ['agent update', 'agent update, dry run'].map(name => find(name)?.perSecond)
  const dryRun = update && rehearsal ? rehearsal / update : null
  return [
    most('agent update, processor ms of all', find('agent update')?.allMs ?? null, 0.38),
    over('agent update over pgbench, same statements', 'agent update', 'pgbench', 2.2),
    over('agent update over pgbench in batches', 'agent update', 'batches', 0.8),
    over('tool update over pgbench, same statements', 'tool update, 10 operations', 'pgbench', 1.2),
    over('agent update over the eleven-statement transaction', 'agent update', 'eleven', 5),
    { measure: 'dry run over the real update', reached: dryRun, byProcessor: null, goal: 0.9, atLeast: true },
    over('validation of 300 operations over echo behind a look-up', 'validation, 300 operations', 'lookup', 0.75),
    over('validation of 1 MB over echo behind a look-up', 'validation, 1 MB', 'lookup', 0.75),
    over('validation of 10 operations over echo behind a look-up', 'validation, 10 operations', 'lookup', 0.7),
    over('422 of a definition over echo behind a look-up', '422, validation', 'lookup', 0.7),
    over('422 of an agent update over echo behind a look-up', '422, agent update', 'lookup', 0.8),
    over('401 without a token over echo', '401, no token', 'echo', 0.7),
    over('401 for a malformed token over echo', '401, malformed token', 'echo', 0.7),
    over('401 for an unknown token over echo behind a look-up', '401, unknown token', 'lookup', 0.9),
    most('agent update, p99 over p50', find('agent update')?.p99OverP50 ?? null, 2.5),
    { measure: '256 connections over 16, throughput', reached: sweep, byProcessor: null, goal: 0.9, atLeast: true },
    most('1,000,000 agents over 1,000, p50 of the agent update', report.scale?.p50Ratio ?? null, 1.1),
    most('MiB resident after the mixed requests', report.process?.residentAfterMixedMib ?? null, 110),
    most('seconds to start with an existing database', report.process && report.process.startMs / 1000, 1),
  ]
}

function caseTable({ cases }: Report): string {
  const head = [
    'case',
    'processor ms',
    'of the service',
    'of PostgreSQL',
    'a second',
    'p50 ms',
    'p99 ms',
    'statements',
    'round trips',
  ]
  return table(
    head,
    cases.map(found => [
      found.name,
      figure(found.allMs, 3),
      figure(found.serviceMs, 3),
      figure(found.databaseMs, 3),
      figure(found.perSecond, 0),
      figure(found.p50Ms, 2),
      figure(found.p99Ms, 2),
      figure(found.statements, 2),
      figure(found.roundTrips, 2),
    ]),
  )
}

function controlTable({ cases, databaseControl }: Report): string {
  const names: ControlName[] = ['pgbench', 'batches', 'echo', 'lookup', 'eleven']
  const head = [
    'case',
    databaseControl,
    `in batches of ${BATCH_ROWS}`,
    'echo',
    'echo behind a look-up',
    'eleven statements',
  ]
  const rows = cases.map(({ name, controls }) => [
    name,
    ...names.map(wanted => {
      const control = controls.find(found => found.name === wanted)
      if (control === undefined) return ''
      return `${figure(control.allMs, 3)} (${figure(control.processorRatio, 2)}; ${figure(control.ratio, 2)})`
    }),
  ])
  const meaning =
    'Processor time of one request of the control in ms, its client and PostgreSQL included; in brackets this over that of the ' +
    'service, and the throughput of the service over that of the control. Others at work on the machine disturb the second ' +
    'figure much and the first little. pgbench sends the statements of the service, one update at a time and in batches.'
  return `${meaning}\n\n${table(head, rows)}`
}

function sweepTable(sweep: readonly SweepFigures[]): string {
  const rows = sweep.map(s => [
    String(s.connections),
    String(s.processes),
    figure(s.perSecond, 0),
    figure(s.p50Ms, 2),
    figure(s.p99Ms, 2),
  ])
  return table(['connections', 'processes', 'a second', 'p50 ms', 'p99 ms'], rows)
}

function processTable(found: ProcessFigures | null): string {
  if (found === null) return ''
  const { besideLarge } = found
  return table(
    ['measure', 'value'],
    [
      ['start to the first request, ms', figure(found.startMs, 0)],
      ['resident after the start, MiB', figure(found.residentAtStartMib, 0)],
      [`resident after ${number(found.mixedRequests)} mixed requests, MiB`, figure(found.residentAfterMixedMib, 0)],
      ['beside definitions of 5 MiB: small validations a second', figure(besideLarge.smallPerSecond, 0)],
      [
        'beside definitions of 5 MiB: p50 and p99 of small ones, ms',
        `${figure(besideLarge.smallP50Ms, 1)}, ${figure(besideLarge.smallP99Ms, 1)}`,
      ],
      [
        'beside definitions of 5 MiB: event-loop delay p99 and longest, ms',
        `${figure(besideLarge.eventLoopDelayP99Ms, 1)}, ${figure(besideLarge.eventLoopDelayMaxMs, 1)}`,
      ],
    ],
  )
}

function scaleTable(scale: ScaleFigures | null): string {
  if (scale === null) return ''
  return table(
    ['measure', 'p50 ms'],
    [
      [`${number(scale.agents[0])} agents`, figure(scale.p50Ms[0], 2)],
      [`${number(scale.agents[1])} agents`, figure(scale.p50Ms[1], 2)],
      ['one connection, ordinary agent', figure(scale.ordinaryP50Ms, 2)],
      ['one connection, agent shared with 500 people and 200 groups, 100 versions', figure(scale.wideP50Ms, 2)],
    ],
  )
}

function section(title: string, body: string): string {
  return body === '' ? '' : `## ${title}\n\n${body}`
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  if (rows.length === 0) return ''
  return [head, head.map(() => '---'), ...rows].map(cells => `| ${cells.join(' | ')} |`).join('\n')
}

function figure(value: number | null, digits: number): string {
  if (value === null || Number.isNaN(value)) return '-'
  return digits === 0 ? number(Math.round(value)) : value.toFixed(digits)
}

function number(value: number): string {
  return value.toLocaleString('en')
}
