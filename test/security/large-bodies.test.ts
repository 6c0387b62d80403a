import t from 'tap'
import { worldApp } from '../app.js'
import { requireShape, timed } from './answers.js'

t.test('answered in the shape of the wire: bodies as large as they may be', async t => {
  const world = await worldApp(t)
  const admin = await world.token('admin@example.com')
  const limit = 4 * 1024 * 1024
  const bodies: Record<string, string> = {
    'opening brackets': '['.repeat(limit),
    'opening braces': '{"a":'.repeat(limit / 5),
    'closed brackets': `${'['.repeat(limit / 2)}${']'.repeat(limit / 2)}`,
    'empty lists': `[${'[],'.repeat(limit / 3 - 2)}[]]`,
    'unknown fields': `{${numbered(limit / 12, index => `"k${index}":1`)}}`,
    'fields that are array indexes': `{${numbered(limit / 12, index => `"${index}":1`)}}`,
    'a forbidden key behind many values': `{"a":[${'1,'.repeat(limit / 2 - 50)}1],"\\u005f_proto__":1}`,
    'a word that is nearly forbidden': `{"a":[${'"__proto__",'.repeat(limit / 12 - 5)}1]}`,
    'wrong ids': `{"tool_ids":[${'"x",'.repeat(limit / 4 - 10)}1]}`,
    'wrong starter messages': `{"starter_messages":[${'{},'.repeat(limit / 3 - 20)}1]}`,
    'one long text': `{"name":"${'x'.repeat(limit - 20)}"}`,
    'one long text of surrogates': `{"name":"${'\\ud800'.repeat(limit / 6 - 10)}"}`,
    'one long number': `{"num_chunks":${'9'.repeat(limit - 20)}}`,
    'one long fraction': `{"num_chunks":0.${'9'.repeat(limit - 20)}}`,
    blanks: ' '.repeat(limit - 20),
    quotes: '"'.repeat(limit),
    backslashes: `"${'\\'.repeat(limit - 2)}"`,
    'duplicate keys': `{${'"name":"a",'.repeat(limit / 11 - 5)}"name":"b"}`,
  }
  for (const [name, body] of Object.entries(bodies)) {
    for (const [method, url] of [
      ['PATCH', '/persona/1'],
      ['PUT', '/admin/tool/custom/10'],
    ] as const) {
      const prefer = name.includes('fields') ? 'handling=strict' : ''
      const headers = { authorization: `Bearer ${admin}`, 'content-type': 'application/json', prefer }
      const { answer } = await timed(world, { method, url, headers, payload: Buffer.from(body) })
      requireShape(answer, method)
    }
  }
})

function numbered(count: number, make: (index: number) => string): string {
  return Array.from({ length: Math.floor(count) }, (_, index) => make(index)).join(',')
}
