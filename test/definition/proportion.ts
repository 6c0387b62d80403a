/** What a piece of work took for a document of some bytes, and what a plain reader of the document took. */
export interface Measured {
  bytes: number
  ms: number
  controlMs: number
}

const MOST_EXPONENT = 1.1
/** A larger document leaves the processor's caches: what a plain reader of it costs beyond the proportion is granted to the check. */
const SLACK = 0.1
/** What a document may cost at any size: some rules are applied to as many operations as a definition may have. */
export const FLOOR_MS = 100

/** Time of this process's processor in ms, of all its threads, as the machine may be busy with other work. */
export function processorNow(): number {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1000
}

export function processorMs(run: () => void): number {
  const started = processorNow()
  run()
  return processorNow() - started
}

/** The slope of the straight line through the logarithms. */
function exponentOf(
  points: readonly Measured[],
  of: (point: Measured) => number,
  over: (point: Measured) => number,
): number {
  const xs = points.map(point => Math.log(over(point)))
  const ys = points.map(point => Math.log(of(point)))
  const mean = (values: readonly number[]) => values.reduce((sum, each) => sum + each, 0) / values.length
  const [meanX, meanY] = [mean(xs), mean(ys)]
  const covariance = xs.reduce((sum, x, i) => sum + (x - meanX) * ((ys[i] as number) - meanY), 0)
  return covariance / xs.reduce((sum, x) => sum + (x - meanX) ** 2, 0)
}

/** How the times grow with the bytes: as their first power, where it is linear. */
export function growthOf(points: readonly Measured[]): number {
  return exponentOf(
    points,
    ({ ms }) => ms,
    ({ bytes }) => bytes,
  )
}

/** Whether all of them grow at most in proportion to their bytes, whatever a plain reader does and however little they take. */
export function growsLinearlyPlainly(points: readonly Measured[]): boolean {
  return growthOf(points) <= MOST_EXPONENT
}

/**
 * Whether the time of the largest is little, or all of them grow at most in proportion to their bytes. `slowness`: how many times slower
 * than the reference machine this one was.
 */
export function growsLinearly(points: readonly Measured[], slowness = 1): boolean {
  const largest = points.at(-1) as Measured // one for each size
  if (points.length === 1 || largest.ms < FLOOR_MS * slowness) return true
  if (largest.ms === Infinity) return false
  if (growsLinearlyPlainly(points)) return true
  const control = exponentOf(
    points,
    ({ controlMs }) => controlMs,
    ({ bytes }) => bytes,
  )
  return growthOf(points) <= control + SLACK
}

/** Sizes and times for people. */
export function shown(points: readonly Measured[]): string {
  return points.map(({ bytes, ms }) => `${Math.round(bytes / 1000)} kB ${ms.toFixed(1)} ms`).join(', ')
}

/**
 * The piece of a campaign that `TEST_PART` asks for: with `2/6` the second of each six, without it all. Of these the ones whose name
 * matches `TEST_FAMILY`, if that is given, to look closer at one.
 */
export function partOf<Item extends { name: string }>(items: readonly Item[]): Item[] {
  const [part, parts] = partAsked()
  const named = new RegExp(process.env.TEST_FAMILY ?? '')
  return items.filter(({ name }, i) => i % parts === part - 1 && named.test(name))
}

function partAsked(): [part: number, parts: number] {
  const { TEST_PART: asked = '1/1' } = process.env
  const [, part, parts] = /^([1-9]\d?)\/([1-9]\d?)$/.exec(asked) ?? []
  if (part === undefined || parts === undefined || Number(part) > Number(parts))
    throw new Error(`TEST_PART must be like 2/6, not ${asked}`)
  return [Number(part), Number(parts)]
}
