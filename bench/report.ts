import { cpus, loadavg, totalmem } from 'node:os'
import type { CaseOfBoth } from './against.js'
import { BATCH_ROWS } from './captured.js'
import { median, type Spread, spread } from './measure.js'
import type { ProcessFigures } from './process-figures.js'
import type { CaseFigures, ControlName, Slot, SweepFigures } from './rounds.js'
import type { ScaleFigures } from './scale.js'
import type { WorldSize } from './world.js'

/** One run of the benchmark; `results.json` holds it as it is. */
export interface Report {
  at: string
  version: string
  /** The commit that was checked out, `+` behind it when files were changed; null without git. */
  commit: string | null
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

/** The report as Markdown, goals first; of a quick run it is not said whether they are met. */
export function markdownOf(report: Report, quick: boolean): string {
  const { size } = report
  const commit = report.commit === null ? '' : `, commit ${report.commit}`
  return [
    `Version ${report.version}${commit}, measured ${report.at} on ${report.machine}; load average at the start ${report.loadAtStart}.`,
    `${report.database}. ${number(size.agents)} agents, ${number(size.tools)} tools, ${number(size.users)} users, ` +
      `${number(size.groups)} groups. ${report.connections} connections unless said otherwise; rate limits off, log level ` +
      `\`warn\`; medians of ${report.rounds} interleaved rounds. The load generator shares the processors.`,
    section('Goals', goalTable(report, quick)),
    section('Requests', `${REQUESTS_MEANING}\n\n${caseTable(report)}`),
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

/** What each case takes of two builds. The change is that of each round; its median and spread count less work, not less waiting. */
export function markdownOfBuilds(checkout: string, cases: readonly CaseOfBoth[], loadAtStart: number): string {
  const rows = cases.map(({ name, before, after }) => {
    const both = (figureOf: (slot: Slot) => number | null, digits: number) =>
      [before, after].map(slots => figure(median(slots.map(figureOf)), digits)).join(', ')
    const changes = after.map(({ allMs }, round) => {
      const earlier = before[round]?.allMs
      return allMs && earlier ? (allMs / earlier - 1) * 100 : null
    })
    return [
      name,
      both(slot => slot.allMs, 3),
      figure(median(changes), 0),
      range(spread(changes), 0),
      both(slot => slot.serviceMs, 3),
      both(slot => slot.databaseMs, 3),
      both(slot => slot.statements, 2),
      both(slot => slot.p50Ms, 2),
      both(slot => slot.p99Ms, 2),
    ]
  })
  const head = [
    'case',
    'processor ms of all',
    'change, %',
    'of the rounds',
    'of the service',
    'of PostgreSQL',
    'statements',
    'p50 ms',
    'p99 ms',
  ]
  const meaning = `${checkout} and this build in turns, for one request of each; load average at the start ${loadAtStart}.`
  return `${section('Both builds', `${meaning}\n\n${table(head, rows)}`)}\n`
}

interface Goal {
  measure: string
  reached: number | null
  /** Of the rounds, where each has its own. */
  spread?: Spread | null
  /** The same by processor time, where there is such a measure. */
  byProcessor?: number | null
  processorSpread?: Spread | null
  goal: number
  atLeast: boolean
}

function goalTable(report: Report, quick: boolean): string {
  const rows = goalsOf(report)
    .filter(({ reached }) => reached !== null)
    .map(({ measure, reached, spread, byProcessor = null, processorSpread, goal, atLeast }) => {
      const met = atLeast ? (reached ?? 0) >= goal : (reached ?? 0) <= goal
      return [
        measure,
        `${atLeast ? 'at least' : 'at most'} ${goal}`,
        figure(reached, 2),
        range(spread, 2),
        quick ? '' : met ? 'yes' : 'no',
        byProcessor === null ? '' : figure(byProcessor, 2),
        range(processorSpread, 2),
      ]
    })
  return table(['measure', 'goal', 'reached', 'of the rounds', 'met', 'by processor time', 'of the rounds'], rows)
}

function goalsOf(report: Report): Goal[] {
  const find = (name: string) => report.cases.find(found => found.name === name)
  const control = (name: string, wanted: ControlName) => find(name)?.controls.find(found => found.name === wanted)
  const over = (measure: string, name: string, wanted: ControlName, goal: number): Goal => {
    const found = wanted === 'pgbench' && report.databaseControl !== 'pgbench' ? undefined : control(name, wanted)
    const { ratio = null, processorRatio: byProcessor = null } = found ?? {}
    const { ratio: spread = null, processorRatio: processorSpread = null } = found?.spread ?? {}
    return { measure, reached: ratio, spread, byProcessor, processorSpread, goal, atLeast: true }
  }
  const most = (measure: string, reached: number | null, goal: number, spread: Spread | null = null): Goal => {
    return { measure, reached, spread, goal, atLeast: false }
  }
  const at = (connections: number) => report.sweep.find(s => s.connections === connections && s.processes === 1)
  const [many, few] = [at(256)?.perSecond, at(16)?.perSecond]
  const sweep = many && few ? many / few : null
  const update = find('agent update')
  const minimal = find('agent update, return=minimal')
  const rehearsal = find('agent update, dry run')?.perSecond
  const dryRun = update?.perSecond && rehearsal ? rehearsal / update.perSecond : null
  return [
    most('agent update, processor ms of all', update?.allMs ?? null, 0.38, update?.spread.allMs),
    most(
      'agent update with `return=minimal`, processor ms of all',
      minimal?.allMs ?? null,
      0.22,
      minimal?.spread.allMs,
    ),
    over('agent update over pgbench, same statements', 'agent update', 'pgbench', 2.2),
    over('agent update over pgbench in batches', 'agent update', 'batches', 0.8),
    over('tool update over pgbench, same statements', 'tool update, 10 operations', 'pgbench', 1.2),
    over('agent update over the eleven-statement transaction', 'agent update', 'eleven', 5),
    { measure: 'dry run over the real update', reached: dryRun, goal: 0.9, atLeast: true },
    over('validation of 300 operations over echo behind a look-up', 'validation, 300 operations', 'lookup', 0.75),
    over('validation of 1 MB over echo behind a look-up', 'validation, 1 MB', 'lookup', 0.75),
    over('validation of 10 operations over echo behind a look-up', 'validation, 10 operations', 'lookup', 0.7),
    over('422 of a definition over echo behind a look-up', '422, validation', 'lookup', 0.7),
    over('422 of an agent update over echo behind a look-up', '422, agent update', 'lookup', 0.8),
    over('401 without a token over echo', '401, no token', 'echo', 0.7),
    over('401 for a malformed token over echo', '401, malformed token', 'echo', 0.7),
    over('401 for an unknown token over echo behind a look-up', '401, unknown token', 'lookup', 0.9),
    most('agent update, p99 over p50', update?.p99OverP50 ?? null, 2.5, update?.spread.p99OverP50),
    most('agent update of one connection alone, p50 ms', at(1)?.p50Ms ?? null, 1, at(1)?.p50Spread),
    { measure: '256 connections over 16, throughput', reached: sweep, goal: 0.9, atLeast: true },
    most('1,000,000 agents over 1,000, p50 of the agent update', report.scale?.p50Ratio ?? null, 1.1),
    most('MiB resident after the mixed requests', report.process?.residentAfterMixedMib ?? null, 110),
    most('seconds to start with an existing database', report.process && report.process.startMs / 1000, 1),
  ]
}

const REQUESTS_MEANING =
  'Processor ms of a request: of all (service, PostgreSQL and the load generator) with the smallest and largest round, of the service, ' +
  'and of PostgreSQL. Statements and round trips are what one request comes to: a batch serves several. Agents have two tools, one ' +
  'document set and one label where nothing else is said.'

function caseTable({ cases }: Report): string {
  const head = [
    'case',
    'processor ms of all',
    'of the rounds',
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
      range(found.spread.allMs, 3),
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

function controlTable({ cases, connections, databaseControl }: Report): string {
  const names: Record<ControlName, string> = {
    pgbench: databaseControl,
    batches: `${databaseControl} in batches of ${BATCH_ROWS}`,
    echo: 'echo',
    lookup: 'echo behind a look-up',
    eleven: 'eleven statements',
  }
  const rows = cases.flatMap(({ name, controls }) =>
    controls.map(control => [
      name,
      names[control.name],
      figure(control.allMs, 3),
      figure(control.ratio, 2),
      range(control.spread.ratio, 2),
      figure(control.processorRatio, 2),
      range(control.spread.processorRatio, 2),
    ]),
  )
  const head = [
    'case',
    'control',
    'its processor ms',
    'by throughput',
    'of the rounds',
    'by processor time',
    'of the rounds',
  ]
  const meaning = [
    "Processor time of one request of the control, its client and PostgreSQL included; the service's throughput over the control's, and " +
      "the control's processor time over the service's, each with the smallest and largest round.",
    'Where others work on the machine neither ratio comes again: in two runs of 1.4.0, at loads of 1 and of 10, the same one by processor ' +
      'time was 1.87 and 1.09. Compare within one run.',
    `pgbench sends the service's own statements, over sessions that are warm, one update at a time; in batches it has ${connections} times ` +
      `${BATCH_ROWS} updates under way, the service ${connections}. The eleven statements answer by the service's snapshot and are planned by its settings.`,
  ]
  return `${meaning.join('\n')}\n\n${table(head, rows)}`
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

function range(spread: Spread | null | undefined, digits: number): string {
  return spread ? spread.map(value => figure(value, digits)).join(' to ') : ''
}

function number(value: number): string {
  return value.toLocaleString('en')
}
