import fc from 'fast-check'
import t from 'tap'
import { linked, type WorldApp, worldApp } from '../app.js'
import { AGENT_FIELD_ROWS, AGENT_FIELDS, REQUIRED_AGENT_FIELDS } from '../fixtures/agent-fields.js'
import { DEFINITION } from '../matrix-organisation.js'
import { auditRows } from './stored-state.js'

/* Read, edit, write back: what `view=update` answers is an update that changes nothing, and with one edit changes that. */

const AGENTS = 30
const TOOLS = 20

/** Sends a body to where the read says; answers the status, and what the audit trail says was changed by it. */
async function writeBack({ call, database }: WorldApp, token: string, path: string, edit: (body: string) => string) {
  const read = await call('GET', `${path}?view=update`, { token })
  if (read.statusCode !== 200) throw new Error(`${path}: ${read.body}`)
  const url = linked(`/agents${path}?view=update`, read.headers.link, 'edit').replace('/agents/', '/')
  const [, name, id] = path.split('/')
  const kind = name === 'tool' ? 'tool' : 'persona'
  const before = (await auditRows(database.db, kind, Number(id))).length
  const answer = await call(kind === 'tool' ? 'PUT' : 'PATCH', url, {
    token,
    body: edit(read.body),
    headers: { 'if-match': String(read.headers.etag) },
  })
  const added = (await auditRows(database.db, kind, Number(id))).slice(before)
  return {
    status: answer.statusCode,
    warning: answer.headers.warning,
    text: answer.body,
    changed: added.flatMap(row => row.fields),
  }
}

const FIELDS = Object.fromEntries(AGENT_FIELD_ROWS.map(([name, { random }]) => [name, random]))
const wholeAgent = fc.record(FIELDS, { requiredKeys: REQUIRED_AGENT_FIELDS })

t.test(`${AGENTS} random agents: sent back unchanged they stay, with one edit that changes`, async t => {
  const world = await worldApp(t)
  const { call, database } = world
  const token = await world.token('admin@example.com')
  const editable = Object.entries(AGENT_FIELDS).filter(([name]) => name !== 'remove_image')
  const edit = fc.constantFrom(...editable).chain(([name, { random }]) => random.map(value => ({ name, value })))
  const columns = fc.subarray(['num_chunks', 'system_prompt', 'task_prompt'])
  let edits = 0
  await fc.assert(
    fc.asyncProperty(wholeAgent, columns, edit, async (body, empty, { name, value }) => {
      await call('PATCH', '/persona/1', { token, body })
      // What only the operator leaves empty.
      const nulls = Object.fromEntries(empty.map(column => [column, null]))
      if (empty.length > 0) await database.db.updateTable('persona').set(nulls).where('id', '=', 1).execute()
      const back = await writeBack(world, token, '/persona/1', body => body)
      if (back.status !== 200 || back.changed.length > 0 || back.warning) throw new Error(JSON.stringify(back))
      const edited = await writeBack(world, token, '/persona/1', text => {
        const read = JSON.parse(text) as Record<string, unknown>
        if (Object.hasOwn(read, name)) read[name] = value
        return JSON.stringify(read)
      })
      if (edited.changed.some(field => field !== name)) throw new Error(`${name}: ${JSON.stringify(edited)}`)
      if (edited.status === 200) edits += edited.changed.length
    }),
    { numRuns: AGENTS },
  )
  t.ok(edits > AGENTS / 4, `${edits} edits changed their field`)
})

const number = fc.constantFrom('1', '1.0', '-0', '12345678901234567', '1e3', '0.10')
const title = fc.string({ maxLength: 8 }).filter(text => !text.includes('\0') && text.isWellFormed())
const tool = fc.record({
  name: title.filter(text => text.length > 0),
  description: title,
  passthrough: fc.boolean(),
  number,
  secret: fc.stringMatching(/^[a-z0-9]{1,8}$/),
})

t.test(`${TOOLS} random tools: sent back unchanged they stay, secrets too, with one edit that changes`, async t => {
  const world = await worldApp(t)
  const { call } = world
  const token = await world.token('admin@example.com')
  const definition = (value: string) => JSON.stringify(DEFINITION).replace('{', `{"x-n":[${value}],`)
  let edits = 0
  await fc.assert(
    fc.asyncProperty(
      tool,
      fc.constantFrom('name', 'description', 'definition', 'custom_headers'),
      number,
      async (made, name, other) => {
        const { number: value, secret, passthrough, ...texts } = made
        const headers = [{ key: 'X-Key', value: secret }]
        const rest = JSON.stringify({
          ...texts,
          passthrough_auth: passthrough,
          custom_headers: headers,
          oauth_config_id: passthrough ? 1 : null,
        })
        const body = `${rest.slice(0, -1)},"definition":${definition(value)}}`
        const stored = await call('PUT', '/admin/tool/custom/10', { token, body })
        if (stored.statusCode !== 200) throw new Error(stored.body)
        const back = await writeBack(world, token, '/tool/10', body => body)
        if (back.status !== 200 || back.changed.length > 0) throw new Error(JSON.stringify(back))
        const edited = await writeBack(world, token, '/tool/10', text => {
          if (name === 'definition') return text.replace(`"x-n":[${value}]`, `"x-n":[${other}]`)
          if (name === 'custom_headers')
            return text.replace('"X-Key"', '"X-Other"').replace(/"\*{4}#[0-9a-f]{12}"/, '"new"')
          return text.replace(`"${name}":${JSON.stringify(texts[name as 'name'])}`, `"${name}":"edited"`)
        })
        if (edited.status !== 200 || edited.changed.some(field => field !== name))
          throw new Error(`${name}: ${JSON.stringify(edited)}`)
        edits += edited.changed.length
      },
    ),
    { numRuns: TOOLS },
  )
  t.ok(edits > TOOLS / 2, `${edits} edits changed their field`)
})

t.test(
  '200: who may not manage a tool reads a body without its headers; a viewer reads an agent; 304, 404 and 422',
  async t => {
    const { call, token } = await worldApp(t)
    const alice = await token('alice@example.com', { scopes: ['basic'] })
    const tool = await call('GET', '/tool/10?view=update', { token: alice })
    t.strictSame(Object.keys(tool.json()), ['name', 'description', 'definition', 'passthrough_auth', 'oauth_config_id'])
    t.equal(tool.headers.link, '<../admin/tool/custom/10>; rel="edit"')
    const agent = await call('GET', '/persona/1?view=update', { token: alice })
    t.ok(agent.json().recency_bias, 'what the snapshot does not show')
    const tag = String(agent.headers.etag)
    t.equal(
      (await call('GET', '/persona/1?view=update', { token: alice, headers: { 'if-none-match': tag } })).statusCode,
      304,
    )
    t.equal((await call('GET', '/persona/1', { token: alice, headers: { 'if-none-match': tag } })).statusCode, 200)
    t.equal((await call('GET', '/persona/1?view=update&version=1', { token: alice })).statusCode, 200)
    t.equal((await call('GET', '/persona/1?view=all', { token: alice })).statusCode, 422)
    const stranger = await token('limited@example.com')
    const hidden: number[] = []
    for (let id = 1; id <= 20; id++) {
      const statuses = [`/persona/${id}`, `/persona/${id}?view=update`].map(path =>
        call('GET', path, { token: stranger }),
      )
      const [plain, view] = (await Promise.all(statuses)).map(({ statusCode }) => statusCode)
      t.equal(view, plain, `persona ${id}`)
      if (view === 404) hidden.push(id)
    }
    t.ok(hidden.length > 0)
  },
)
