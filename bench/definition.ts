/**
 * Times the check of a tool definition beside `JSON.parse` of the same text in the same run.
 *
 * Run: `node build/bench/definition.js`. Made documents of 1 kB, 50 kB, 1 MB and 5 MB (compact JSON; each
 * operation with parameters, a body, answers and a schema of its own, about 2 kB, which is denser than the real documents), then the shared real documents if they are present. Every figure is the median of its
 * rounds; goal: the check costs no more than the parse, and the median shared document at most 0.2 ms.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { checkDefinition, checkDefinitionInSlices } from '../src/tool/definition/index.js'

const SIZES_BYTES = [1_000, 50_000, 1_000_000, 5_000_000]
const ROUND_MS = 1500
const SHARED = fileURLToPath(new URL('../../../shared/tool-definitions/', import.meta.url))

const ERROR = '#/components/schemas/Error'

function answer(description: string, ref: string): unknown {
  return { description, content: { 'application/json': { schema: { $ref: ref } } } }
}

function operation(i: number): unknown {
  return {
    operationId: `updateOrder${i}`,
    summary: `Update order ${i}`,
    description:
      'Changes the named fields of an order and leaves all others as they are. Answers the order as it is afterwards.',
    parameters: [
      { $ref: '#/components/parameters/Id' },
      {
        name: 'expand',
        in: 'query',
        description: 'What to include',
        schema: { type: 'array', items: { type: 'string' } },
      },
    ],
    requestBody: { content: { 'application/json': { schema: { $ref: `#/components/schemas/Order${i}` } } } },
    tags: ['Orders', 'Billing'],
    security: [{ oauth: ['orders.write'] }, { apiKey: [] }],
    responses: {
      '200': answer('The order as it is after the update', `#/components/schemas/Order${i}`),
      '400': answer('Bad Request - a problem reading or understanding the request', ERROR),
      '401': answer('Unauthorized - authentication required', ERROR),
      '403': answer('Forbidden - insufficient permissions to process the request', ERROR),
      '422': answer('Unprocessable Entity - a request validation error', ERROR),
      '500': answer('Internal Server Error - the server could not process the request', ERROR),
    },
  }
}

function schema(i: number): unknown {
  return {
    type: 'object',
    required: ['title', 'lines'],
    properties: {
      title: { type: 'string', maxLength: 200, description: 'Shown in lists and on the invoice' },
      state: { type: 'string', enum: ['open', 'paid', 'sent'] },
      lines: {
        type: 'array',
        items: { type: 'object', properties: { sku: { type: 'string' }, count: { type: 'integer', minimum: 1 } } },
      },
      parent: { $ref: `#/components/schemas/Order${i}` },
    },
  }
}

/** A valid definition of about `bytes` bytes. */
function documentOf(bytes: number): string {
  const paths: Record<string, unknown> = {}
  const schemas: Record<string, unknown> = { Error: { type: 'object', properties: { message: { type: 'string' } } } }
  const document = {
    openapi: '3.0.3',
    info: { title: 'Orders', version: '1' },
    servers: [{ url: 'https://orders.example.com/v1' }],
    paths,
    components: { parameters: { Id: { name: 'id', in: 'path', required: true, schema: { type: 'string' } } }, schemas },
  }
  const each = JSON.stringify(operation(0)).length + JSON.stringify(schema(0)).length + 60
  const count = Math.max(1, Math.round((bytes - JSON.stringify(document).length) / each))
  for (let i = 0; i < count; i++) {
    paths[`/orders${i}/{id}`] = { put: operation(i) }
    schemas[`Order${i}`] = schema(i)
  }
  return JSON.stringify(document)
}

function median(times: number[]): number {
  return times.sort((a, b) => a - b)[Math.floor(times.length / 2)] ?? Number.NaN
}

/** Median milliseconds of each run; the runs take turns, so that both meet the same machine. */
function race(runs: (() => unknown)[], roundMs: number): number[] {
  const times = runs.map((): number[] => [])
  const end = performance.now() + roundMs
  while (performance.now() < end || (times[0]?.length ?? 0) < 20) {
    runs.forEach((run, i) => {
      const start = performance.now()
      run()
      times[i]?.push(performance.now() - start)
    })
  }
  return times.map(median)
}

/** The longest time in ms for which the sliced check kept the event loop. */
async function longestHold(definition: unknown): Promise<number> {
  let longest = 0
  let last = performance.now()
  let isDone = false
  const tick = () => {
    const now = performance.now()
    longest = Math.max(longest, now - last)
    last = now
    if (!isDone) setImmediate(tick)
  }
  setImmediate(tick)
  await checkDefinitionInSlices(definition)
  isDone = true
  tick()
  return longest
}

console.log('bytes       JSON.parse ms   check ms   check/parse   longest hold of the sliced check ms')
for (const bytes of SIZES_BYTES) {
  const text = documentOf(bytes)
  const definition: unknown = JSON.parse(text)
  const check = checkDefinition(definition)
  if (!check.ok && check.faults[0]?.type !== 'too_many_operations') throw new Error(JSON.stringify(check.faults))
  const [parseMs = Number.NaN, checkMs = Number.NaN] = race(
    [() => JSON.parse(text), () => checkDefinition(definition)],
    ROUND_MS,
  )
  const hold = await longestHold(definition)
  console.log(
    String(text.length).padEnd(11),
    parseMs.toFixed(4).padStart(13),
    checkMs.toFixed(4).padStart(10),
    (checkMs / parseMs).toFixed(2).padStart(13),
    hold.toFixed(1).padStart(12),
  )
}

if (existsSync(SHARED)) {
  const medians: number[] = []
  const ratios: number[] = []
  for (const file of readdirSync(SHARED).filter(name => name.includes('--') && name.endsWith('.json'))) {
    const text = readFileSync(SHARED + file, 'utf8')
    const definition: unknown = JSON.parse(text)
    const [parseMs = Number.NaN, checkMs = Number.NaN] = race(
      [() => JSON.parse(text), () => checkDefinition(definition)],
      20,
    )
    medians.push(checkMs)
    ratios.push(checkMs / parseMs)
  }
  console.log(
    `shared documents: ${medians.length}, check p50 ${median(medians).toFixed(4)} ms, longest ${medians.at(-1)?.toFixed(3)} ms`,
  )
  console.log(
    `check/parse of the shared documents: p50 ${median(ratios).toFixed(2)}, longest ${ratios.at(-1)?.toFixed(2)}`,
  )
} else {
  console.log('shared documents: not present')
}
