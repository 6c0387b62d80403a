/** Makes a tool definition of so many operations, as people write them: parameters, a body, descriptions. */
export function definitionOf(operations: number, title = 'Orders'): Record<string, unknown> {
  const numbers = Array.from({ length: operations }, (_, i) => i)
  return {
    openapi: '3.0.0',
    info: { title, description: 'Orders of the shop, for the people of the support team.', version: '1.0.0' },
    servers: [{ url: 'https://orders.example.com/v1' }],
    paths: Object.fromEntries(numbers.map(i => [`/orders/${i}/{id}`, { [METHODS[i % 4] ?? 'get']: operation(i) }])),
  }
}

/** A definition of at least so many bytes of JSON. */
export function definitionOfBytes(bytes: number): Record<string, unknown> {
  const perOperation = JSON.stringify(definitionOf(100)).length / 100
  return definitionOf(Math.ceil(bytes / perOperation))
}

const METHODS = ['get', 'put', 'post', 'delete']

function operation(i: number): unknown {
  return {
    operationId: `orderOperation${i}`,
    summary: `Operation ${i} on an order`,
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
