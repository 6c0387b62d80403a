import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import t, { type Test } from 'tap'
import { InvalidRequest } from '../../src/errors.js'
import { parseExact, rememberNumbers, removeItems, stringifyExact } from '../../src/schema/exact-json.js'
import { inspection } from '../../src/tool/definition/check/check.js'
import { comparison } from '../../src/tool/definition/compare/compare.js'
import { completion } from '../../src/tool/definition/complete/complete.js'
import { functionViews } from '../../src/tool/definition/functions/functions.js'
import { type AgentTool, checkAgentTools, originsOf, TARGETS } from '../../src/tool/definition/index.js'
import { targetCheck } from '../../src/tool/definition/targets/report.js'
import { processorSlowness, threadMs } from '../slowness.js'
import { type Family, families, textOf } from './growth.js'
import { sharedFamilies } from './growth-shared.js'
import {
  FLOOR_MS,
  growsLinearly,
  growsLinearlyPlainly,
  growthOf,
  type Measured,
  partOf,
  processorMs,
  processorNow,
  shown,
} from './proportion.js'

const IS_FULL = process.env.TEST_CAMPAIGN === 'full'
/** A definition of each size is measured with its size halved and doubled; the limit of a body is 5 MiB. */
const SIZES_BYTES = IS_FULL ? [2_000, 64_000, 512_000, 2_400_000] : [30_000]
const MOST_CHECK_MS_PER_MB = 300
/** A completion converts a document once and checks it at most three times. */
const MOST_CHECKS_OF_COMPLETION = 4
/** The function view and the comparison are bounded by what they make and compare, whatever the size of the document. */
const MOST_OTHER_MS = 3000
/**
 * Beyond this one step is no longer short. Three things cannot be divided: to list the keys of one object, to make room in a map that
 * has hundreds of thousands of entries, and for a repair to copy an object or a list; so each step may take as long again as that of
 * the largest one beside it.
 */
const MOST_STEP_MS = 15
const MOST_CONTROLS = 1.5
const ROUNDS = 10
const CONTROL_ROUNDS = 4
const WARM_ROUNDS = 3
const ASKED_AFTER_MS = 2
/** What is compared with a definition is this much of it. */
const SMALLER = 0.9
/** How many results are shown that came nearest to their bounds. */
const NEAREST = 12

type Json = Record<string, unknown>

/** A document of a family, and what was measured beside it, made when it is first asked for. */
class Document {
  readonly text: string
  /** Of the text. */
  readonly size: number
  readonly definition: Json
  #other: Json | undefined
  #smaller: Json | undefined
  #readingMs: number | undefined
  #controls: Controls | undefined

  constructor(
    readonly family: Family,
    readonly bytes: number,
  ) {
    this.text = textOf(family, bytes)
    this.size = Buffer.byteLength(this.text)
    this.definition = parsed(this.text)
  }

  /** The same, with a member more. */
  get other(): Json {
    this.#other ??= { ...parsed(this.text), 'x-other': 1 }
    return this.#other
  }

  get smaller(): Json {
    this.#smaller ??= parsed(textOf(this.family, this.bytes * SMALLER))
    return this.#smaller
  }

  /** What a plain reader of it takes. */
  get readingMs(): number {
    this.#readingMs ??= bestMs(CONTROL_ROUNDS, () => readPlainly(this.text))
    return this.#readingMs
  }

  get controls(): Controls {
    this.#controls ??= new Controls(this)
    return this.#controls
  }
}

/** What is done with a document beside a view, in ms; each is measured when it is first asked for. */
class Controls {
  readonly #text: string
  readonly #largest: { object: Json; list: unknown[] }
  #listing: number | undefined
  #growing: number | undefined
  #copying: number | undefined

  constructor({ text, definition }: Document) {
    this.#text = text
    this.#largest = largestIn(definition)
  }

  /** To list the keys of the largest object. */
  get listing(): number {
    const { object } = this.#largest
    this.#listing ??= bestMs(ROUNDS, () => void Object.keys(object))
    return this.#listing
  }

  /** To make room in a map of all its values where that takes longest. */
  get growing(): number {
    this.#growing ??= growingMs(readPlainly(this.#text))
    return this.#growing
  }

  /** To copy the largest object and list its keys again, or to copy the largest list. */
  get copying(): number {
    const { object, list } = this.#largest
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
    this.#copying ??= Math.max(bestMs(ROUNDS, copyObject), bestMs(ROUNDS, copyList))
    return this.#copying
  }
}

/** Something that is made of a definition in steps. */
interface View {
  readonly name: string
  readonly begin: (document: Document) => Generator<void, unknown>
  /** Of how many checks it may have the time, in proportion to the document; undefined where what it makes is bounded. */
  readonly checks: number | undefined
  /** True if it copies what it repairs. */
  readonly copies?: boolean
  /** True for one that `npm test` takes at three sizes too; the others are made of the check, which is linear. */
  readonly isHalvedAndDoubled?: boolean
  /** True for one of which the steps at the middle size show all: what else it does is in another view. */
  readonly isPartOfOthers?: boolean
}

const COMPLETE_OPTIONS = { dropsUnsupported: true, server: 'https://given.example.com' }

function completionOf(definition: Json): Generator<void, unknown> {
  return completion(definition, COMPLETE_OPTIONS)
}

const LARGER: View = {
  name: 'comparison with a larger one',
  begin: ({ definition, smaller }) => comparison(smaller, definition, {}),
  checks: undefined,
  isPartOfOthers: true,
}

const ALL_VIEWS: readonly View[] = [
  {
    name: 'check',
    begin: ({ definition }) => inspection(definition, {}, true),
    checks: 1,
    isHalvedAndDoubled: true,
  },
  { name: 'origins', begin: ({ definition }) => originsOf(definition), checks: 1, isHalvedAndDoubled: true },
  {
    name: 'completion',
    begin: ({ definition }) => completionOf(definition),
    checks: MOST_CHECKS_OF_COMPLETION,
    copies: true,
  },
  {
    name: 'completion as Swagger 2.0',
    begin: ({ definition }) => completionOf({ ...definition, openapi: undefined, swagger: '2.0' }),
    checks: MOST_CHECKS_OF_COMPLETION,
    copies: true,
  },
  {
    name: 'functions',
    begin: ({ definition }) => functionViews(definition, {}),
    checks: undefined,
    isPartOfOthers: true,
  },
  ...(IS_FULL ? TARGETS : (['gemini'] as const)).map(target => ({
    name: `functions for ${target}`,
    begin: ({ definition }: Document) => targetCheck(definition, target, {}),
    checks: undefined,
    isPartOfOthers: target !== 'gemini',
  })),
  {
    name: 'comparison with its like',
    begin: ({ definition, other }) => comparison(definition, other, {}),
    checks: undefined,
  },
  {
    name: 'comparison with a smaller one',
    begin: ({ definition, smaller }) => comparison(definition, smaller, {}),
    checks: undefined,
  },
  ...(IS_FULL ? [LARGER] : []),
]
/** `TEST_VIEW` picks those whose name matches, to look closer at one. */
const VIEWS = ALL_VIEWS.filter(({ name }) => new RegExp(process.env.TEST_VIEW ?? '').test(name))

/** What one view took of one document: the time of the processor, and each step as it was in the best of a few attempts. */
interface Point extends Measured {
  readonly document: Document
  steps: number[] | undefined
}

/** What a view took, and how many times slower than the reference machine this one was meanwhile: all limits grow by that. */
interface Measurement {
  readonly points: readonly Point[]
  slowness: number
}

function parsed(text: string): Json {
  return parseExact(text) as Json // each family is an object
}

/** Takes the steps of a view one by one; a refusal, as of functions that would be too large, ends it as well. */
function takeSteps(begin: () => Generator<void, unknown>, take: (next: () => void) => void): void {
  let isDone = false
  const steps = begin()
  const next = () => {
    isDone = true
    try {
      isDone = steps.next().done === true
    } catch (error) {
      if (!(error instanceof InvalidRequest)) throw error
    }
  }
  while (!isDone) take(next)
}

/**
 * Measures a view of some documents until all is as it should be, at most `ROUNDS` times: other work on the machine and collections of
 * garbage only add. The time, also of each step, is that of the processor. What is not as it should be is measured beside a control, of
 * which the best attempt counts too; in full the limits are those of the reference machine.
 */
function measure(view: View, documents: readonly Document[]): Measurement {
  const points = documents.map(
    (document): Point => ({
      document,
      bytes: document.size,
      ms: Infinity,
      get controlMs() {
        return document.readingMs
      },
      steps: undefined,
    }),
  )
  // What takes little is compiled in its first rounds.
  const isCold = (round: number) => IS_FULL && round < WARM_ROUNDS && points.every(({ ms }) => ms < FLOOR_MS)
  const measurement = { points, slowness: 1 }
  let slownessSeen = Infinity
  for (let round = 0; round < ROUNDS && (isCold(round) || !isFine(view, measurement)); round++) {
    for (const point of points) {
      if (IS_FULL && round > 0) collectGarbage()
      const clock = new StepClock()
      const ms = processorMs(() =>
        takeSteps(
          () => view.begin(point.document),
          next => clock.time(next),
        ),
      )
      const seen = clock.steps
      point.ms = Math.min(point.ms, ms)
      point.steps = point.steps === undefined ? seen : seen.map((each, i) => Math.min(each, point.steps?.[i] ?? each))
    }
    if (IS_FULL || isFine(view, measurement)) continue
    slownessSeen = Math.min(slownessSeen, processorSlowness())
    measurement.slowness = slownessSeen
  }
  return measurement
}

/**
 * Times steps by the clock where that says that they are short, else without what the thread waited for a processor, or for others that
 * collect its garbage and wait for one. To ask for that takes as long as many a step, so that it is asked before a few of them at once:
 * what was before a long one counts for it.
 */
class StepClock {
  readonly steps: number[] = []
  #asked = performance.now()
  #thread = threadMs()
  #processor = processorNow()

  time(next: () => void): void {
    const started = performance.now()
    next()
    const tookMs = performance.now() - started
    if (tookMs <= ASKED_AFTER_MS) this.steps.push(tookMs)
    else this.steps.push(Math.min(tookMs, threadMs() - this.#thread, processorNow() - this.#processor))
    if (performance.now() - this.#asked <= ASKED_AFTER_MS) return
    this.#thread = threadMs()
    this.#processor = processorNow()
    this.#asked = performance.now()
  }
}

setFlagsFromString('--expose-gc')
const collectGarbage = runInNewContext('gc') as () => void // what the flag is for

function isFine(view: View, { points, slowness }: Measurement): boolean {
  if (points.some(({ ms }) => ms === Infinity)) return false
  const isProportional = view.checks === undefined || growsLinearly(points, slowness)
  return isProportional && points.every(each => shareOf(view, each) <= slowness)
}

/** How much of what it may take on the reference machine a view took: 1 is all of it. */
function shareOf(view: View, point: Point): number {
  const longest = longestOf(point)
  const share = point.ms / mostMs(view, point.bytes)
  return longest <= MOST_STEP_MS
    ? Math.max(share, longest / MOST_STEP_MS)
    : Math.max(share, longest / mostStepMs(view, point.document))
}

/** What a check may cost at any size, each check of a completion may. */
function mostMs({ checks }: View, bytes: number): number {
  return checks === undefined ? MOST_OTHER_MS : checks * Math.max(FLOOR_MS, (MOST_CHECK_MS_PER_MB * bytes) / 1e6)
}

function mostStepMs({ copies }: View, { controls }: Document): number {
  const whole = copies === true ? controls.copying : controls.listing
  return MOST_STEP_MS + MOST_CONTROLS * Math.max(whole, controls.growing)
}

function longestOf({ steps = [] }: Point): number {
  return steps.reduce((most, ms) => Math.max(most, ms), 0)
}

function tellsOf(view: View, { points, slowness }: Measurement): string {
  const growth = points.length > 1 ? `, exponent ${growthOf(points).toFixed(2)}` : ''
  const msPerMb = points.reduce((most, { ms, bytes }) => Math.max(most, (ms * 1e6) / bytes), 0)
  const steps = points.map(each => {
    const longest = longestOf(each)
    return longest <= MOST_STEP_MS
      ? longest.toFixed(1)
      : `${longest.toFixed(1)} of ${mostStepMs(view, each.document).toFixed(0)}`
  })
  return `${shown(points)}${growth}, at most ${msPerMb.toFixed(0)} ms/MB; longest steps ${steps.join(', ')} ms; slowness ${slowness.toFixed(1)}`
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

function bestMs(rounds: number, work: () => void): number {
  return Math.min(...Array.from({ length: rounds }, () => processorMs(work)))
}

/** What it takes at most to add one entry to a map, until it has so many; as it is in the best of a few attempts. */
function growingMs(entries: number): number {
  let best = Infinity
  for (let round = 0; round < CONTROL_ROUNDS; round++) {
    const map = new Map<number, number>()
    let most = 0
    for (let i = 0; i < entries; i++) {
      const started = performance.now()
      map.set(i, i)
      most = Math.max(most, performance.now() - started)
    }
    best = Math.min(best, most)
  }
  return best
}

/** Parses a document and remembers each object and text once, which is linear work if anything is. */
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

t.setTimeout(IS_FULL ? 3_600_000 : 900_000)

const kinds = [...families, ...sharedFamilies]
const asked = partOf(kinds)
const results: { view: View; points: readonly Measured[]; share: number; text: string }[] = []

function judge(t: Test, view: View, documents: readonly Document[]): void {
  const measurement = measure(view, documents)
  const { points } = measurement
  const text = `${view.name} of ${points[0]?.document.family.name}: ${tellsOf(view, measurement)}`
  results.push({
    view,
    points: withoutDocuments(points),
    share: Math.max(...points.map(each => shareOf(view, each))),
    text,
  })
  t.ok(isFine(view, measurement), text)
}

/** All documents together are gigabytes: kept, each collection of garbage would go through them, in the time of the next one measured. */
function withoutDocuments(points: readonly Point[]): Measured[] {
  const isPlain = points.length === 1 || growsLinearlyPlainly(points)
  return points.map(each => ({ bytes: each.bytes, ms: each.ms, controlMs: isPlain ? each.ms : each.controlMs }))
}

/** Numbers are read and written in the time of a check each. */
function judgeNumbers(t: Test, { family, text, size }: Document): void {
  const most = Math.max(FLOOR_MS, (2 * MOST_CHECK_MS_PER_MB * size) / 1e6)
  let best = Infinity
  let slowness = 1
  for (let round = 0; round < ROUNDS && best > most * slowness; round++) {
    const ms = processorMs(() => void stringifyExact(parsed(text)))
    best = Math.min(best, ms)
    if (!IS_FULL && best > most) slowness = processorSlowness()
  }
  t.ok(best <= most * slowness, `numbers of ${family.name}: ${size} bytes ${best.toFixed(1)} ms of ${most.toFixed(0)}`)
}

t.test('growth: 200 kinds and sizes of definitions, each halved and doubled', async t => {
  const whole = kinds.length * SIZES_BYTES.length
  t.ok(!IS_FULL || whole >= 200, `${whole} definitions`)
})

for (const family of asked) {
  t.test(`growth: ${family.name}`, async t => {
    for (const bytes of SIZES_BYTES) {
      const [half, plain, double] = [bytes / 2, bytes, bytes * 2].map(size => new Document(family, size)) as [
        Document,
        Document,
        Document,
      ]
      judgeNumbers(t, plain)
      judgeNumbers(t, double)
      for (const view of VIEWS) {
        if (IS_FULL ? view.checks !== undefined : view.isHalvedAndDoubled === true)
          judge(t, view, [half, plain, double])
        else judge(t, view, IS_FULL && view.isPartOfOthers !== true ? [plain, double] : [plain])
      }
    }
  })
}

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
    if (asked.length === kinds.length)
      t.ok(report.tools.some(each => each.functions > 0) && report.tools.some(each => each.refused !== undefined))
    const ms = (used.user + used.system) / 1000
    t.ok(ms <= tools.length * MOST_OTHER_MS, `${tools.length} tools: ${ms.toFixed(0)} ms`)
  },
)

t.test('growth: many small schemas of one operation are many short steps', async t => {
  const family = families.find(({ name }) => name.startsWith('schemas that each have a name')) as Family // above
  const document = new Document(family, IS_FULL ? 4_800_000 : 700_000)
  for (const view of VIEWS.filter(({ checks }) => checks === undefined)) judge(t, view, [document])
})

/** How many grow linearly by themselves, and how many only as a plain reader does, which fills caches and has garbage collected too. */
function tellsOfAll(view: View): string {
  const fitted = results.filter(each => each.view === view && each.points.length > 1).map(({ points }) => points)
  const plain = fitted.filter(growsLinearlyPlainly).length
  const beside = fitted.filter(each => growsLinearly(each)).length
  return `${view.name}: of ${fitted.length} fits ${plain} by themselves, ${beside - plain} more below ${FLOOR_MS} ms or beside a plain reader`
}

t.teardown(() => {
  for (const view of VIEWS.filter(({ checks }) => checks !== undefined)) t.comment(tellsOfAll(view))
  const nearest = results.sort((a, b) => b.share - a.share).slice(0, NEAREST)
  for (const { share, text } of nearest) t.comment(`${(100 * share).toFixed(0)} % of what it may take: ${text}`)
})
