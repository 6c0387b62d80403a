import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

/** A recorded example of `openapi/examples`: a request to the demo organisation, and its answer. */
interface Example {
  /** The file's name without extension: the operation, optionally with a variant, such as `update_persona-whole`. */
  name: string
  about: string
  request: { path: string; headers: Record<string, string>; body: unknown }
  answer: { status: number; body: unknown }
}

interface Media {
  examples?: Record<string, { summary: string; description?: string; value: unknown }>
}

interface Parameter {
  name: string
  in: string
  schema?: { type?: string }
  example?: unknown
  /** True if an empty value has a meaning. */
  allowEmptyValue?: boolean
}

/** The parts of an operation in the OpenAPI document that this file uses. */
interface Operation {
  operationId: string
  parameters?: Parameter[]
  requestBody?: { content: Record<string, Media> }
  responses: Record<string, { content?: Record<string, Media> }>
}

/** The operation name of examples that apply to every operation. */
const EVERY_OPERATION = 'any_operation'

const FOLDER = fileURLToPath(new URL('../../../openapi/examples/', import.meta.url))

/** Reads the examples, sorted so that the plain one of each operation comes first. */
function readExamples(): Example[] {
  return readdirSync(FOLDER)
    .filter(file => file.endsWith('.json'))
    .map(file => {
      const example = JSON.parse(readFileSync(`${FOLDER}${file}`, 'utf8')) as Omit<Example, 'name'> // the package's own files
      return { ...example, name: file.replace(/\.json$/, '') }
    })
    .filter(example => 'answer' in example) // a new example has no recorded answer yet
    .sort((one, other) => (one.name < other.name ? -1 : 1))
}

/** Adds the examples to an OpenAPI document in place: accepted requests with their parameters, and answers by status. */
export function addExamples(document: { paths?: object }): void {
  const examples = readExamples()
  const items = Object.values(document.paths ?? {}) as Record<string, Operation>[] // the shape of an OpenAPI document
  for (const operation of items.flatMap(item => Object.values(item))) {
    const own = examples.filter(({ name }) => name.split('-')[0] === operation.operationId)
    const accepted = own.filter(({ answer }) => answer.status < 300)
    for (const example of accepted.filter(hasNoPast))
      show(operation.requestBody?.content, example, example.request.body, queryOf(example))
    if (accepted[0] !== undefined) fillParameters(operation, accepted[0])
    for (const parameter of operation.parameters ?? []) {
      if (accepted.some(example => new URLSearchParams(queryOf(example)).get(parameter.name) === ''))
        parameter.allowEmptyValue = true
    }
    for (const [status, { content }] of Object.entries(operation.responses)) {
      const ofStatus = (list: readonly Example[]) => list.filter(({ answer }) => String(answer.status) === status)
      const shared = examples.filter(({ name }) => name.split('-')[0] === EVERY_OPERATION)
      for (const example of [...ofStatus(own), ...ofStatus(shared)]) show(content, example, example.answer.body)
    }
  }
}

/** Headers whose values depend on earlier requests. */
const OF_THE_PAST: readonly string[] = ['if-match', 'idempotency-key']

/** True if the request works on any demo organisation, independent of earlier requests. */
function hasNoPast({ request }: Example): boolean {
  return !OF_THE_PAST.some(header => header in request.headers)
}

function show(content: Record<string, Media> | undefined, example: Example, value: unknown, query = ''): void {
  const media = content?.['application/json']
  if (media === undefined) return
  media.examples ??= {}
  const description = query === '' ? {} : { description: `With \`?${query}\`.` }
  media.examples[example.name] = { summary: example.about, ...description, value }
}

function fillParameters({ parameters = [] }: Operation, example: Example): void {
  const query = new URLSearchParams(queryOf(example))
  const id = /\/(\d+)(?:\?|$)/.exec(example.request.path)?.[1]
  for (const parameter of parameters) {
    if (parameter.in === 'path' && id !== undefined) parameter.example = Number(id)
    const value = parameter.in === 'query' ? query.get(parameter.name) : null
    if (value !== null) parameter.example = parameter.schema?.type === 'integer' ? Number(value) : value
  }
}

function queryOf({ request }: Example): string {
  return request.path.split('?')[1] ?? ''
}
