import { readdirSync, readFileSync } from 'node:fs'

/** A recorded example of `openapi/examples`: a request to the demo organisation, and its answer. */
interface Example {
  about: string
  request: { path: string; headers: Record<string, string>; body: unknown }
  answer?: { status: number; body: unknown }
}

interface Content {
  content?: Record<string, { examples?: Record<string, { summary: string; description?: string; value: unknown }> }>
}

/** The parts of an operation in the OpenAPI document that this file uses. */
interface Operation {
  operationId: string
  requestBody?: Content
  responses: Record<string, Content>
}

const FOLDER = new URL('../../../openapi/examples/', import.meta.url)

/** Headers whose values depend on earlier requests. */
const OF_THE_PAST = ['if-match', 'idempotency-key']

/**
 * Adds the examples to an OpenAPI document in place: accepted requests, and answers by status. A file's name begins with its operation, or
 * with `any_operation`.
 */
export function addExamples(document: { paths?: object }): void {
  const items = Object.values(document.paths ?? {}) as Record<string, Operation>[] // the shape of an OpenAPI document
  const operations = items.flatMap(item => Object.values(item))
  const names = readdirSync(FOLDER).map(file => file.replace(/\.json$/, ''))
  const isShared = (name: string) => Number(name.startsWith('any_operation'))
  for (const name of names.sort().sort((a, b) => isShared(a) - isShared(b))) {
    const example = JSON.parse(readFileSync(new URL(`${name}.json`, FOLDER), 'utf8')) as Example // the package's own file
    const { about, request, answer } = example
    const [operationId] = name.split('-')
    const query = request.path.split('?')[1]
    const show = (part: Content | undefined, value: unknown, description = {}) => {
      const media = part?.content?.['application/json']
      if (media !== undefined) media.examples = { ...media.examples, [name]: { summary: about, ...description, value } }
    }
    for (const operation of operations) {
      const isOwn = operation.operationId === operationId
      if (answer === undefined || !(isOwn || operationId === 'any_operation')) continue
      if (isOwn && answer.status < 300 && !OF_THE_PAST.some(header => header in request.headers))
        show(operation.requestBody, request.body, query && { description: `With \`?${query}\`.` })
      show(operation.responses[answer.status], answer.body)
    }
  }
}
