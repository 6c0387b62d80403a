/** Makes a tool definition of so many operations, as people write them: parameters, a body, descriptions. */
export function definitionOf(operations: number, title = 'Orders', description = ''): Record<string, unknown> {
  const numbers = Array.from({ length: operations }, (_, i) => i)
  return {
    openapi: '3.0.0',
    info: { title, description: 'Orders of the shop, for the people of the support team.', version: '1.0.0' },
    servers: [{ url: 'https://orders.example.com/v1' }],
    paths: Object.fromEntries(
      numbers.map(i => [`/orders/${i}/{id}`, { [METHODS[i % 4] ?? 'get']: operation(i, description) }]),
    ),
  }
}

/** A definition of about so many bytes of JSON: more operations up to a limit, then longer descriptions of each. */
export function definitionOfBytes(bytes: number): Record<string, unknown> {
  const perOperation = JSON.stringify(definitionOf(100)).length / 100
  const operations = Math.min(OPERATIONS_MAX, Math.ceil(bytes / perOperation))
  const missing = Math.floor(bytes / operations - perOperation)
  return definitionOf(operations, 'Orders', missing > 0 ? 'Says what it does. '.repeat(missing / 19) : '')
}

const OPERATIONS_MAX = 4_000

const METHODS = ['get', 'put', 'post', 'delete']

function operation(i: number, description: string): unknown {
  return {
    operationId: `orderOperation${i}`,
    summary: `Operation ${i} on an order`,
    ...(description !== '' && { description }),
    parameters: [
      { name: 'id', in: 'path', required: true, description: 'The number of the order', schema: { type: 'string' } },
      {
        name: 'expand',
        in: 'query',
        description: 'What to include',
        schema: { type: 'array', items: { type: 'string' } },
      },
    ],
    ...(i % 4 === 1 || i % 4 === 2 ? { requestBody: { content: { 'application/json': { schema: BODY } } } } : {}),
    responses: { '200': { description: 'The order as it is now' } },
  }
}

const BODY = {
  type: 'object',
  required: ['state'],
  properties: {
    state: { type: 'string', enum: ['open', 'paid', 'sent'] },
    note: { type: 'string', maxLength: 500, description: 'Shown on the invoice' },
  },
}
