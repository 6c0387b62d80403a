import t, { type Test } from 'tap'
import { InvalidRequest } from '../../src/errors.js'
import { parseExact, rememberNumbers, removeItems, stringifyExact } from '../../src/schema/exact-json.js'
import { inspection } from '../../src/tool/definition/check/check.js'
import { comparison } from '../../src/tool/definition/compare/compare.js'
import { completion } from '../../src/tool/definition/complete/complete.js'
import { functionViews } from '../../src/tool/definition/functions/functions.js'
import {
  type AgentTool,
  checkAgentTools,
  checkDefinition,
  checkForTarget,
  compareDefinitions,
  completeDefinition,
  toFunctions,
} from '../../src/tool/definition/index.js'
import { targetCheck } from '../../src/tool/definition/targets/report.js'
import { type Family, families, textOf } from './growth.js'
import { FLOOR_MS, growsLinearly, type Measured, partOf, processorMs, shown } from './proportion.js'

const IS_FULL = process.env.TEST_CAMPAIGN === 'full'
/** A definition of each size is measured with its size halved and doubled; the limit of a body is 5 MiB. */
const SIZES_BYTES = IS_FULL ? [4_000, 64_000, 512_000, 2_400_000] : [60_000]
const MOST_CHECK_MS_PER_MB = 300
/** A completion converts a document once and checks it at most three times. */
const MOST_CHECKS_OF_COMPLETION = 4
/** The function view and the comparison are bounded by what they make and compare, whatever the size of the document. */
const MOST_OTHER_MS = 3000
/**
 * Beyond this one step is no longer short. Two things cannot be divided, to list the keys of one object and, for a repair, to copy an
 * object or a list; so each step may take as long again as that of the largest one beside it.
 */
const MOST_STEP_MS = 15
const MOST_CONTROLS = 1.5
const ROUNDS = 8

type Json = Record<string, unknown>
type Work = (definition: Json, text: string) => void

/** Measures documents of these sizes until all is as it should be, at most `ROUNDS` times: noise only adds. */
function measure(
  family: Family,
  sizes: readonly number[],
  work: Work,
  isFine: (points: readonly Measured[]) => boolean,
): Measured[] {
  const documents = sizes.map(size => {
    const text = textOf(family, size)
    return { text, definition: parsed(text) }
  })
  const points = documents.map(({ text }) => ({ bytes: text.length, ms: Infinity, controlMs: Infinity }))
  for (let round = 0; round < ROUNDS && !isFine(points); round++) {
    documents.forEach(({ text, definition }, i) => {
      const point = points[i] as Measured // one for each document
      point.ms = Math.min(
        point.ms,
        processorMs(() => work(definition, text)),
      )
      point.controlMs = Math.min(
        point.controlMs,
        processorMs(() => readPlainly(text)),
      )
    })
  }
  return points
}

function parsed(text: string): Json {
  return parseExact(text) as Json // each family is an object
}

/** The control: parses a document and remembers each object and text once, which is linear work if anything is. */
function readPlainly(text: string): number {
  const known = new Map<unknown, number>()
  const pending: unknown[] = [JSON.parse(text)]
  for (let value = pending.pop(); value !== undefined; value = pending.pop()) {
    known.set(value, known.size)
    if (typeof value !== 'object' || value === null) continue
    for (const key of Object.keys(value)) pending.push(key, (value as Record<string, unknown>)[key])
  }
  return known.size
}

/** What makes functions, of a definition that is accepted and not too large for them. */
function unlessTooLarge(work: () => void): void {
  try {
    work()
  } catch (error) {
    if (!(error instanceof InvalidRequest)) throw error
  }
}

const COMPLETE_OPTIONS = { dropsUnsupported: true, server: 'https://given.example.com' }

/** The same document as it is, and as one that says to be Swagger 2.0. */
const VERSIONS: readonly [string, (definition: Record<string, unknown>) => Record<string, unknown>][] = [
  ['', definition => definition],
  [' as Swagger 2.0', definition => ({ ...definition, openapi: undefined, swagger: '2.0' })],
]

/**
 * The longest step in ms of the processor. Other work on the machine and collections of garbage only add, and strike another step each
 * time; so each step counts as it was in the best of a few attempts.
 */
function longestStepMs(begin: () => Generator<void, unknown>, fine: number): number {
  let best: number[] = []
  for (let round = 0; round < ROUNDS && (round === 0 || longestOf(best) > fine); round++) {
    const seen = stepsMs(begin())
    best = round === 0 ? seen : seen.map((ms, step) => Math.min(ms, best[step] ?? ms))
  }
  return longestOf(best)
}

function stepsMs(steps: Generator<void, unknown>): number[] {
  const seen: number[] = []
  for (let isDone = false; !isDone; ) {
    const ms = processorMs(() =>
      unlessTooLarge(() => {
        isDone = true
        isDone = steps.next().done === true
      }),
    )
    seen.push(ms)
  }
  return seen
}

function longestOf(steps: readonly number[]): number {
  return steps.reduce((most, ms) => Math.max(most, ms), 0)
}

/** The object with the most members, and the list. */
function largestIn(value: unknown): { object: Json; list: unknown[] } {
  let object: Json = {}
  let mostMembers = 0
  let list: unknown[] = []
  const pending = [value]
  for (let at = pending.pop(); at !== undefined; at = pending.pop()) {
    if (typeof at !== 'object' || at === null) continue
    const members = Object.values(at)
    for (const member of members) pending.push(member)
    if (Array.isArray(at)) list = at.length > list.length ? at : list
    else if (members.length > mostMembers) {
      mostMembers = members.length
      object = at as Json // neither null nor a list
    }
  }
  return { object, list }
}

/** What to list the keys of the largest object takes; and what to copy it and list them again, or to copy the largest list. */
function controlsMs(value: unknown): { listing: number; copying: number } {
  const { object, list } = largestIn(value)
  const listObject = () => void Object.keys(object)
  const copyObject = () => {
    const copy: Json = {}
    for (const key of Object.keys(object)) copy[key] = object[key]
    Object.keys(copy)
  }
  const copyList = () => {
    const copy = [...list]
    rememberNumbers(list, copy)
    removeItems(copy, new Set([0]))
  }
  const best = (work: () => void) => Math.min(...Array.from({ length: ROUNDS }, () => processorMs(work)))
  return { listing: best(listObject), copying: Math.max(best(copyObject), best(copyList)) }
}

/** Whether the time grows in proportion, and is that of so many checks at most. */
const isProportional = (mostChecks: number) => (points: readonly Measured[]) =>
  growsLinearly(points) &&
  points.every(point => point.ms <= Math.max(FLOOR_MS, (mostChecks * MOST_CHECK_MS_PER_MB * point.bytes) / 1e6))

t.setTimeout(IS_FULL ? 3_600_000 : 280_000)

const asked = partOf(families)
const definitions = asked.flatMap(family => SIZES_BYTES.map(bytes => ({ family, bytes })))

t.test('growth: the check takes time in proportion to the document, and little of it', async t => {
  const whole = families.length * SIZES_BYTES.length
  t.ok(!IS_FULL || whole >= 200, `${definitions.length} of ${whole} definitions`)
  for (const { family, bytes } of definitions) {
    const check: Work = definition => void checkDefinition(definition)
    const isFine = isProportional(1)
    const points = measure(family, [bytes / 2, bytes, bytes * 2], check, isFine)
    t.ok(isFine(points), `${family.name}: ${shown(points)}`)
  }
})

t.test('growth: the numbers of a document are read and written in the time of a check each', async t => {
  for (const { family, bytes } of definitions) {
    const mostMs = (each: Measured) => Math.max(FLOOR_MS, (2 * MOST_CHECK_MS_PER_MB * each.bytes) / 1e6)
    const isFine = (points: readonly Measured[]) => points.every(point => point.ms <= mostMs(point))
    const copy: Work = (_, text) => void stringifyExact(parsed(text))
    const points = measure(family, [bytes, bytes * 2], copy, isFine)
    t.ok(isFine(points), `${family.name}: ${shown(points)}`)
  }
})

t.test('growth: a completion takes time in proportion to the document, and that of a few checks', async t => {
  for (const { family, bytes } of definitions) {
    const isFine = isProportional(MOST_CHECKS_OF_COMPLETION)
    for (const [name, versionOf] of VERSIONS) {
      const complete: Work = definition => void completeDefinition(versionOf(definition), COMPLETE_OPTIONS)
      // It makes of the check what is linear already, so that the full campaign alone looks at three sizes.
      const points = measure(family, IS_FULL ? [bytes / 2, bytes, bytes * 2] : [bytes], complete, isFine)
      t.ok(isFine(points), `${family.name}${name}: ${shown(points)}`)
    }
  }
})

t.test('growth: functions, comparison and targets are bounded by what they may make', async t => {
  for (const { family, bytes } of definitions) {
    const isFine = (points: readonly Measured[]) => points.every(point => point.ms <= MOST_OTHER_MS)
    const functions = measure(family, [bytes], definition => unlessTooLarge(() => toFunctions(definition)), isFine)
    t.ok(isFine(functions), `functions of ${family.name}: ${shown(functions)}`)
    const compare: Work = (definition, text) => {
      compareDefinitions(definition, { ...(JSON.parse(text) as object), 'x-other': 1 })
    }
    const compared = measure(family, [bytes], compare, isFine)
    t.ok(isFine(compared), `comparison of ${family.name}: ${shown(compared)}`)
    const judge: Work = definition => unlessTooLarge(() => checkForTarget(definition, 'gemini'))
    const judged = measure(family, [bytes], judge, isFine)
    t.ok(isFine(judged), `target of ${family.name}: ${shown(judged)}`)
  }
})

t.test(
  'growth: an agent with hostile tools costs what its tools cost, and one of them does not hide the others',
  async t => {
    const bytes = IS_FULL ? 512_000 : 30_000
    const tools: AgentTool[] = asked.map((family, id) => {
      const definition = parsed(textOf(family, bytes))
      return { id, name: family.name, definition }
    })
    const started = process.cpuUsage()
    const report = await checkAgentTools(tools, 'anthropic')
    const used = process.cpuUsage(started)
    t.same(
      report.tools.map(each => each.id),
      tools.map(each => each.id),
    )
    if (asked.length === families.length)
      t.ok(report.tools.some(each => each.functions > 0) && report.tools.some(each => each.refused !== undefined))
    const ms = (used.user + used.system) / 1000
    t.ok(ms <= tools.length * MOST_OTHER_MS, `${tools.length} tools: ${ms.toFixed(0)} ms`)
  },
)

/** The view for a target is made of that of functions; what the comparison has of its own takes larger documents to show. */
const ONLY_IN_FULL = new Set(['functions', 'comparison'])

/** All that goes through a definition in steps. */
function worksOn(definition: Json, text: string): [string, () => Generator<void, unknown>][] {
  const other = { ...parsed(text), 'x-other': 1 }
  return [
    ['functions', () => functionViews(definition, {})],
    ['target', () => targetCheck(definition, 'anthropic', {})],
    ['comparison', () => comparison(definition, other, {})],
    ...VERSIONS.map(([name, versionOf]): [string, () => Generator<void, unknown>] => [
      `completion${name}`,
      () => completion(versionOf(definition), COMPLETE_OPTIONS),
    ]),
  ]
}

t.test('growth: no step is long, so that nothing here ever holds the event loop', async t => {
  for (const { family, bytes } of definitions) {
    const definition = parsed(textOf(family, bytes))
    // The others are made of the check's steps and a few of their own: a smaller document shows these.
    const smaller = textOf(family, IS_FULL ? bytes : 30_000)
    requireShortSteps(t, family, definition, [
      ['check', () => inspection(definition, {}, true)],
      ...worksOn(parsed(smaller), smaller).filter(([name]) => IS_FULL || !ONLY_IN_FULL.has(name)),
    ])
  }
})

t.test('growth: many small schemas of one operation are many short steps', async t => {
  const family = families.find(({ name }) => name.startsWith('schemas that each have a name')) as Family // above
  const text = textOf(family, 1_400_000)
  const definition = parsed(text)
  requireShortSteps(t, family, definition, worksOn(definition, text))
})

function requireShortSteps(
  t: Test,
  { name: family }: Family,
  definition: Json,
  works: readonly [string, () => Generator<void, unknown>][],
): void {
  const { listing, copying } = controlsMs(definition)
  for (const [name, begin] of works) {
    const most = MOST_STEP_MS + MOST_CONTROLS * (name.startsWith('completion') ? copying : listing)
    const longest = longestStepMs(begin, most)
    t.ok(longest <= most, `${name} of ${family}: ${longest.toFixed(1)} ms of ${most.toFixed(1)}`)
  }
}
