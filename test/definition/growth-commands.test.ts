import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { parseDocument, stringify } from 'yaml'
import { parseExact } from '../../src/schema/exact-json.js'
import { agentctl } from '../cli/agentctl.js'
import { worldDatabase } from '../world.js'
import { families, textOf } from './growth.js'
import { growsLinearly, type Measured, partOf, shown } from './proportion.js'
import { yamlFamilies } from './yaml-growth.js'

/*
 * The commands that take a definition from a file. In full every family is given as JSON and as YAML, and each file also halved and
 * doubled; else what only YAML can say, of a size that takes no time, shows that a command ends as it should.
 */

const IS_FULL = process.env.TEST_CAMPAIGN === 'full'
const BYTES = IS_FULL ? 200_000 : 6_000
const SIZES_BYTES = IS_FULL ? [BYTES / 2, BYTES, BYTES * 2] : [BYTES]
const ROUNDS = 4
/** A YAML file is read up to four times, and what is made of it, at most a megabyte more, is written and read again. */
const MOST_MS = 20_000
/**
 * A definition beyond a limit is refused where half of it is accepted, and then it is read once more, for the line of the fault: the
 * one takes longer than the other. What takes little more than to read the file is fine at each size.
 */
const MOST_CONTROLS = 4

t.setTimeout(IS_FULL ? 3_600_000 : 900_000)

const { url } = await worldDatabase(t)
const folder = mkdtempSync(join(tmpdir(), 'growth-'))
t.teardown(() => rmSync(folder, { recursive: true }))
const path = join(folder, 'definition')
const output = join(folder, 'completed')

const COMMANDS: readonly (readonly string[])[] = [
  ['validate', path, '--complete', '--server', 'https://given.example.com', '--drop', 'unsupported', '-o', output],
  ['validate', path, '--json'],
  ['validate', path, '--target', 'openai', '--sarif'],
  ['tool', 'create', '--plan', '--definition', path, '--name', 'hostile'],
]

interface TextFamily {
  name: string
  text(bytes: number): string
}

const FILES: readonly TextFamily[] = partOf<TextFamily>([
  ...yamlFamilies.map(family => ({ name: family.name, text: (bytes: number) => textOf(family, bytes) })),
  ...(IS_FULL ? families : []).flatMap(family => [
    { name: family.name, text: (bytes: number) => textOf(family, bytes) },
    { name: `${family.name}, as YAML`, text: (bytes: number) => stringify(parseExact(textOf(family, bytes))) },
  ]),
])

for (const command of IS_FULL ? COMMANDS : COMMANDS.slice(0, 1)) {
  const name = command.filter(word => word !== path && word !== output).join(' ')
  t.test(`growth: agentctl ${name}`, async t => {
    for (const file of FILES) {
      const texts = SIZES_BYTES.map(file.text)
      const points = await measured(command, texts)
      t.ok(isFine(points), `${file.name}: ${shown(points)}`)
    }
  })
}

function isFine(points: readonly Measured[]): boolean {
  const isProportional = growsLinearly(points) || points.every(({ ms, controlMs }) => ms <= MOST_CONTROLS * controlMs)
  return isProportional && points.every(({ ms }) => ms <= MOST_MS)
}

/** Runs a command on each of some files until it is as it should be: noise only adds. */
async function measured(command: readonly string[], texts: readonly string[]): Promise<Measured[]> {
  const points = texts.map(text => ({ bytes: text.length, ms: Infinity, controlMs: Infinity }))
  for (let round = 0; round < ROUNDS && !isFine(points); round++) {
    for (const [i, text] of texts.entries()) {
      const point = points[i] as Measured // one for each text
      writeFileSync(path, text)
      const ms = await processorMsOf(() => agentctl({ url, args: command }))
      point.ms = Math.min(point.ms, ms)
      const controlMs = await processorMsOf(async () => parseDocument(text, { logLevel: 'silent', uniqueKeys: false }))
      point.controlMs = Math.min(point.controlMs, controlMs)
    }
  }
  return points
}

/** Processor time in ms. A command ends with one of the statuses that say what it found. */
async function processorMsOf(work: () => Promise<unknown>): Promise<number> {
  const started = process.cpuUsage()
  const answer = await work()
  const { user, system } = process.cpuUsage(started)
  if (isAnswer(answer)) t.ok(answer.status <= 2 && !/\n +at /.test(answer.stderr), answer.stderr.slice(0, 500))
  return (user + system) / 1000
}

function isAnswer(value: unknown): value is { status: number; stderr: string } {
  return typeof value === 'object' && value !== null && 'stderr' in value
}
