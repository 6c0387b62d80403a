import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { demoApp } from './demo-app.js'
import { matchesGolden } from './golden.js'
import { EXAMPLES, type Example, isReproducible } from './played-examples.js'

interface PlayedExample {
  about: string
  request: { method: Example['method']; path: string; headers: Record<string, string>; body?: unknown }
  answer: { status: number; headers: Record<string, string>; body: unknown }
}

const FOLDER = fileURLToPath(new URL('../../openapi/examples/', import.meta.url))

t.test(
  'openapi/postman_collection.json holds the played examples that anybody can send, and its requests answer so',
  async t => {
    const items = EXAMPLES.filter(isReproducible).map(({ file }) =>
      itemOf(file, JSON.parse(readFileSync(`${FOLDER}${file}.json`, 'utf8'))),
    )
    // Updates first: a read of an earlier version needs some.
    const folders = [...new Set(items.map(({ name }) => operationOf(name)))].sort().reverse()
    const collection = {
      info: {
        _postman_id: idOf('collection'),
        name: 'Agent and Custom Tool Management',
        description:
          'The examples of openapi/examples that a new demo organisation answers alike: run them in this order. Set `token` to the ' +
          'one that the first start prints.',
        schema: 'https://schema.getpostman.com/json/collection/v2.1.0/collection.json',
      },
      auth: { type: 'bearer', bearer: [{ key: 'token', value: '{{token}}', type: 'string' }] },
      variable: [
        { key: 'base', value: 'http://127.0.0.1:8080' },
        { key: 'token', value: '' },
      ],
      item: folders.map(name => ({ name, item: items.filter(item => operationOf(item.name) === name) })),
    }
    t.ok(items.length > 0)
    matchesGolden(t, 'openapi/postman_collection.json', `${JSON.stringify(collection, null, 2)}\n`)

    const { app, tokens } = await demoApp(t)
    for (const { name, request, response } of collection.item.flatMap(({ item }) => item)) {
      const { statusCode, body } = await app.inject({
        method: request.method,
        url: request.url.raw.replace('{{base}}', ''),
        headers: {
          ...Object.fromEntries(request.header.map(({ key, value }) => [key, value])),
          ...(request.auth === undefined && { authorization: `Bearer ${tokens.admin}` }),
        },
        ...(request.body !== undefined && { payload: request.body.raw }),
      })
      t.equal(statusCode, response[0]?.code, `${name}: ${body.slice(0, 200)}`)
    }
  },
)

function operationOf(name: string): string {
  return name.split('-')[0] ?? name
}

function itemOf(name: string, { about, request, answer }: PlayedExample) {
  const { authorization, ...headers } = request.headers
  const sent = {
    method: request.method,
    description: about,
    // Without a token where the example is about that; else the collection's own.
    ...(authorization === undefined && { auth: { type: 'noauth' } }),
    header: Object.entries(headers).map(([key, value]) => ({ key, value })),
    ...(request.body !== undefined && {
      body: { mode: 'raw', raw: JSON.stringify(request.body, null, 2), options: { raw: { language: 'json' } } },
    }),
    url: urlOf(request.path),
  }
  const received = {
    name: about,
    originalRequest: sent,
    code: answer.status,
    header: Object.entries(answer.headers).map(([key, value]) => ({ key, value })),
    body: JSON.stringify(answer.body, null, 2),
  }
  return { name, id: idOf(name), request: sent, response: [received] }
}

function urlOf(path: string) {
  const [pathname = '', query] = path.split('?')
  const parameters = [...new URLSearchParams(query)].map(([key, value]) => ({ key, value }))
  return {
    raw: `{{base}}${path}`,
    host: ['{{base}}'],
    path: pathname.split('/').slice(1),
    ...(query !== undefined && { query: parameters }),
  }
}

/** An id that stays the same as long as the name does: 16 bytes in the form of a UUID. */
function idOf(name: string): string {
  const hex = createHash('sha256').update(name).digest('hex')
  return [hex.slice(0, 8), hex.slice(8, 12), `4${hex.slice(13, 16)}`, `8${hex.slice(17, 20)}`, hex.slice(20, 32)].join(
    '-',
  )
}
