import fc from 'fast-check'
import { load } from 'js-yaml'
import t from 'tap'
import { jsonText, yamlText } from '../../src/admin/document-text.js'
import { exportOrganisation } from '../../src/admin/export.js'
import { parseSource } from '../../src/admin/source.js'
import { worldApp } from '../app.js'

const { database, call, apply, query, admin } = await worldApp(t)
const INVISIBLE = /(?!\n)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u

/** Strings that, unquoted, YAML 1.1 or 1.2 reads as another value or as a syntax error. */
const WORDS =
  '<< = ~ yes No on null NaN .inf 1:20 0o7 0x1F 1_000 010 1e3 - --- 2001-12-14 &a *a !a | > %a @a `a {a [a true 1.0 \\'
const PHRASES = `- a|? a|: a|a: b|a #b|# a|'a|"a|| a|a |a\nb|\na|a\n\n|a\r\nb|\ta|a\n b|  a\nb|\\n`
const ODD = [
  ...WORDS.split(' '),
  ...PHRASES.split('|'),
  ...'\u009b\u0085\u202e\u2028\ufeff\u{e0001}\u200d\uffff\u0007\u{1f600}',
]
const odd = fc
  .oneof(
    fc.constantFrom(...ODD),
    fc.array(fc.constantFrom(...ODD, ' ', '\n', 'word'), { maxLength: 6 }).map(parts => parts.join('')),
    fc.string({ unit: 'binary', maxLength: 20 }),
  )
  .map(text => text.replaceAll('\0', ''))
const oddName = odd.map(text => `${text.trim()}.`)
const key = odd.filter(key => !key.includes('__proto__'))
const value = fc.letrec(tie => ({
  value: fc.oneof(
    { maxDepth: 3 },
    odd,
    fc.double({ noNaN: true, noDefaultInfinity: true }),
    fc.boolean(),
    fc.constant(null),
    fc.array(tie('value'), { maxLength: 3 }),
    fc.dictionary(key, tie('value'), { maxKeys: 4, noNullPrototype: true }),
  ),
})).value

const definition = (data: unknown, summary: string) => ({
  openapi: '3.1.0',
  info: { title: 'Odd', version: '1' },
  servers: [{ url: 'https://odd.example.com' }],
  paths: { '/odd': { get: { operationId: 'odd', summary, responses: { 200: { description: summary } } } } },
  'x-data': { '<<': { a: 1 }, data },
})

t.test('what the API stores is exported, read by another parser too, and planned again without a change', async t => {
  const change = async (method: string, path: string, body: object) => {
    const { statusCode, body: said } = await call(method, path, { token: admin, body })
    if (statusCode !== 200) throw new Error(said)
  }
  // Gives two tools the same name, and creates a group whose name is a number.
  await change('PUT', '/admin/tool/custom/15', { name: 'items' })
  const groups = [{ name: '1', members: ['bob@example.com'] }]
  const agents = [{ id: 2, groups: [{ name: '1' }], tools: [{ id: 15, name: 'items' }, 10], labels: [] }]
  await apply({ groups, agents })
  // Stores a definition that earlier versions accepted and this version refuses.
  const old = '{"openapi":"3.0.0","info":{},"paths":{}}'
  await query`insert into tool_definition values (sha256(${old}::text::bytea), ${old}, 9)`
  await query`update tool set definition_hash = sha256(${old}::text::bytea) where id = 16`
  await fc.assert(
    fc.asyncProperty(oddName, odd, odd, value, async (name, description, prompt, data) => {
      await change('PUT', '/admin/tool/custom/13', { name, description, definition: definition(data, `${prompt}.`) })
      const messages = [{ name: description, message: prompt }]
      const agent = { name, description, system_prompt: prompt, starter_messages: messages, icon_name: description }
      await change('PATCH', `/persona/1?update_mask=${Object.keys(agent).join()}`, agent)
      const exported = await exportOrganisation(database.db)
      const [yaml, json] = [yamlText(exported), jsonText(exported)]
      t.notMatch(yaml + json, INVISIBLE)
      t.same(parseSource(json).value, parseSource(yaml).value)
      const { outcomes } = await apply(parseSource(yaml).value as object, { plan: true }) // an export is an object
      const changed = outcomes.filter(({ action }) => action !== 'unchanged')
      t.same(changed, [])
      t.same(load(yaml), JSON.parse(json))
    }),
    { numRuns: 12 },
  )
  const exported = await exportOrganisation(database.db)
  const tools = [10, 15].map(id => ({ id, name: 'items' }))
  t.match(exported, { tools: { 5: { owner: 'admin@example.com' } }, agents: { 1: { groups: [{ name: '1' }], tools } } })
  const references = JSON.stringify(exported.agents).match(/"(?:tools|labels|groups)":\[[\d{][^\]]*/g)
  t.notMatch(references?.join() ?? '', /"(?:tools|labels)":\[\d|"name":\d/)
})
