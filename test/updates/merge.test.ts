import { sql } from 'kysely'
import t from 'tap'
import { applyOrganisation } from '../../src/admin/apply.js'
import { worldApp } from '../app.js'
import { newPerson, sequence, warningsOf } from './stored-state.js'

const { call, token, database, vault } = await worldApp(t)
await newPerson(database, 'second@example.com', 'admin')
const alice = await token('admin@example.com')
const bob = await token('second@example.com')

const PAIRS = 40

const AGENT = { method: 'PATCH', url: '/persona/1', kind: 'persona' } as const
const TOOL = { method: 'PUT', url: '/admin/tool/custom/10', kind: 'tool' } as const
type Place = typeof AGENT | typeof TOOL

interface Sent {
  by?: string
  tag?: string
  merge?: boolean
}

async function send(place: Place, body: object, { by = alice, tag, merge = false }: Sent = {}) {
  const mask = place === AGENT ? `?update_mask=${Object.keys(body).join(',')}` : ''
  const headers = { ...(tag !== undefined && { 'if-match': tag }), ...(merge && { prefer: 'merge=fields' }) }
  return await call(place.method, `${place.url}${mask}`, { token: by, body, headers })
}

async function set(place: Place, body: object, by?: string): Promise<string> {
  const answer = await send(place, body, by === undefined ? {} : { by })
  if (answer.statusCode !== 200) throw new Error(answer.body)
  return String(answer.headers.etag)
}

for (const place of [AGENT, TOOL]) {
  t.test(`200 for a change of other fields since, with what came in between: ${place.kind}`, async t => {
    const tag = await set(place, { name: 'base', description: 'base' })
    const between = await set(place, { description: 'by bob' }, bob)
    const refused = await send(place, { name: 'mine' }, { tag })
    t.equal(refused.statusCode, 412)
    t.equal(refused.json().conflicts, undefined, 'only a merge has it')
    const merged = await send(place, { name: 'mine', description: 'base' }, { tag, merge: true })
    t.equal(merged.statusCode, 200, merged.body)
    t.match(merged.json(), { name: 'mine', description: 'by bob' })
    t.equal(merged.headers['preference-applied'], 'merge=fields')
    const version = /-(\d+)"$/.exec(between)?.[1]
    t.equal(merged.headers.warning, `299 - "merged with version ${version}: description by second@example.com"`)
    const current = await send(place, { name: 'plain' }, { tag: String(merged.headers.etag), merge: true })
    t.match(current, { statusCode: 200, headers: { 'preference-applied': undefined } }, 'nothing to merge')
  })

  t.test(`412 names the field that both changed, and changes nothing: ${place.kind}`, async t => {
    const tag = await set(place, { name: 'base', description: 'base' })
    const current = await set(place, { name: 'his' }, bob)
    const refused = await send(place, { name: 'mine', description: 'mine' }, { tag, merge: true })
    t.equal(refused.statusCode, 412)
    t.match(refused.json(), { conflicts: ['name'], current_etag: current, changed: [{ field: 'name' }] })
    t.match(refused.json().detail, /both sides changed name\.$/)
    t.equal(refused.json().applied_etag, null)
    const same = await send(place, { name: 'his', description: 'mine' }, { tag, merge: true })
    t.match(same, { statusCode: 200 }, 'the same change on both sides is no conflict')
    t.match(same.json(), { name: 'his', description: 'mine' })
  })

  t.test(`412 for a tag that it never had, also where nothing would change: ${place.kind}`, async t => {
    const current = await set(place, { name: 'base', description: 'base' })
    const other = place === AGENT ? TOOL : AGENT
    for (const tag of [
      '"persona-2-1"',
      await set(other, { name: 'other' }),
      current.replace(/\d+"$/, '99999"'),
      '"x"',
    ]) {
      for (const description of ['base', 'mine']) {
        const refused = await send(place, { description }, { tag, merge: true })
        t.equal(refused.statusCode, 412, tag)
        t.match(refused.json(), { reason: 'unknown_tag', current_etag: current, changed: null, conflicts: null })
        t.notMatch(refused.json().detail, /merged|known/, 'nothing was forgotten')
      }
    }
  })

  t.test(`412 says whether a merge that conflicts was stored before: ${place.kind}`, async t => {
    const tag = await set(place, { name: 'base', description: 'base' })
    const mine = { name: 'mine', description: 'base' }
    const first = await set(place, { name: 'own, but another' })
    const refused = await send(place, mine, { tag, merge: true })
    t.match(refused, { statusCode: 412 })
    t.match(refused.json(), { applied_etag: null, conflicts: ['name'] }, "the caller's own, and something else")
    t.notMatch(refused.json().detail, /was stored before/)
    const stored = await send(place, mine, { tag: first, merge: true })
    await set(place, { name: 'his' }, bob)
    const again = await send(place, mine, { tag: first, merge: true })
    t.match(again.json(), { applied_etag: stored.headers.etag, conflicts: ['name'] })
  })

  t.test(`412 says so where what changed is no longer kept: ${place.kind}`, async t => {
    const tag = await set(place, { name: 'base', description: 'base' })
    await set(place, { name: 'his' }, bob)
    const rows = sql`resource_kind = ${place.kind} and resource_id = ${place === AGENT ? 1 : 10}`
    await sql`update audit set difference = null where ${rows}`.execute(database.db)
    const refused = await send(place, { description: 'mine' }, { tag, merge: true })
    t.equal(refused.statusCode, 412)
    t.match(refused.json(), { reason: 'changed', conflicts: null })
    t.match(
      refused.json().detail,
      /cannot be merged: what that state held is no longer kept, or too much changed since\.$/,
    )
  })
}

for (const place of [AGENT, TOOL]) {
  t.test(`one Warning for all versions in between, beside what else is to be said: ${place.kind}`, async t => {
    const tag = await set(place, { name: 'base', description: 'base' })
    const version = Number(/-(\d+)"$/.exec(tag)?.[1])
    for (let n = 0; n < 6; n++) await set(place, { description: `by bob ${n}` }, bob)
    const unknown = Object.fromEntries(Array.from({ length: 7 }, (_, n) => [`unknown_${n}`, n]))
    const url = place === AGENT ? `${place.url}?update_mask=name` : place.url
    const headers = { 'if-match': tag, prefer: 'merge=fields' }
    const body = { name: 'mine', ...unknown, ...(place === AGENT && { display_priority: 9 }) }
    const merged = await call(place.method, url, { token: alice, body, headers })
    t.equal(merged.statusCode, 200, merged.body)
    const warnings = warningsOf(merged)
    t.equal(warnings.at(-1), `merged with versions ${version + 1} to ${version + 6}: description by second@example.com`)
    const first = place === AGENT ? 'field display_priority is outside the update_mask and was ignored' : undefined
    t.match(warnings, first === undefined ? [/unknown_0/, /unknown_1/, /unknown_2/, /unknown_3/] : [first, /unknown_0/])
    t.equal(warnings.at(-2), `and ${place === AGENT ? 4 : 3} more warnings`)
  })

  t.test(`of several tags a merge starts from the oldest: ${place.kind}`, async t => {
    const tag = await set(place, { name: 'base', description: 'base' })
    const his = await set(place, { description: 'his' }, bob)
    await set(place, { name: 'later' }, bob)
    const merged = await send(place, { description: 'base' }, { tag: `${tag}, ${his}`, merge: true })
    t.equal(merged.statusCode, 200, merged.body)
    t.equal(merged.json().description, 'his', 'what was made between the two stays')
  })
}

t.test('200 over 1,000 versions in between, 412 over 1,001', async t => {
  const tag = await set(AGENT, { name: 'base', description: 'base' })
  const last = Number(/-(\d+)"$/.exec(await set(AGENT, { description: 'by bob' }, bob))?.[1])
  await sql`
    insert into audit
    select (jsonb_populate_record(a, jsonb_build_object('version_before', n - 1, 'version_after', n))).*
    from audit a, generate_series(${last}::integer + 1, ${last}::integer + 999) n
    where a.resource_kind = 'persona' and a.resource_id = 1 and a.version_after = ${last}`.execute(database.db)
  await sql`update persona set version = ${last}::integer + 999 where id = 1`.execute(database.db)
  const merged = await send(AGENT, { name: 'over 1,000' }, { tag, merge: true })
  t.match(merged, { statusCode: 200 }, merged.body)
  t.match(merged.headers.warning, `merged with versions ${last} to ${last + 999}: description by second@example.com`)
  const refused = await send(AGENT, { icon_name: 'over 1,001' }, { tag, merge: true })
  t.match(refused, { statusCode: 412 })
  t.match(refused.json(), { conflicts: null })
})

t.test('a share that is merged in with its person as the new owner is none', async t => {
  const person = await newPerson(database, 'new-owner@example.com')
  const other = await newPerson(database, 'new-viewer@example.com')
  const tag = await set(AGENT, { users: [] })
  const agents = [{ id: 1, name: 'owned anew', owner: 'new-owner@example.com' }]
  await applyOrganisation(database, { version: 1, agents }, { vault, env: {} })
  const merged = await send(AGENT, { users: [person, other] }, { tag, merge: true })
  t.equal(merged.statusCode, 200, merged.body)
  t.match(merged.json().owner, { email: 'new-owner@example.com' })
  t.strictSame(merged.json().users, [{ id: other, email: 'new-viewer@example.com' }])
  await applyOrganisation(
    database,
    { version: 1, agents: [{ ...agents[0], owner: 'alice@example.com' }] },
    { vault, env: {} },
  )
})

t.test('412 that names the conflict, whatever rule the fields that were left alone would break by now', async t => {
  const tag = await set(TOOL, { name: 'base', description: 'base', custom_headers: [{ key: 'X', value: 'a' }] })
  const { custom_headers } = (await send(TOOL, {})).json()
  await set(TOOL, { description: 'theirs', custom_headers: [{ key: 'X', value: 'b' }] }, bob)
  const tool = await send(TOOL, { description: 'mine', custom_headers }, { tag, merge: true })
  t.match(tool.json(), { error_code: 'PRECONDITION_FAILED', conflicts: ['description'] }, tool.body)

  const owner = await token('alice@example.com')
  await set(AGENT, { is_public: false, display_priority: null })
  const body = { description: 'base', is_public: false, display_priority: null }
  const base = await send(AGENT, { description: 'base' })
  await set(AGENT, { description: 'theirs', is_public: true, display_priority: 1 })
  const headers = { 'if-match': String(base.headers.etag), prefer: 'merge=fields, handling=strict' }
  const url = `/persona/1?update_mask=${Object.keys(body)}`
  for (const by of [owner, alice]) {
    const refused = await call('PATCH', url, { token: by, body: { ...body, description: 'mine' }, headers })
    t.match(refused.json(), { error_code: 'PRECONDITION_FAILED', conflicts: ['description'] }, refused.body)
  }
  await set(AGENT, { is_public: false, display_priority: null })
})

t.test('associations merge as sets', async t => {
  const tag = await set(AGENT, { tool_ids: [10, 11], label_ids: [1], groups: [] })
  await set(AGENT, { tool_ids: [11, 12], groups: [1] }, bob)
  const merged = await send(AGENT, { tool_ids: [10, 11, 13], label_ids: [], groups: [2] }, { tag, merge: true })
  t.equal(merged.statusCode, 200, merged.body)
  t.same(
    merged.json().tools.map((tool: { id: number }) => tool.id),
    [11, 12, 13],
  )
  t.same(merged.json().groups, [1, 2])
  t.same(merged.json().labels, [])
})

t.test(
  'header values merge: sent back as they were, they stay theirs; another value on both sides is a conflict',
  async t => {
    const tag = await set(TOOL, { name: 'base', custom_headers: [{ key: 'X-Key', value: 'first' }] })
    const masks = (await send(TOOL, {})).json().custom_headers
    await set(TOOL, { custom_headers: [{ key: 'X-Key', value: 'second' }] }, bob)
    const now = (await send(TOOL, {})).json().custom_headers
    const back = await send(TOOL, { name: 'mine', custom_headers: masks }, { tag, merge: true })
    t.match(back, { statusCode: 200 }, back.body)
    t.match(back.json(), { name: 'mine', custom_headers: now })
    const other = [{ key: 'X-Key', value: 'third' }]
    const refused = await send(TOOL, { custom_headers: other }, { tag, merge: true })
    t.match(refused.json(), { error_code: 'PRECONDITION_FAILED', conflicts: ['custom_headers'] })
    t.notMatch(refused.body, /third|\*{4}#/)
  },
)

t.test('403, 404 and 422 are those of the merged update', async t => {
  const tag = await set(AGENT, { is_public: true, is_default_persona: false, tool_ids: [10], name: 'base' })
  await set(AGENT, { is_default_persona: true }, bob)
  const private_ = await send(AGENT, { is_public: false }, { tag, merge: true })
  t.match(private_.json(), { detail: [{ loc: ['body', 'is_public'], type: 'default_persona_private' }] })
  const unknown = await send(AGENT, { tool_ids: [10, 4711] }, { tag, merge: true })
  t.match(unknown.json(), { detail: [{ loc: ['body', 'tool_ids', 1], type: 'not_found' }] })
  await set(AGENT, { is_default_persona: false, is_public: false, users: [], groups: [] })
  const email = 'stranger@example.com'
  await newPerson(database, email)
  const stranger = await token(email)
  t.equal((await send(AGENT, { name: 'no' }, { by: stranger, tag, merge: true })).statusCode, 404)
})

t.test(
  'what only administrators change merges for others where it is stored already, and is kept elsewhere',
  async t => {
    const email = 'editor@example.com'
    const id = await newPerson(database, email, 'basic')
    const editor = await token(email)
    await set(AGENT, { is_public: true, is_default_persona: false, display_priority: 3, users: [id] })
    await sql`update persona_user set level = 'editor' where persona_id = 1 and user_id = ${id}`.execute(database.db)
    const tag = await set(AGENT, { name: 'base' })
    await set(AGENT, { is_default_persona: true, display_priority: 5 })
    const merge = async (body: object, prefer: string) => {
      const mask = Object.keys(body).join(',')
      const headers = { 'if-match': tag, prefer: `merge=fields, ${prefer}` }
      return await call('PATCH', `/persona/1?dry_run=true&update_mask=${mask}`, { token: editor, body, headers })
    }
    for (const body of [{ display_priority: 5 }, { is_default_persona: true }]) {
      for (const prefer of ['handling=strict', 'handling=lenient']) {
        const merged = await merge(body, prefer)
        t.equal(merged.statusCode, 200, merged.body)
        t.match(merged.json(), body)
        t.notMatch(String(merged.headers.warning), /was kept/)
      }
    }
    const kept = await merge({ display_priority: 4 }, 'handling=lenient')
    t.match(kept.headers.warning, /field display_priority was kept: only an administrator may change it/)
    t.match(kept.json(), { display_priority: 5 })
    t.equal((await merge({ display_priority: 4 }, 'handling=strict')).statusCode, 403)
    await set(AGENT, { is_default_persona: false })
  },
)

const SCALARS = ['name', 'description', 'system_prompt'] as const
const ALL_SCALARS = [...SCALARS, 'num_chunks', 'starter_messages']
type Values = Record<string, unknown>

/** What is stored, and may be attached or taken off. */
const IDS = { tool_ids: [10, 11, 12], label_ids: [1], document_set_ids: [1, 2] }

/** A change of some fields; a value may be what stands there already. */
function randomEdit(pick: (n: number) => number): Values {
  const edit: Values = {}
  for (const field of SCALARS) if (pick(3) === 0) edit[field] = `${field} ${pick(3)}`
  if (pick(3) === 0) edit.num_chunks = pick(3)
  if (pick(3) === 0) edit.starter_messages = pick(3) === 0 ? null : [{ name: 'n', message: `m${pick(2)}` }]
  for (const [field, ids] of Object.entries(IDS)) if (pick(3) === 0) edit[field] = ids.filter(() => pick(2) === 0)
  return edit
}

const same = (a: unknown, b: unknown) => JSON.stringify(a) === JSON.stringify(b)

/** What two changes of one state must give together, or the fields that both change, each to something else. */
function expectedOf(base: Values, first: Values, second: Values): { values: Values; conflicts: string[] } {
  const values: Values = { ...base }
  const conflicts: string[] = []
  for (const field of ALL_SCALARS) {
    const [a, b] = [first, second].map(edit => (Object.hasOwn(edit, field) ? edit[field] : base[field]))
    const [isA, isB] = [!same(a, base[field]), !same(b, base[field])]
    if (isA && isB && !same(a, b)) conflicts.push(field)
    values[field] = isB ? b : a
  }
  for (const field of Object.keys(IDS)) {
    const had = new Set(base[field] as unknown[])
    const sides = [first, second].map(edit => new Set((edit[field] ?? base[field]) as unknown[]))
    const all = [...new Set([...had, ...sides.flatMap(side => [...side])])]
    const stays = (id: unknown) => (had.has(id) ? sides.every(side => side.has(id)) : sides.some(side => side.has(id)))
    values[field] = all.filter(stays).sort()
  }
  return { values, conflicts }
}

function shown(content: Values): Values {
  const sets = Object.keys(IDS).map(field => [field, [...(content[field] as unknown[])].sort()])
  return { ...Object.fromEntries(ALL_SCALARS.map(field => [field, content[field]])), ...Object.fromEntries(sets) }
}

t.test(`${PAIRS} pairs sent at once: no edit is lost, and a refusal names the field`, async t => {
  const pick = sequence(9)
  const findings: unknown[] = []
  let refusals = 0
  for (let pair = 0; pair < PAIRS; pair++) {
    const start = { name: 'name 0', description: 'description 0', num_chunks: 0, system_prompt: 'x' }
    const links = { tool_ids: [10], label_ids: [1], document_set_ids: [1] }
    const tag = await set(AGENT, { ...start, ...links, starter_messages: null })
    const base = shownAgent((await send(AGENT, {})).json())
    const [first, second] = [randomEdit(pick), randomEdit(pick)]
    const answers = await Promise.all([
      send(AGENT, first, { tag, merge: true }),
      send(AGENT, second, { by: bob, tag, merge: true }),
    ])
    const now = shownAgent((await send(AGENT, {})).json())
    const expected = expectedOf(base, first, second)
    const statuses = answers.map(({ statusCode }) => statusCode).sort()
    const refused = answers.find(({ statusCode }) => statusCode === 412)
    if (refused !== undefined) refusals++
    const isRight =
      refused === undefined
        ? same(statuses, [200, 200]) && expected.conflicts.length === 0 && same(now, shown(expected.values))
        : same(statuses, [200, 412]) &&
          same([...refused.json().conflicts].sort(), [...expected.conflicts].sort()) &&
          same(now, shown(expectedOf(base, refused === answers[0] ? second : first, {}).values))
    if (!isRight) findings.push({ pair, base, first, second, now, statuses, expected })
  }
  t.same(findings.slice(0, 3), [])
  t.ok(refusals > 0 && refusals < PAIRS, `${refusals} of ${PAIRS} pairs conflict`)
})

interface Named {
  id: number
}

function shownAgent(agent: Values): Values {
  const idsOf = (list: unknown) => (list as Named[]).map(({ id }) => id)
  return shown({
    ...agent,
    tool_ids: idsOf(agent.tools),
    label_ids: idsOf(agent.labels),
    document_set_ids: idsOf(agent.document_sets),
  })
}
