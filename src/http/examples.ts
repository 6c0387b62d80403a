import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

/** A played example of `openapi/examples`: a request to the demo organisation and what the service answered. */
interface Example {
  /** The file's name without its ending: the operation, then what is special, such as `update_persona-whole`. */
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
  /** It says something also when it is empty. */
  allowEmptyValue?: boolean
}

/** What this file reads and writes of an operation in the OpenAPI document. */
interface Operation {
  operationId: string
  parameters?: Parameter[]
  requestBody?: { content: Record<string, Media> }
  responses: Record<string, { content?: Record<string, Media> }>
}

/** A refusal that every operation answers alike is shown once: files of this operation's name stand for all. */
const EVERY_OPERATION = 'any_operation'

const FOLDER = fileURLToPath(new URL('../../../openapi/examples/', import.meta.url))

/** The examples of the package, the plain one of each operation first. */
function readExamples(): Example[] {
  return readdirSync(FOLDER)
    .filter(file => file.endsWith('.json'))
    .map(file => {
      const example = JSON.parse(readFileSync(`${FOLDER}${file}`, 'utf8')) as Omit<Example, 'name'> // the package's own
      return { ...example, name: file.replace(/\.json$/, '') }
    })
    .filter(example => 'answer' in example) // a new one is yet to be played
    .sort((one, other) => (one.name < other.name ? -1 : 1))
}

/** Puts the examples into an OpenAPI document, which it changes: accepted requests with their parameters, and answers by status. */
export function addExamples(document: { paths?: object }): void {
  const examples = readExamples()
  const items = Object.values(document.paths ?? {}) as Record<string, Operation>[] // the document's own shape
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

/** What a request presupposes of earlier ones. */
const OF_THE_PAST: readonly string[] = ['if-match', 'idempotency-key']

/** Whether the request works on any demo organisation, whatever was sent before. */
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
